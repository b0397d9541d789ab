-- speculation: how long accepted drafts are, one row an engine. `accept_length_count` is what one step of the target model gives, its own token
-- included: the only figure that means the same everywhere; acceptance rates do not.
CREATE TABLE speculation AS
WITH logged AS (
    SELECT engine, avg(accept_length_count) AS length_count, sum(drafted_count) AS drafted_count, sum(accepted_count) AS accepted_count,
        count(*) AS sample_count
    FROM engine_load WHERE accept_length_count IS NOT NULL AND accept_length_count >= 1 GROUP BY engine
),
counted AS (
    SELECT engine, sum(grown_count) FILTER (metric = 'spec_decode_num_drafts') AS draft_count,
        sum(grown_count) FILTER (metric = 'spec_decode_num_draft_tokens') AS drafted_count,
        sum(grown_count) FILTER (metric = 'spec_decode_num_accepted_tokens') AS accepted_count
    FROM engine_counter WHERE reading_kind = 'counter' AND metric LIKE 'spec_decode_num%' GROUP BY engine
),
own AS (  -- an engine that logs tokens only: a draft is as long as it is set to be
    SELECT sample.engine, sum(drafted_count) AS drafted_count, sum(accepted_count) AS accepted_count, count(*) AS sample_count
    FROM engine_sample AS sample WHERE drafted_count > 0 AND accept_length_count IS NULL GROUP BY sample.engine
),
settled AS (
    SELECT engine, max(told_count) FILTER (setting = 'spec_tokens') AS spec_tokens_count, max(told) FILTER (setting = 'spec_method') AS method
    FROM engine_choice GROUP BY engine
),
joined AS (
    SELECT engine, length_count AS accept_length_count, drafted_count, accepted_count, sample_count FROM logged
    UNION ALL
    SELECT engine, 1 + accepted_count / draft_count, drafted_count, accepted_count, 1 FROM counted WHERE draft_count > 0
    UNION ALL
    SELECT own.engine, 1 + own.accepted_count / (own.drafted_count / coalesce(nullif(spec_tokens_count, 0), 4)), own.drafted_count, own.accepted_count,
        own.sample_count
    FROM own LEFT JOIN settled USING (engine)
)
SELECT engine, first(accept_length_count) AS accept_length_count, first(drafted_count) AS drafted_count, first(accepted_count) AS accepted_count,
    first(sample_count) AS sample_count,
    -- drafted a step: as set, or what the log counts: drafted tokens over steps, steps being accepted tokens over (length - 1)
    coalesce(first(spec_tokens_count), first(CASE WHEN accepted_count > 0 AND accept_length_count > 1
        THEN drafted_count / (accepted_count / (accept_length_count - 1)) END)) AS spec_tokens_count,
    first(method) AS method
FROM joined LEFT JOIN settled USING (engine)
GROUP BY engine
ORDER BY engine;
