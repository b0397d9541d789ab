-- lasting_stack: stacks whose blocks, made while the history was recorded, are alive at its end, by what they hold; a leak is among the first. Where no
-- stack was recorded, blocks of one size stand for one. `share_of_history` is small where each block takes the place of a smaller one.
CREATE TABLE lasting_stack AS
WITH span AS (
    SELECT source_id, device_id, min(time_ns) AS start_ns, max(time_ns) AS end_ns FROM allocator_step GROUP BY ALL
)
SELECT block.source_id, block.device_id, text AS stack, count(*) AS block_count, sum(size_bytes)::BIGINT AS held_bytes,
    (max(allocated_ns) - min(allocated_ns)) / nullif(max(end_ns) - min(start_ns), 0) AS share_of_history
FROM allocator_block AS block JOIN span USING (source_id, device_id) LEFT JOIN text ON text_id = stack_id
WHERE block_state <> 'inactive' AND allocated_ns >= start_ns
GROUP BY block.source_id, block.device_id, text, CASE WHEN text IS NULL THEN size_bytes END
ORDER BY held_bytes DESC, stack;

-- recorded_pass: for each device's history, whether all that repeats in it lies within one call of a module, such as the layers of one forward pass:
-- of the function that holds the repeated work, as many lines were run once (embedding, last norm, head) as again and again. In a loop over steps
-- every line of the model comes back with each step. `pass_name` is that function; a history without stacks has no row.
CREATE TABLE recorded_pass AS
WITH made AS (
    SELECT source_id, device_id, stack_id, row_number() OVER (PARTITION BY source_id, device_id ORDER BY step_id) AS place,
        count(*) OVER (PARTITION BY source_id, device_id) AS alloc_count
    FROM allocator_step WHERE action = 'alloc'
),
seen AS (
    SELECT source_id, device_id, text, count(*) AS made_count,
        count(*) >= 5 AND (max(place) - min(place)) / any_value(alloc_count) >= 0.5 AS is_repeated
    FROM made JOIN text ON text_id = stack_id GROUP BY source_id, device_id, text
),
frame AS (
    SELECT source_id, device_id, made_count, is_repeated, frames[place] AS frame, frames[place + 1:place + 2] AS callers
    FROM (SELECT *, string_split(text, ' < ') AS frames, unnest(range(1, len(string_split(text, ' < ')) + 1)) AS place FROM seen)
),
line AS (
    SELECT source_id, device_id, regexp_extract(frame, '^([^(]+\([^:)]+)', 1) AS function, callers, frame, bool_or(is_repeated) AS is_repeated,
        coalesce(sum(made_count) FILTER (is_repeated), 0) AS repeated_count
    FROM frame WHERE regexp_matches(frame, '^(forward\w*|\w+_forward|__call__|call|apply) \(')
    GROUP BY ALL
),
pass AS (
    SELECT source_id, device_id, function, callers, sum(repeated_count) AS repeated_count,
        count(*) FILTER (is_repeated) AS repeated_line_count, count(*) FILTER (NOT is_repeated) AS once_line_count
    FROM line GROUP BY ALL
),
whole AS (
    SELECT source_id, device_id, sum(made_count) FILTER (is_repeated) AS repeated_count FROM seen GROUP BY ALL
)
SELECT whole.source_id, whole.device_id, any_value(function || ')') AS pass_name, whole.repeated_count IS NULL OR count(function) > 0 AS is_one_pass
FROM whole LEFT JOIN pass ON pass.source_id = whole.source_id AND pass.device_id IS NOT DISTINCT FROM whole.device_id AND repeated_line_count > 0
    AND once_line_count >= repeated_line_count AND pass.repeated_count >= 0.8 * whole.repeated_count
GROUP BY whole.source_id, whole.device_id, whole.repeated_count
ORDER BY whole.source_id, whole.device_id;

-- memory_trend: whether memory rises steadily. A series is cut into 40 pieces of equally many entries and the least of each piece is taken, which is
-- the level between steps; the first fifth is warm-up. `series` says what was measured: allocator (snapshot history), profiler (events of a trace),
-- printed (what a program printed of it; a line a step, so that eight of them are enough, and `is_by_length` where they go with the tokens of the sequence),
-- process (a process on a device), device, host (resident memory of a process). `freed_share` tells a loop from loading: frees against allocations.
-- `is_one_pass` tells growth within one pass of a model: of an allocator's history by its stacks, of a trace by its steps; unknown for the others.
CREATE TABLE memory_trend AS
WITH series AS (
    SELECT 'allocator' AS series, source_id, device_id, NULL::BIGINT AS pid, step_id AS place, time_ns, allocated_bytes AS level_bytes
    FROM allocator_step WHERE action IN ('alloc', 'free')
    UNION ALL
    SELECT 'profiler', source_id, device_id, pid, row_number() OVER (PARTITION BY source_id, device_id, pid ORDER BY time_ns), time_ns, allocated_bytes
    FROM allocator_event WHERE allocated_bytes IS NOT NULL AND device_id IS NOT NULL
    UNION ALL
    SELECT 'printed', source_id, NULL, NULL, step_id, NULL, allocated_bytes FROM allocator_level WHERE allocated_bytes IS NOT NULL
    UNION ALL
    SELECT 'process', source_id, device_id, pid, look_id, time_ns, memory_bytes FROM gpu_process WHERE memory_bytes IS NOT NULL
    UNION ALL
    SELECT 'device', source_id, device_id, NULL, look_id, time_ns, memory_used_bytes FROM gpu_sample WHERE memory_used_bytes IS NOT NULL
    UNION ALL
    SELECT 'host', source_id, NULL, pid, row_number() OVER (PARTITION BY source_id, pid ORDER BY time_ns), time_ns, resident_bytes
    FROM host_process WHERE resident_bytes IS NOT NULL AND time_ns IS NOT NULL
),
piece AS (
    SELECT *, ntile(40) OVER (PARTITION BY series, source_id, device_id, pid ORDER BY place) AS piece FROM series
),
level AS (
    SELECT series, source_id, device_id, pid, piece, min(level_bytes) AS level_bytes, min(time_ns) AS start_ns, max(time_ns) AS end_ns
    FROM piece GROUP BY ALL
),
warm AS (
    SELECT *, count(*) OVER (PARTITION BY series, source_id, device_id, pid) AS pieces FROM level
)
SELECT series, source_id, device_id, pid, count(*) AS piece_count, regr_r2(level_bytes, piece) AS fit_share,
    (regr_slope(level_bytes, piece) * (max(piece) - min(piece)))::BIGINT AS growth_bytes,
    min(level_bytes)::BIGINT AS least_bytes, max(level_bytes)::BIGINT AS most_bytes, (max(end_ns) - min(start_ns))::BIGINT AS span_ns,
    any_value(freed_share) AS freed_share,
    CASE series WHEN 'allocator' THEN any_value(is_one_pass)
        WHEN 'profiler' THEN coalesce(any_value(step_count), 0) < 3 END AS is_one_pass,
    series = 'printed' AND any_value(is_by_length) AS is_by_length
FROM warm LEFT JOIN (
    SELECT 'allocator' AS series, source_id, device_id,
        count(*) FILTER (action = 'free') / nullif(count(*) FILTER (action = 'alloc'), 0) AS freed_share
    FROM allocator_step GROUP BY ALL
) USING (series, source_id, device_id) LEFT JOIN recorded_pass USING (source_id, device_id)
    LEFT JOIN (SELECT source_id, count(*) AS step_count FROM usual_step GROUP BY source_id) USING (source_id)
    LEFT JOIN (
        SELECT source_id, coalesce(corr(allocated_bytes, token_count) > 0.9 AND max(token_count) >= 1.5 * min(token_count), false) AS is_by_length
        FROM allocator_level GROUP BY source_id
    ) USING (source_id)
WHERE piece > pieces / 5
GROUP BY series, source_id, device_id, pid HAVING count(*) >= CASE series WHEN 'printed' THEN 6 ELSE 16 END
ORDER BY series, source_id, device_id, pid;

-- memory_spike: the highest level of the allocator against the level that memory falls back to, and the stack of the largest block made just before
-- the peak. A spike is short and leaves nothing behind; a cache stays.
CREATE TABLE memory_spike AS
WITH level AS (
    SELECT *, ntile(40) OVER (PARTITION BY source_id, device_id ORDER BY step_id) AS piece,
        max(allocated_bytes) OVER (PARTITION BY source_id, device_id) AS peak_bytes
    FROM allocator_step WHERE action IN ('alloc', 'free')
),
piece AS (
    SELECT source_id, device_id, piece, min(allocated_bytes) AS least_bytes, max(allocated_bytes) AS most_bytes, any_value(peak_bytes) AS peak_bytes
    FROM level GROUP BY ALL
),
base AS (
    SELECT source_id, device_id, median(least_bytes) AS base_bytes, arg_max(least_bytes, piece) AS end_bytes,
        arg_min(least_bytes, piece) AS first_bytes, count(*) AS piece_count
    FROM piece GROUP BY ALL
),
high AS (
    SELECT level.source_id, level.device_id, base_bytes, end_bytes, first_bytes, peak_bytes, piece_count, count(*) AS step_count,
        count(*) FILTER (allocated_bytes > base_bytes + 0.5 * (peak_bytes - base_bytes)) AS high_count,
        min(step_id) FILTER (allocated_bytes = peak_bytes) AS peak_step_id
    FROM level JOIN base USING (source_id, device_id) GROUP BY ALL
)
SELECT high.source_id, high.device_id, peak_bytes, base_bytes::BIGINT AS base_bytes, end_bytes, piece_count, high_count / step_count AS share_of_history,
    (SELECT arg_max(text, size_bytes) FROM allocator_step AS step LEFT JOIN text ON text_id = stack_id
        WHERE step.source_id = high.source_id AND step.device_id IS NOT DISTINCT FROM high.device_id AND action = 'alloc'
            AND step_id BETWEEN peak_step_id - 64 AND peak_step_id) AS stack
FROM high
ORDER BY high.source_id, high.device_id;

-- level_spike: the highest level of a device that was looked at again and again, or of an allocator that a program printed, against the level
-- before and behind it; one row a series. What is seen of a device may be somebody else's who came and went; `is_own` tells the allocator.
CREATE TABLE level_spike AS
WITH series AS (
    SELECT source_id, device_id, look_id AS place, memory_used_bytes AS level_bytes, memory_total_bytes AS total_bytes, busy_share, false AS is_own
    FROM gpu_sample WHERE memory_used_bytes IS NOT NULL
    UNION ALL
    SELECT source_id, NULL, step_id, allocated_bytes, NULL, NULL, true FROM allocator_level WHERE allocated_bytes IS NOT NULL
),
whole AS (
    SELECT source_id, device_id, is_own, median(level_bytes) AS base_bytes, max(level_bytes) AS peak_bytes, max(total_bytes) AS told_bytes,
        arg_min(level_bytes, place) AS first_bytes, arg_max(level_bytes, place) AS last_bytes, count(*) AS look_count, max(busy_share) AS busy_share
    FROM series GROUP BY ALL
)
SELECT whole.source_id, whole.device_id, whole.is_own, base_bytes::BIGINT AS base_bytes, peak_bytes, last_bytes, look_count, whole.busy_share,
    coalesce(told_bytes, (SELECT max(total_bytes) FROM oom), (SELECT max(memory_total_bytes) FROM gpu_sample), peak_bytes) AS total_bytes,
    count(*) FILTER (level_bytes > base_bytes + 0.5 * (peak_bytes - base_bytes)) AS high_count
FROM whole JOIN series ON series.source_id = whole.source_id AND series.device_id IS NOT DISTINCT FROM whole.device_id AND series.is_own = whole.is_own
WHERE look_count >= 8 AND peak_bytes > base_bytes AND greatest(first_bytes, last_bytes) <= base_bytes + 0.2 * (peak_bytes - base_bytes)
GROUP BY ALL
ORDER BY whole.source_id, whole.device_id;
