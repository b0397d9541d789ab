-- step: engine steps inside the window, per process. Told by annotation ranges whose name says step, decode, iteration or the like; otherwise by
-- an operation that comes back at regular distances in the sequence of device work. A recording of one or two steps has too few ranges to
-- tell by their number: there the marks of PyTorch's profiler, vLLM and SGLang count, unless what comes back within them exchanges data with the
-- host, is a CUDA graph, or holds many layers itself, as the steps of a `generate` do. Layers and collectives come back too.
-- PyTorch annotates the optimizer in every trace of a training: a step ends with it, and lasts from the end of one to the end of the next.
-- An exchange with the host (a copy up or down) marks a step best: pieces of a micro-batched step follow each other without one.
-- Work belongs to the step that launched it, however late it runs: `host_start_ns` to `host_end_ns` is when the host is in the step. `start_ns` to
-- `end_ns` is how long the step takes: each is when the host is there and all that was launched before is done, so that the steps of a host that
-- runs ahead of the device take the device's time. They are the host's times until 100_usual_step.
-- Reads the relations step_marker (of each process the operation that opens a step, whether it is more than a layer or a collective, whether what it
-- opens is as much as a layer, and the launches that the last step ends with) and sequence_op (all operations of the window) of doctor.case.arrays.markers.
CREATE TABLE _annotated_step AS
WITH opened AS (
    -- a device that still works on what was launched before the recording begins late: steps that were launched meanwhile run in the window
    SELECT source_id, pid, CASE WHEN EXISTS (SELECT 1 FROM window_request) THEN from_ns ELSE least(from_ns, min(called_ns)) END AS opened_ns,
        greatest(max(called_ns) - min(called_ns), 1) AS launching_ns
    FROM sequence_op, steady_window GROUP BY source_id, pid, from_ns
),
told AS (
    SELECT source_id, pid, tid, text.text AS text, name_id, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns,
        starts_with(text.text, 'Optimizer.') AS is_optimizer
    FROM nvtx_range JOIN timeline_source USING (source_id) JOIN text ON text_id = name_id
    WHERE end_ns IS NOT NULL AND range_kind <> 'mark'
        AND regexp_matches(lower(text.text), 'step|decode|iteration|forward|execute_|generate_token|run_batch')
),
-- several optimizers of one kind step one after the other, with no pass between them: they end one step
optimized AS (
    SELECT *, count(*) FILTER (since_ns IS NULL OR since_ns >= 0.2 * longest_ns) OVER (PARTITION BY source_id, pid, tid, name_id ORDER BY start_ns) AS place FROM (
        SELECT *, max(since_ns) OVER (PARTITION BY source_id, pid, tid, name_id) AS longest_ns FROM (
            SELECT *, start_ns - lag(end_ns) OVER (PARTITION BY source_id, pid, tid, name_id ORDER BY start_ns) AS since_ns FROM told WHERE is_optimizer))
),
ranged AS (
    SELECT source_id, pid, tid, text, start_ns, end_ns FROM told WHERE NOT is_optimizer
    UNION ALL
    SELECT source_id, pid, tid, text, lag(end_ns) OVER (PARTITION BY source_id, pid, tid, text ORDER BY place), end_ns
    FROM (SELECT source_id, pid, tid, text, place, max(end_ns) AS end_ns FROM optimized GROUP BY ALL)
),
named AS (
    SELECT source_id, pid, tid, start_ns, end_ns, launching_ns, regexp_replace(text, '\d+', '#', 'g') AS name,
        -- a step begins on the host, with what it schedules: the first launch, and with it the window, comes later
        start_ns >= opened_ns - if(EXISTS (SELECT 1 FROM window_request), 1000000, greatest(1000000, (end_ns - start_ns) / 4))
            AND start_ns < until_ns AS is_inside,
        regexp_matches(text, '^(ProfilerStep#|execute_|step\[)') AND end_ns > from_ns AND start_ns < until_ns AS is_mark
    FROM ranged JOIN opened USING (source_id, pid), steady_window
    WHERE start_ns IS NOT NULL
),
spaced AS (
    SELECT *, coalesce(start_ns < lag(end_ns) OVER (PARTITION BY source_id, pid, tid, name ORDER BY start_ns), false) AS is_overlapping FROM named
),
candidate AS (
    -- A window that somebody asked for may hold one step: there the whole recording tells that it is one. A host that runs ahead is done with
    -- all steps while the device is at the first: there they cover the time in which it launches.
    SELECT source_id, pid, tid, name, count(*) FILTER (is_inside) AS range_count,
        sum(end_ns - start_ns) FILTER (is_inside) / any_value(if(launching_ns < 0.5 * (until_ns - from_ns), launching_ns, until_ns - from_ns)) AS covered_share, 0.15 AS least_share, false AS is_mark
    FROM spaced, steady_window
    WHERE is_inside OR EXISTS (SELECT 1 FROM window_request)
    GROUP BY ALL HAVING count(*) >= 3 AND NOT bool_or(is_overlapping)
    UNION ALL
    -- the host may be done with a marked step long before the device: it holds what was launched in it
    SELECT source_id, pid, tid, name, any_value(mark_count), count(*) / any_value(op_count), 0.5, true
    FROM (SELECT *, count(*) OVER (PARTITION BY source_id, pid, tid, name) AS mark_count,
            bool_or(is_overlapping) OVER (PARTITION BY source_id, pid, tid, name) AS is_any_overlapping FROM spaced WHERE is_mark)
    JOIN sequence_op USING (source_id, pid) JOIN (SELECT source_id, pid, count(*) AS op_count FROM sequence_op GROUP BY ALL) USING (source_id, pid)
    WHERE mark_count < 3 AND NOT is_any_overlapping AND called_ns >= start_ns AND called_ns < end_ns
        AND (source_id, pid) NOT IN (SELECT source_id, pid FROM step_marker WHERE is_step AND NOT is_layer)
    GROUP BY source_id, pid, tid, name
),
chosen AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid ORDER BY starts_with(name, 'Optimizer.'), is_mark, range_count, covered_share DESC, name) AS preference
    FROM candidate WHERE covered_share >= least_share
)
SELECT spaced.source_id, spaced.pid, spaced.start_ns, spaced.end_ns, 'nvtx:' || spaced.name AS chosen_by, chosen.is_mark
FROM spaced JOIN chosen USING (source_id, pid, tid, name), steady_window
WHERE preference = 1 AND if(chosen.is_mark, spaced.is_mark, is_inside);

-- A marked step begins on the host: what that does before its first launch (it decodes a video, builds a batch) is part of the step, and where the
-- recording holds one or two steps there is no other that shows it. Ranks mark their steps at different times: there nothing is moved.
UPDATE steady_window SET from_ns = first_mark.start_ns, chosen_by = chosen_by || ', from the start of the marked step'
FROM (SELECT min(start_ns) AS start_ns FROM _annotated_step WHERE is_mark HAVING count(DISTINCT (source_id, pid)) = 1) AS first_mark
WHERE from_ns - first_mark.start_ns > 0.05 * (until_ns - from_ns) AND NOT contains(chosen_by, ' cut') AND NOT EXISTS (SELECT 1 FROM window_request);

CREATE TABLE step AS
WITH marked AS (
    SELECT source_id, pid, called_ns AS start_ns, is_step, is_layer, last_called_ns, next_called_ns FROM sequence_op JOIN step_marker USING (source_id, pid, signature)
),
ended AS (
    SELECT source_id, pid, is_step, is_layer, start_ns, last_called_ns, next_called_ns, lead(start_ns) OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS end_ns FROM marked
),
usual AS (
    SELECT source_id, pid, median(end_ns - start_ns) AS length_ns FROM ended GROUP BY source_id, pid
),
structural AS (
    SELECT source_id, pid, start_ns,
        -- no step follows the last one, and what the host does after its launches is not seen: it is as long as most, and holds as many launches
        coalesce(ended.end_ns, least(next_called_ns, greatest(last_called_ns + 1, (start_ns + length_ns)::BIGINT,
            CASE WHEN until_ns - start_ns <= 1.5 * length_ns THEN until_ns END))) AS end_ns,
        -- a layer that the host waits in is still one
        CASE WHEN is_layer THEN 'repeating work, maybe layers of one attention each' WHEN is_step THEN 'repeating work'
            ELSE 'repeating work, maybe layers' END AS chosen_by
    FROM ended JOIN usual USING (source_id, pid), steady_window
    WHERE (source_id, pid) NOT IN (SELECT source_id, pid FROM _annotated_step)
),
both_kinds AS (
    SELECT source_id, pid, if(is_mark, greatest(start_ns, from_ns), start_ns) AS start_ns, end_ns, _annotated_step.chosen_by FROM _annotated_step, steady_window
    UNION ALL SELECT * FROM structural
),
spread AS (
    SELECT source_id, pid, min(start_ns) AS first_ns, max(end_ns) AS last_ns, count(*) AS step_count, median(end_ns - start_ns) AS length_ns,
        any_value(chosen_by) AS chosen_by
    FROM both_kinds GROUP BY source_id, pid HAVING count(*) > 1
),
led AS MATERIALIZED (  -- by about as much time as a step takes
    SELECT spread.*, from_ns FROM spread, steady_window WHERE first_ns - from_ns BETWEEN 0.5 * length_ns AND 1.5 * length_ns
),
later AS (
    SELECT DISTINCT source_id, pid, signature, true AS is_known FROM sequence_op JOIN led USING (source_id, pid) WHERE called_ns >= first_ns
),
before_first AS (
    SELECT source_id, pid, count(*) FILTER (called_ns < first_ns) AS before_count,
        count(*) FILTER (called_ns < first_ns AND is_known) AS known_count,
        count(*) FILTER (called_ns >= first_ns AND called_ns < last_ns) / any_value(step_count) AS usual_count
    FROM sequence_op JOIN led USING (source_id, pid) LEFT JOIN later USING (source_id, pid, signature) GROUP BY source_id, pid
),
-- a recording that opens within a step, or a marker at its end, leaves the first one without a start: what comes before all other steps is one
-- too where it is as long, as much, and the same: a prefill may have as many kernels, but of other sizes
opening AS (
    SELECT source_id, pid, from_ns AS start_ns, first_ns AS end_ns, chosen_by
    FROM led JOIN before_first USING (source_id, pid)
    WHERE abs(before_count - usual_count) <= 0.25 * usual_count AND known_count >= 0.75 * before_count
)
SELECT row_number() OVER (ORDER BY start_ns, source_id, pid) - 1 AS step_id, source_id, pid, start_ns, end_ns, chosen_by,
    start_ns AS host_start_ns, end_ns AS host_end_ns
FROM (SELECT * FROM both_kinds UNION ALL SELECT * FROM opening)
WHERE end_ns > start_ns
ORDER BY step_id;

-- What a process does once, before its steps, is not what it spends its life in. Where that takes a quarter of the window or more, and no more
-- than half, the window opens with the first step. Device work that still queues from before (a prefill) stays inside.
UPDATE steady_window SET from_ns = first_step.start_ns, chosen_by = chosen_by || ', from the first step'
FROM (SELECT min(start_ns) AS start_ns FROM step) AS first_step
WHERE first_step.start_ns - from_ns BETWEEN 0.25 * (until_ns - from_ns) AND 0.5 * (until_ns - from_ns)
    AND NOT EXISTS (SELECT 1 FROM window_request);

DROP TABLE _annotated_step;
