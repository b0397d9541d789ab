-- softmax_between: softmax kernels between two matrix products that follow each other on a stream, with nothing between that samples, routes or
-- fuses attention: how many kernels after the one product (`product_op_id`) and before the next (`after_op_id`).
-- between_products: all work between such products, copies and memory sets included.
-- before_products: what only lays out operands and masks for such a product, directly before it on its stream: a fused kernel takes strides,
-- grouped heads and a causal mask as they are.
-- Reads the relations softmax and inner_kernel (doctor.case.arrays.attention).
CREATE TABLE softmax_between AS
WITH safe_name AS MATERIALIZED (
    SELECT name_id, contains(name, 'isneginf') AS is_test FROM kernel_name
    WHERE regexp_matches(name, 'isneginf|and_kernel|where_kernel|FillFunctor') AND EXISTS (SELECT 1 FROM kernel_name WHERE contains(name, 'isneginf'))
),
safe AS (  -- PyTorch's softmax for rows that are wholly masked: tests and a choice behind it, each split in two for large scores
    SELECT product_op_id, count(*) AS safe_count
    FROM inner_kernel JOIN device_op USING (device_op_id) JOIN safe_name USING (name_id)
    GROUP BY product_op_id HAVING bool_or(is_test)
)
SELECT product_op_id, before_count, after_count - coalesce(safe_count, 0) AS after_count, softmax_op_id, after_op_id
FROM softmax LEFT JOIN safe USING (product_op_id)
ORDER BY softmax_op_id;

CREATE TABLE between_products AS
SELECT device_op_id, product_op_id FROM inner_kernel
ORDER BY device_op_id;

CREATE TABLE before_products AS
WITH near AS (
    SELECT product_op_id, product_op_id - distance AS device_op_id, distance
    FROM (SELECT DISTINCT product_op_id FROM softmax_between), range(1, 9) AS near(distance)
),
layout_name AS MATERIALIZED (  -- names are few, operations many
    SELECT text_id FROM text WHERE regexp_matches(lower(text), 'direct_copy|copy_kernel|comparefunctor|bitwise_not|masked_fill|triu|tril|arange')
),
told AS (
    SELECT near.*, op.kind = 'memset' OR coalesce(op.copy_kind = 'dtod', false) OR layout_name.text_id IS NOT NULL AS is_layout
    FROM near JOIN device_op AS op USING (device_op_id) JOIN device_op AS product ON product.device_op_id = product_op_id
        LEFT JOIN layout_name ON layout_name.text_id = op.name_id
    WHERE op.source_id = product.source_id AND op.device_id = product.device_id AND op.stream_id = product.stream_id
),
seen AS (
    SELECT product_op_id, list(distance) FILTER (is_layout) AS distances, coalesce(min(distance) FILTER (NOT is_layout), 9) AS other_distance
    FROM told GROUP BY product_op_id
)
SELECT product_op_id - distance AS device_op_id, product_op_id
FROM (SELECT product_op_id, unnest(distances) AS distance, other_distance FROM seen)
WHERE distance < other_distance
ORDER BY device_op_id;
