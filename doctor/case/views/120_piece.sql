-- piece: forward passes that a step is cut into. The rarest matrix product of a step (the language-model head) tells how many there are; the
-- layers repeat too, but they are never the rarest. A step is cut where that product comes m >= 2 times and the work between two of them is
-- the same, kernel by kernel.
CREATE TABLE _placed_op AS
SELECT *, row_number() OVER (PARTITION BY step_id ORDER BY device_op_id) AS place_in_step FROM _step_op;

CREATE TABLE _cut AS
WITH product AS (
    SELECT step_id, signature, count(*) AS product_count, min(place_in_step) AS first_place
    FROM _placed_op WHERE family IN ('gemm', 'graph') GROUP BY step_id, signature
),
rarest AS (
    SELECT step_id, arg_min(signature, (product_count, -first_place)) AS signature, min(product_count) AS piece_count
    FROM product GROUP BY step_id
),
marked AS (
    SELECT step_id, place_in_step, piece_count,
        place_in_step - lag(place_in_step) OVER (PARTITION BY step_id ORDER BY place_in_step) AS distance
    FROM _placed_op JOIN rarest USING (step_id, signature)
    WHERE piece_count >= 2
)
SELECT step_id, any_value(piece_count) AS piece_count, median(distance)::BIGINT AS distance
FROM marked GROUP BY step_id HAVING median(distance) > 20;

-- piece_step: steps whose sequence of operations repeats at the distance of a piece.
CREATE TABLE piece_step AS
WITH compared AS (
    SELECT step_id, signature = lag(signature, distance) OVER (PARTITION BY step_id ORDER BY place_in_step) AS is_same
    FROM (SELECT step_id, signature, place_in_step, any_value(distance) OVER (PARTITION BY step_id) AS distance FROM _placed_op JOIN _cut USING (step_id))
),
alike AS (
    SELECT step_id, avg(is_same::INTEGER) AS same_share FROM compared WHERE is_same IS NOT NULL GROUP BY step_id
)
SELECT step_id, piece_count, distance, same_share
FROM _cut JOIN alike USING (step_id)
WHERE same_share >= 0.9
ORDER BY step_id;

-- piece_op: the operations of cut steps, with the piece each belongs to (0 is the first)
CREATE TABLE piece_op AS
SELECT device_op_id, step_id, least((place_in_step - 1) // distance, piece_count - 1) AS piece, piece_count
FROM _placed_op JOIN piece_step USING (step_id)
ORDER BY device_op_id;

DROP TABLE _cut;
DROP TABLE _placed_op;
DROP TABLE _step_op;
