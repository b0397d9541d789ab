-- engine_choice: what each engine runs with, one row a setting. What a log says ran stands before what a command or a file asks for, later
-- lines before earlier ones.
CREATE TABLE engine_choice AS
SELECT engine, setting, arg_max(told, weight) AS told, arg_max(spelled, weight) AS spelled, arg_max(said_by, weight) AS said_by,
    try_cast(arg_max(told, weight) AS DOUBLE) AS told_count, max(CASE said_by WHEN 'log' THEN 1 ELSE 0 END) = 1 AS is_logged
FROM (
    SELECT *, CASE said_by WHEN 'log' THEN 2 WHEN 'command' THEN 1 ELSE 0 END::BIGINT * 1000000000000000
        + source_id::BIGINT * 1000000000 + line_id AS weight
    FROM engine_setting WHERE setting <> 'card'  -- of a machine, not of an engine
)
GROUP BY engine, setting
ORDER BY engine, setting;

-- engine_word: which engine the evidence is mostly about, and its version; one row, or none.
CREATE TABLE engine_word AS
WITH said AS (
    SELECT engine FROM engine_sample
    UNION ALL SELECT engine FROM engine_figure
    UNION ALL SELECT engine FROM engine_setting
    UNION ALL SELECT engine FROM engine_event
    UNION ALL SELECT engine FROM metric
)
SELECT engine, (SELECT max(detail) FROM engine_event WHERE event = 'version' AND engine_event.engine = counted.engine) AS version
FROM (SELECT engine, count(*) AS line_count FROM said WHERE engine IS NOT NULL AND engine <> 'unknown' GROUP BY engine ORDER BY line_count DESC, engine LIMIT 1) AS counted;

-- engine_evidence: one row where the case holds anything that an engine, a framework or a configuration said; none otherwise.
CREATE TABLE engine_evidence AS
SELECT row_count FROM (SELECT (SELECT count(*) FROM engine_sample) + (SELECT count(*) FROM engine_figure) + (SELECT count(*) FROM engine_setting WHERE setting <> 'card')
    + (SELECT count(*) FROM engine_event) + (SELECT count(*) FROM metric) + (SELECT count(*) FROM model_shape) AS row_count)
WHERE row_count > 0;
