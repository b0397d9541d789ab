-- timeline_source: the sources whose device work is diagnosed, and the shift that puts their clocks together.
-- Several ranks of one run are taken together; otherwise the source with most device work stands for the case, so that a report given
-- beside its own export is not counted twice.
CREATE TABLE timeline_source AS
WITH work AS (
    SELECT source_id, count(*) AS op_count
    FROM (
        SELECT source_id FROM kernel
        UNION ALL SELECT source_id FROM memcpy
        UNION ALL SELECT source_id FROM memset
        UNION ALL SELECT source_id FROM graph_trace
        UNION ALL SELECT source_id FROM api_call
    )
    GROUP BY source_id
),
candidate AS (
    SELECT source_id, kind, rank, clock_offset_ns, op_count,
        count(*) OVER (PARTITION BY kind) AS ranks_of_kind,
        row_number() OVER (PARTITION BY kind, rank ORDER BY op_count DESC, source_id) AS place_in_rank
    FROM source JOIN work USING (source_id)
),
best AS (
    SELECT kind, rank IS NOT NULL AND ranks_of_kind > 1 AS is_set
    FROM candidate
    ORDER BY op_count DESC, source_id
    LIMIT 1
),
chosen AS (
    SELECT candidate.*
    FROM candidate, best
    WHERE CASE WHEN best.is_set
        THEN candidate.kind = best.kind AND candidate.rank IS NOT NULL AND candidate.place_in_rank = 1
        ELSE candidate.source_id = (SELECT source_id FROM candidate ORDER BY op_count DESC, source_id LIMIT 1) END
)
SELECT source_id,
    CASE WHEN (SELECT count(*) = count(clock_offset_ns) AND count(*) > 1 FROM chosen)
        THEN clock_offset_ns - (SELECT min(clock_offset_ns) FROM chosen) ELSE 0 END AS shift_ns
FROM chosen
ORDER BY source_id;
