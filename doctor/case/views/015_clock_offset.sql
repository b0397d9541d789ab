-- clock_offset: how far the clock of each recording of a set is ahead of the first one's, estimated on collectives, which end on all ranks at once.
-- Only where both recordings hold the same collectives equally often, the differences agree within 50 us, and they are larger than that: ranks of
-- one host share a clock and need none. What is found is taken out of `timeline_source.shift_ns`.
CREATE TABLE clock_offset AS
WITH set_size AS (
    SELECT count(*) AS source_count FROM timeline_source
),
collective_name AS (
    SELECT text_id AS name_id FROM text
    WHERE regexp_matches(lower(text), '^(void )?(nccl|rccl)|nccl(dev)?kernel|(^|[^a-z])cross_device_reduce|(one|two)_?shot_?all_?reduce|multimem_all_reduce')
        AND NOT regexp_matches(lower(text), 'send|recv')  -- stages of a pipeline exchange one after another, not at once
        AND (SELECT source_count FROM set_size) > 1
),
met AS (
    SELECT kernel.source_id, kernel.name_id, kernel.end_ns + shift_ns AS end_ns,
        row_number() OVER (PARTITION BY kernel.source_id, kernel.name_id ORDER BY kernel.end_ns DESC) AS from_last,
        count(*) OVER (PARTITION BY kernel.source_id, kernel.name_id) AS met_count,
        count(DISTINCT kernel.device_id) OVER (PARTITION BY kernel.source_id) AS device_count
    FROM kernel JOIN timeline_source USING (source_id) JOIN collective_name USING (name_id)
    WHERE kernel.end_ns IS NOT NULL
),
reference AS (
    SELECT * FROM met WHERE source_id = (SELECT min(source_id) FROM timeline_source) AND device_count = 1
),
compared AS (
    SELECT met.source_id, met.end_ns - reference.end_ns AS ahead_ns
    FROM met JOIN reference USING (name_id, from_last, met_count)
    WHERE met.source_id <> reference.source_id AND met.device_count = 1
),
estimated AS (
    SELECT source_id, median(ahead_ns)::BIGINT AS offset_ns, quantile_cont(ahead_ns, 0.9) - quantile_cont(ahead_ns, 0.1) AS spread_ns, count(*) AS meeting_count
    FROM compared GROUP BY source_id
)
SELECT source_id, offset_ns, spread_ns, meeting_count
FROM estimated
WHERE meeting_count >= 8 AND spread_ns <= 50000 AND abs(offset_ns) > 50000
ORDER BY source_id;

UPDATE timeline_source SET shift_ns = shift_ns - offset_ns FROM clock_offset WHERE clock_offset.source_id = timeline_source.source_id;
