-- attention_feed: attention kernels, and the long copies that stand before each on its stream, back to the product or the attention before it: times
-- of the three longest and ids of the two longest, longest first, and whether these two are of one size (blocks of the grid, bytes of a copy). A
-- copy moves and computes nothing; long is from 10 us on, where bandwidth binds. Attention with nothing before it (the second kernel of a split
-- one) has no row. Empty where long copies take less than a tenth of the kernels' time: most recordings end there at little cost.
CREATE TABLE attention_feed AS
WITH named AS (
    SELECT name_id, family = 'attention' AS is_attention, family IN ('attention', 'gemm') AS is_bound,
        regexp_matches(lower(name), 'direct_copy_kernel|indexselect|vectorized_gather'
            || '|triton_poi_fused_(_unsafe_view_|clone_|expand_|view_|unsqueeze_|transpose_|repeat_)+\d') AS is_copy
    FROM kernel_name
),
worth AS MATERIALIZED (
    SELECT 1 FROM device_op AS op LEFT JOIN named USING (name_id), steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns AND EXISTS (SELECT 1 FROM named WHERE is_attention)
    HAVING bool_or(coalesce(is_attention, false)) AND sum(end_ns - op.start_ns)
        FILTER (coalesce(is_copy, copy_kind = 'dtod', false) AND end_ns - op.start_ns >= 10000) > 0.1 * sum(end_ns - op.start_ns)
),
inside AS (
    SELECT device_op_id, source_id, device_id, stream_id, end_ns - op.start_ns AS own_ns, coalesce(grid_blocks, size_bytes) AS size,
        coalesce(is_attention, false) AS is_attention, coalesce(is_bound, false) AS is_bound,
        coalesce(is_copy, copy_kind = 'dtod', false) AND end_ns - op.start_ns >= 10000 AS is_copy
    FROM device_op AS op LEFT JOIN named USING (name_id), steady_window, worth
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns
),
sequence AS (
    SELECT *, coalesce(sum(is_bound::INTEGER) OVER (PARTITION BY source_id, device_id, stream_id ORDER BY device_op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS block
    FROM inside
)
SELECT max(device_op_id) FILTER (is_attention) AS attention_op_id, sum(own_ns) FILTER (is_attention)::BIGINT AS attention_ns,
    max(own_ns, 3) FILTER (is_copy) AS copy_ns, arg_max(device_op_id, own_ns, 2) FILTER (is_copy) AS copy_op_id, coalesce(list_unique(arg_max(size, own_ns, 2) FILTER (is_copy)) = 1, false) AS is_one_size
FROM sequence GROUP BY source_id, device_id, stream_id, block
HAVING bool_or(is_attention) AND count(*) > 1
ORDER BY attention_op_id;
