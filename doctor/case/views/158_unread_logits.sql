-- unread_logits: matrix products of which hardly anything is read, as the output layer's over every position of a prompt where only the last token
-- is sampled. No shapes are needed: it is by far the longest product (two and a half times the next longest), comes once among ten or more, and of
-- the work behind it, up to the next product, something picks a token or takes results down, and nothing lasts half as long as what a layer does
-- to its own activations, element by element: the logits of as many tokens are several times as large. In a decode step all of that is short,
-- and nothing is told: a layer's element-wise work has to last 10 us.
CREATE TABLE unread_logits AS
WITH product AS (
    SELECT op.source_id, op.device_id, count(*) AS product_count, arg_max(device_op_id, end_ns - start_ns, 1001) AS longest
    FROM device_op AS op JOIN kernel_name USING (name_id), steady_window
    WHERE start_ns >= from_ns AND start_ns < until_ns AND kind = 'kernel' AND op.family = 'gemm'
        AND NOT regexp_matches(lower(name), 'fprop|dgrad|wgrad|convol|_conv|winograd|scudnn')
    GROUP BY op.source_id, op.device_id
),
ordered AS (
    SELECT longest.*, stream_id, end_ns - start_ns AS length_ns
    FROM (SELECT source_id, device_id, product_count, unnest(longest) AS device_op_id, generate_subscripts(longest, 1) AS place FROM product) AS longest
    JOIN device_op USING (device_op_id)
),
stepped AS (
    SELECT *, length_ns / greatest(lead(length_ns) OVER (PARTITION BY source_id, device_id ORDER BY place), 1) AS step_down FROM ordered
),
head_count AS (
    SELECT source_id, device_id, min(place) AS head_count FROM stepped WHERE step_down >= 2.5 AND place BETWEEN 2 AND product_count / 10
    GROUP BY source_id, device_id
),
head AS (
    SELECT stepped.* FROM stepped JOIN head_count USING (source_id, device_id) WHERE place <= head_count
),
usual AS (  -- half of the time of element-wise kernels is in kernels that are longer
    SELECT source_id, device_id, min(length_ns) FILTER (passed_ns >= 0.5 * all_ns) AS length_ns FROM (
        SELECT source_id, device_id, length_ns, sum(sum_ns) OVER (PARTITION BY source_id, device_id) AS all_ns,
            sum(sum_ns) OVER (PARTITION BY source_id, device_id ORDER BY length_ns) AS passed_ns
        FROM (SELECT source_id, device_id, end_ns - start_ns AS length_ns, sum(end_ns - start_ns) AS sum_ns FROM device_op, steady_window
            WHERE start_ns >= from_ns AND start_ns < until_ns AND family = 'elementwise' GROUP BY source_id, device_id, length_ns)
        SEMI JOIN head_count USING (source_id, device_id))
    GROUP BY source_id, device_id
),
behind AS (
    SELECT head.device_op_id, place_behind, near.family, near.end_ns - near.start_ns AS length_ns,
        near.family IN ('sampling', 'softmax', 'reduction') OR coalesce(near.copy_kind = 'dtoh', false) AS is_picking
    FROM head CROSS JOIN range(1, 17) AS sixteen(place_behind)
    JOIN device_op AS near ON near.device_op_id = head.device_op_id + place_behind
        AND near.source_id = head.source_id AND near.device_id = head.device_id AND near.stream_id = head.stream_id
),
reading AS (  -- up to what picks: behind that is the next pass
    SELECT device_op_id, max(length_ns) FILTER (place_behind <= picked_at) AS longest_ns
    FROM (SELECT *, min(place_behind) FILTER (is_picking) OVER head AS picked_at, min(place_behind) FILTER (family = 'gemm') OVER head AS next_product
        FROM behind WINDOW head AS (PARTITION BY device_op_id))
    WHERE picked_at < coalesce(next_product, 17)
    GROUP BY device_op_id
)
SELECT head.device_op_id, head.source_id, head.device_id, head.length_ns, reading.longest_ns, usual.length_ns AS usual_ns
FROM head JOIN reading USING (device_op_id) JOIN usual USING (source_id, device_id)
WHERE usual.length_ns >= 10000 AND reading.longest_ns <= 0.5 * usual.length_ns
ORDER BY head.device_op_id;
