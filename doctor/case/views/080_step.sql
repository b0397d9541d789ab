-- step: engine steps inside the window, per process. Told by annotation ranges whose name says step, decode, iteration or the like; otherwise by
-- an operation that comes back at regular distances in the sequence of device work.
-- An exchange with the host (a copy up or down) marks a step best: pieces of a micro-batched step follow each other without one.
CREATE TABLE _op_sequence AS
SELECT op.source_id, op.pid, op.device_op_id, op.start_ns, op.family,
    -- work belongs to the step that launched it, however late it runs
    coalesce(called_ns, op.start_ns) AS called_ns,
    hash(op.kind, op.name_id, op.grid_blocks, op.copy_kind, op.size_bytes) AS signature,
    coalesce(op.kind = 'memcpy' AND op.copy_kind IN ('htod', 'dtoh'), false) AS is_exchange,
    row_number() OVER (PARTITION BY op.source_id, op.pid ORDER BY op.device_op_id) AS place
FROM device_op AS op
LEFT JOIN _launched USING (device_op_id), steady_window
WHERE op.start_ns >= from_ns AND op.start_ns < until_ns;

-- _marker: operations that come back at least three times, at regular distances, over a seventh of the window
CREATE TABLE _marker AS
WITH spaced AS (
    SELECT *, place - lag(place) OVER (PARTITION BY source_id, pid, signature ORDER BY place) AS distance FROM _op_sequence
),
counted AS (
    SELECT source_id, pid, signature, count(*) AS occurrence_count, median(distance) AS usual_distance, bool_or(is_exchange) AS is_exchange,
        any_value(family) AS family, min(start_ns) AS first_ns, max(start_ns) AS last_ns, max(place) - min(place) AS place_span
    FROM spaced GROUP BY source_id, pid, signature HAVING count(*) >= 3
),
total AS (
    SELECT source_id, pid, max(place) AS op_count FROM _op_sequence GROUP BY source_id, pid
),
regular AS (
    SELECT spaced.source_id, spaced.pid, signature,
        avg((abs(distance - usual_distance) <= greatest(2, 0.1 * usual_distance))::INTEGER) AS regular_share
    FROM spaced JOIN counted USING (source_id, pid, signature)
    WHERE distance IS NOT NULL
    GROUP BY spaced.source_id, spaced.pid, signature
)
SELECT source_id, pid, signature, occurrence_count, is_exchange, family, first_ns
FROM counted
JOIN regular USING (source_id, pid, signature)
JOIN total USING (source_id, pid), steady_window
WHERE regular_share >= 0.8 AND usual_distance >= 2
    AND greatest((last_ns - first_ns) / (until_ns - from_ns), place_span / op_count) >= 0.15;

-- _rarest_gemm: how often the rarest regular matrix product comes: the language-model head runs once a forward pass
CREATE TABLE _rarest_gemm AS
SELECT source_id, pid, min(occurrence_count) AS occurrence_count FROM _marker WHERE family IN ('gemm', 'graph') GROUP BY source_id, pid;

CREATE TABLE _step_marker AS
SELECT source_id, pid, signature
FROM (
    SELECT _marker.source_id, _marker.pid, signature,
        row_number() OVER (PARTITION BY _marker.source_id, _marker.pid ORDER BY
            -- an exchange at every forward pass beats a rarer event, such as one block table in many steps
            (_marker.is_exchange AND abs(_marker.occurrence_count - _rarest_gemm.occurrence_count) <= 0.15 * _rarest_gemm.occurrence_count + 1) DESC NULLS LAST,
            _marker.occurrence_count, _marker.is_exchange DESC, _marker.first_ns) AS preference
    FROM _marker LEFT JOIN _rarest_gemm USING (source_id, pid)
)
WHERE preference = 1;

CREATE TABLE _annotated_step AS
WITH named AS (
    SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns, regexp_replace(text.text, '\d+', '#', 'g') AS name,
        start_ns + shift_ns >= from_ns - 1000000 AND start_ns + shift_ns < until_ns AS is_inside
    FROM nvtx_range JOIN timeline_source USING (source_id) JOIN text ON text_id = name_id, steady_window
    WHERE end_ns IS NOT NULL AND range_kind <> 'mark'
        AND regexp_matches(lower(text.text), 'step|decode|iteration|forward|execute_|generate_token|run_batch')
        AND (source_id, pid) IN (SELECT source_id, pid FROM device_op)
),
spaced AS (
    SELECT *, coalesce(start_ns < lag(end_ns) OVER (PARTITION BY source_id, pid, tid, name ORDER BY start_ns), false) AS is_overlapping FROM named
),
candidate AS (
    -- a window that somebody asked for may hold one step: there the whole recording tells that it is one
    SELECT source_id, pid, tid, name, count(*) FILTER (is_inside) AS range_count, sum(end_ns - start_ns) FILTER (is_inside) AS covered_ns
    FROM spaced
    WHERE is_inside OR EXISTS (SELECT 1 FROM window_request)
    GROUP BY ALL HAVING count(*) >= 3 AND NOT bool_or(is_overlapping)
),
chosen AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid ORDER BY range_count, covered_ns DESC, name) AS preference
    FROM candidate, steady_window WHERE covered_ns >= 0.15 * (until_ns - from_ns)
)
SELECT spaced.source_id, spaced.pid, spaced.start_ns, spaced.end_ns, 'nvtx:' || spaced.name AS chosen_by
FROM spaced JOIN chosen USING (source_id, pid, tid, name)
WHERE preference = 1 AND is_inside;

CREATE TABLE step AS
WITH marked AS (
    SELECT source_id, pid, called_ns AS start_ns FROM _op_sequence JOIN _step_marker USING (source_id, pid, signature)
),
ended AS (
    SELECT source_id, pid, start_ns, lead(start_ns) OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS end_ns FROM marked
),
usual AS (
    SELECT source_id, pid, median(end_ns - start_ns) AS length_ns FROM ended GROUP BY source_id, pid
),
structural AS (
    SELECT source_id, pid, start_ns,
        coalesce(ended.end_ns, CASE WHEN until_ns - start_ns <= 1.5 * length_ns THEN until_ns
            ELSE (start_ns + length_ns)::BIGINT END) AS end_ns,
        'repeating work' AS chosen_by
    FROM ended JOIN usual USING (source_id, pid), steady_window
    WHERE (source_id, pid) NOT IN (SELECT source_id, pid FROM _annotated_step)
),
both_kinds AS (
    SELECT * FROM _annotated_step UNION ALL SELECT * FROM structural
)
SELECT row_number() OVER (ORDER BY start_ns, source_id, pid) - 1 AS step_id, source_id, pid, start_ns, end_ns, chosen_by
FROM both_kinds
WHERE end_ns > start_ns
ORDER BY step_id;

-- What a process does once, before its steps, is not what it spends its life in. Where that takes a quarter of the window or more, and no more
-- than half, the window opens with the first step. Device work that still queues from before (a prefill) stays inside.
UPDATE steady_window SET from_ns = first_step.start_ns, chosen_by = chosen_by || ', from the first step'
FROM (SELECT min(start_ns) AS start_ns FROM step) AS first_step
WHERE first_step.start_ns - from_ns BETWEEN 0.25 * (until_ns - from_ns) AND 0.5 * (until_ns - from_ns)
    AND NOT EXISTS (SELECT 1 FROM window_request);

DROP TABLE _launched;
DROP TABLE _annotated_step;
DROP TABLE _step_marker;
DROP TABLE _rarest_gemm;
DROP TABLE _marker;
