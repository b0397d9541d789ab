-- half_rate: the time that an fp32 and an fp64 product take on the 16-bit matrix units of the largest device, as shares of theirs.
-- Dense bf16 (fp16 before Ampere) against fp32, by vendor datasheets: B200 2250/75, H100 and H200 989/67, RTX 40 165/83, A10 and RTX 30 70/35
-- (with fp32 accumulation), A100 312/19.5, T4 65/8.1, V100 125/15.7, MI300X 1307/163. Against fp64, on matrix units where they take it: B200
-- 2250/37, B300 2250/1.3, H100 and H200 989/67, A100 312/19.5, V100 125/7.8, MI300X 1307/163; devices not made for it have one 64th (one 32nd
-- before Ampere) of their fp32 rate: RTX 40 165/1.29, RTX 30 71/0.56, T4 65/0.25. Four fifths of the ratio: measured bf16 products reach about
-- 0.8 of the peak, fp32 and fp64 ones nearly all of theirs.
CREATE TABLE half_rate AS
WITH largest AS (
    SELECT vendor, compute_major, compute_minor FROM device ORDER BY memory_bytes DESC NULLS LAST LIMIT 1
),
ratio AS (
    SELECT CASE
        WHEN vendor = 'amd' THEN 8.0
        WHEN compute_major >= 10 THEN 30.0
        WHEN compute_major = 9 THEN 14.8
        WHEN compute_major = 8 AND compute_minor = 0 THEN 16.0
        WHEN compute_major = 8 THEN 2.0
        WHEN compute_major = 7 THEN 8.0
        ELSE 2.0 END AS fp32_ratio,
    CASE
        WHEN vendor = 'amd' THEN 8.0
        WHEN compute_major >= 12 THEN 128.0
        WHEN compute_major >= 10 THEN if(compute_minor = 0, 60.0, 1700.0)
        WHEN compute_major = 9 THEN 14.8
        WHEN compute_major = 8 AND compute_minor = 0 THEN 16.0
        WHEN compute_major = 8 THEN 128.0
        WHEN compute_major = 7 AND compute_minor = 0 THEN 16.0
        WHEN compute_major = 7 THEN 256.0
        ELSE 4.0 END AS fp64_ratio
    FROM largest
)
SELECT (1.0 / greatest(2.0, 0.8 * coalesce((SELECT fp32_ratio FROM ratio), 8.0)))::DOUBLE AS time_share,
    (1.0 / greatest(4.0, 0.8 * coalesce((SELECT fp64_ratio FROM ratio), 16.0)))::DOUBLE AS fp64_time_share;

-- fp32_attention: fp32 products around a softmax in a model whose other products are of 16 bits: attention without a fused kernel widens its
-- operands. The type of the model has nothing to do with them. The product behind the softmax is the first fp32 one of the next twelve
-- operations: where work is reordered, the projection of the values may stand between.
CREATE TABLE fp32_attention AS
WITH mixed AS MATERIALIZED (  -- where no product is narrow, or none of fp32, nothing is told
    SELECT 1 FROM (SELECT DISTINCT precision FROM device_op WHERE family = 'gemm')
    HAVING bool_or(precision = 'fp32') AND bool_or(coalesce(precision NOT IN ('fp32', 'tf32', 'fp64'), true))
),
close AS MATERIALIZED (
    SELECT product_op_id, softmax_op_id FROM softmax_between, mixed WHERE before_count <= 12 AND after_count <= 6
),
pair AS (
    SELECT product_op_id AS device_op_id FROM close
    UNION
    SELECT min(near.device_op_id)
    FROM close JOIN device_op AS softmax ON softmax.device_op_id = softmax_op_id
    CROSS JOIN range(1, 13) AS twelve(place)  -- a join by range would compare every softmax with every operation of its stream
    JOIN device_op AS near ON near.device_op_id = softmax_op_id + place
        AND near.source_id = softmax.source_id AND near.device_id = softmax.device_id AND near.stream_id = softmax.stream_id
    WHERE near.family = 'gemm' AND near.precision = 'fp32'
    GROUP BY softmax_op_id
),
other AS (
    SELECT coalesce(sum(end_ns - start_ns) FILTER (precision IN ('fp32', 'tf32', 'fp64')), 0) AS wide_ns, sum(end_ns - start_ns) AS all_ns
    FROM device_op, mixed WHERE family = 'gemm' AND device_op_id NOT IN (SELECT device_op_id FROM pair)
)
SELECT device_op_id, end_ns - start_ns AS device_ns
FROM pair JOIN device_op USING (device_op_id), other
WHERE precision = 'fp32' AND wide_ns < 0.5 * all_ns
ORDER BY device_op_id;

-- wide_product: fp32 and fp64 products of the window but those of attention. `tile_element_count`: elements of an output tile, as the kernel's name tells
-- them, 0 where it does not; `is_wave`: enough blocks for half of the multiprocessors, and no rows or splits that read more than they compute.
-- `unit_share`, `byte_share`: the time on 16-bit matrix units, and that of half (a quarter) of the bytes, as shares of theirs.
CREATE VIEW wide_product AS
WITH named AS MATERIALIZED (  -- names are few, operations many
    SELECT name_id, coalesce(try_cast(regexp_extract(name, '(\d{2,3})x(\d{2,3})', 1) AS INTEGER)
        * try_cast(regexp_extract(name, '(\d{2,3})x(\d{2,3})', 2) AS INTEGER), 0) AS tile_element_count,
        NOT regexp_matches(lower(name), 'gemv|split_?k') AS is_whole
    FROM kernel_name WHERE precision IN ('fp32', 'fp64')
)
SELECT op.device_op_id, op.start_ns, op.end_ns, op.precision, tile_element_count,
    is_whole AND coalesce(op.grid_blocks, 0) >= 0.5 * coalesce((SELECT max(sm_count) FROM device), 100) AS is_wave,
    CASE op.precision WHEN 'fp64' THEN fp64_time_share ELSE time_share END AS unit_share,
    CASE op.precision WHEN 'fp64' THEN 0.25 ELSE 0.5 END::DOUBLE AS byte_share
FROM device_op AS op JOIN named USING (name_id), steady_window, half_rate
WHERE op.precision IN ('fp32', 'fp64') AND op.start_ns >= from_ns AND op.start_ns < until_ns
    AND op.device_op_id NOT IN (SELECT device_op_id FROM fp32_attention);
