-- narrowed_product: matrix products, and the casts of 32-bit floats to 16 bits directly before each on its stream (memory sets aside): ids and times,
-- longest first; empty lists where there are none. Empty where casts are fewer than products.
CREATE TABLE narrowed_product AS
WITH named AS (
    SELECT name_id, family = 'gemm' AND NOT regexp_matches(lower(name), 'splitk_?reduce|prepare_grouped') AS is_product,
        regexp_matches(lower(name), 'b?float16_copy_kernel') AS is_cast
    FROM kernel_name
),
worth AS MATERIALIZED (
    SELECT 1 FROM device_op AS op JOIN named USING (name_id), steady_window
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns AND op.kind <> 'memset' AND EXISTS (SELECT 1 FROM named WHERE is_cast)
    HAVING count(*) FILTER (is_cast) >= greatest(1, count(*) FILTER (is_product))
),
inside AS (
    SELECT device_op_id, source_id, device_id, stream_id, end_ns - op.start_ns AS own_ns, coalesce(is_product, false) AS is_product,
        coalesce(is_cast, false) AS is_cast
    FROM device_op AS op LEFT JOIN named USING (name_id), steady_window, worth
    WHERE op.start_ns >= from_ns AND op.start_ns < until_ns AND op.kind <> 'memset'
),
sequence AS (  -- a run of casts and the operation behind it have one number
    SELECT *, coalesce(sum((NOT is_cast)::INTEGER) OVER (PARTITION BY source_id, device_id, stream_id ORDER BY device_op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS block
    FROM inside
)
SELECT max(device_op_id) FILTER (is_product) AS product_op_id, (sum(own_ns) FILTER (is_product))::BIGINT AS product_ns,
    coalesce(list(device_op_id ORDER BY own_ns DESC) FILTER (is_cast), []) AS cast_op_id, coalesce(list(own_ns ORDER BY own_ns DESC) FILTER (is_cast), []) AS cast_ns
FROM sequence GROUP BY source_id, device_id, stream_id, block
HAVING bool_or(is_product)
ORDER BY product_op_id;
