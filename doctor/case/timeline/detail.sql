-- The level of detail of the time-line: built once per opened case, in a database of its own in memory, so that the case stays as it is.
-- Placeholders in braces are filled by prepare.py with numbers that it owns.

-- extent: from the first to the last event, and the length of one of the {bins} bins that it is divided into.
CREATE TABLE timeline.extent AS
WITH edge AS (
    SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM device_op
    UNION ALL SELECT min(start_ns), max(end_ns) FROM host_call
    UNION ALL SELECT min(nvtx_range.start_ns + shift_ns), max(nvtx_range.end_ns + shift_ns)
    FROM nvtx_range JOIN timeline_source USING (source_id)
    UNION ALL SELECT min(at_ns), max(at_ns) FROM timeline.track_sample WHERE NOT EXISTS (SELECT 1 FROM timeline_source)
)
SELECT min(start_ns) AS start_ns, greatest(max(end_ns), min(start_ns) + 1) AS end_ns,
    greatest((max(end_ns) - min(start_ns)) // {bins} + 1, 1) AS bin_ns
FROM edge HAVING min(start_ns) IS NOT NULL;

-- range_depth: annotation ranges on the case's clock with the number of ranges of their thread that were open when they began.
CREATE TABLE timeline.range_depth AS
WITH closed AS (
    SELECT row_number() OVER (ORDER BY nvtx_range.start_ns + shift_ns, nvtx_range.end_ns DESC) - 1 AS range_id, source_id, pid, tid,
        nvtx_range.start_ns + shift_ns AS start_ns, nvtx_range.end_ns + shift_ns AS end_ns, name_id
    FROM nvtx_range JOIN timeline_source USING (source_id)
    WHERE nvtx_range.end_ns >= nvtx_range.start_ns AND range_kind <> 'mark'
),
edge AS (
    SELECT range_id, source_id, pid, tid, start_ns AS at_ns, 1 AS opened FROM closed
    UNION ALL SELECT range_id, source_id, pid, tid, end_ns, -1 FROM closed
),
counted AS (
    -- ranges are numbered so that of two that begin together the longer one comes first
    SELECT range_id, opened, sum(opened) OVER (
        PARTITION BY source_id, pid, tid ORDER BY at_ns, opened, range_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS open_count
    FROM edge
)
SELECT closed.*, least(greatest(open_count - 1, 0), {deepest})::INTEGER AS depth
FROM closed JOIN counted USING (range_id)
WHERE opened = 1
ORDER BY start_ns;

-- lane: the rows of the time-line in the order in which they are shown.
CREATE TABLE timeline.lane AS
WITH found AS (
    SELECT 0 AS kind_place, 'step' AS lane_kind, source_id, pid, NULL::BIGINT AS tid, NULL::INTEGER AS device_id, NULL::BIGINT AS stream_id,
        NULL::INTEGER AS depth, count(*) AS item_count
    FROM step GROUP BY source_id, pid
    UNION ALL
    SELECT 1, 'stream', source_id, pid, NULL, device_id, stream_id, NULL, count(*) FROM device_op GROUP BY source_id, pid, device_id, stream_id
    UNION ALL
    SELECT 2, 'thread', source_id, pid, tid, NULL, NULL, NULL, count(*) FROM host_call GROUP BY source_id, pid, tid
    UNION ALL
    SELECT 3, 'range', source_id, pid, tid, NULL, NULL, depth, count(*) FROM timeline.range_depth GROUP BY source_id, pid, tid, depth
)
SELECT row_number() OVER (
        ORDER BY kind_place, source_id, device_id, pid, CASE WHEN lane_kind = 'range' THEN -1 ELSE item_count END DESC, tid, depth, stream_id) - 1 AS lane_id,
    lane_kind, source_id, pid, tid, device_id, stream_id, depth, item_count
FROM found
ORDER BY lane_id;
