-- row_loop: rows of a batch that are handled one after the other: runs of eight or more pieces of a usual step that each end with a wait and launch
-- the same few operations, two at least, none of them a product, an attention or a collective. Layers and experts hold products; what is left are loops of Python over
-- rows, such as sampling each sequence by itself. row_loop_call: the calls of these pieces; all pieces but the first of a run are repeated.
CREATE TABLE row_loop_call AS
WITH waiting AS (  -- a run of eight pieces waits eight times within a step: most steps end here
    SELECT source_id, pid, tid, step_id FROM thread_call WHERE step_kind = 'usual' AND call_class = 'sync'
    GROUP BY source_id, pid, tid, step_id HAVING count(*) >= 8
),
numbered AS (
    SELECT host_call_id, source_id, pid, tid, step_id, start_ns, call_class, is_launching,
        coalesce(sum((call_class = 'sync')::INTEGER) OVER (PARTITION BY source_id, pid, tid ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
            AS piece
    FROM thread_call SEMI JOIN waiting USING (source_id, pid, tid, step_id) WHERE step_kind = 'usual'
),
piece AS (
    SELECT numbered.source_id, numbered.pid, numbered.tid, numbered.step_id, piece, min(numbered.start_ns) AS start_ns, count(device_op_id) AS op_count,
        bool_or(family IN ('gemm', 'attention', 'moe', 'collective', 'graph')) AS is_model,
        hash(list(name_id ORDER BY numbered.start_ns, device_op_id)) AS signature
    FROM numbered LEFT JOIN launch USING (host_call_id) LEFT JOIN device_op USING (device_op_id)
    GROUP BY ALL
    HAVING bool_or(call_class = 'sync')
),
placed AS (
    SELECT *, row_number() OVER step - row_number() OVER (PARTITION BY source_id, pid, tid, step_id, signature ORDER BY start_ns) AS run
    FROM piece WINDOW step AS (PARTITION BY source_id, pid, tid, step_id ORDER BY start_ns)
),
counted AS (
    SELECT *, count(*) OVER run AS piece_count, row_number() OVER (run ORDER BY start_ns) AS place
    FROM placed WHERE op_count BETWEEN 2 AND 32 AND NOT coalesce(is_model, false)
    WINDOW run AS (PARTITION BY source_id, pid, tid, step_id, signature, run)
)
SELECT numbered.host_call_id, numbered.step_id, dense_rank() OVER (ORDER BY counted.source_id, counted.pid, counted.tid, counted.step_id, signature, run)
    AS row_loop_id, piece_count, op_count, place > 1 AS is_repeated
FROM counted JOIN numbered USING (source_id, pid, tid, step_id, piece)
WHERE piece_count >= 8
ORDER BY host_call_id;

CREATE TABLE row_loop AS
SELECT step_id, any_value(piece_count) AS piece_count, any_value(op_count) AS op_count
FROM row_loop_call GROUP BY step_id, row_loop_id
ORDER BY step_id, piece_count;
