-- bench_comparison: pairs of runs of a benchmark that differ in one word only (a policy, a client, a quantisation) at the same load, or in one
-- setting of the load; the slower first. A run that says nothing of what others vary has its default.
CREATE TABLE bench_comparison AS
WITH run AS (
    SELECT *, coalesce(output_token_hz, total_token_hz, CASE WHEN output_token_count IS NOT NULL THEN request_hz * output_token_count END, request_hz) AS rate_hz,
        coalesce(batch_count, concurrency_count) AS load_count
    FROM bench_row
),
word AS (
    SELECT source_id, row_id, unnest(json_keys(condition::JSON)) AS word FROM run WHERE condition IS NOT NULL
),
told AS (
    SELECT run.source_id, run.row_id, varied.word, coalesce(json_extract_string(run.condition::JSON, '$."' || varied.word || '"'), '(default)') AS told
    FROM run JOIN (SELECT DISTINCT source_id, word FROM word) AS varied USING (source_id)
),
pair AS (
    SELECT slow.source_id, slow.row_id AS slow_row_id, fast.row_id AS fast_row_id, slow.rate_hz AS slow_hz, fast.rate_hz AS fast_hz, slow.load_count,
        slow.tpot_p50_ns AS slow_tpot_ns, fast.tpot_p50_ns AS fast_tpot_ns, slow.tpot_p99_ns AS slow_tpot_p99_ns, fast.tpot_p99_ns AS fast_tpot_p99_ns,
        slow.prompt_token_count, slow.condition AS slow_condition, fast.condition AS fast_condition, slow.hit_share AS slow_hit_share,
        fast.hit_share AS fast_hit_share, slow.ttft_p50_ns AS slow_ttft_ns, fast.ttft_p50_ns AS fast_ttft_ns,
        slow.preemption_count AS slow_preemption_count, slow.device_busy_share AS slow_busy_share, slow.client_cpu_share AS slow_client_share
    FROM run AS slow JOIN run AS fast ON slow.source_id = fast.source_id AND slow.tool = fast.tool AND slow.row_id <> fast.row_id
        AND slow.load_count IS NOT DISTINCT FROM fast.load_count AND slow.request_rate_hz IS NOT DISTINCT FROM fast.request_rate_hz
        AND slow.tensor_parallel_count IS NOT DISTINCT FROM fast.tensor_parallel_count
        AND slow.pipeline_parallel_count IS NOT DISTINCT FROM fast.pipeline_parallel_count
        AND slow.data_parallel_count IS NOT DISTINCT FROM fast.data_parallel_count AND slow.draft_token_count IS NOT DISTINCT FROM fast.draft_token_count
        AND slow.prompt_token_count IS NOT DISTINCT FROM fast.prompt_token_count AND slow.condition IS DISTINCT FROM fast.condition
    WHERE slow.rate_hz < fast.rate_hz OR (slow.rate_hz IS NULL AND slow.tpot_p50_ns > fast.tpot_p50_ns)
)
SELECT pair.*, a.word, a.told AS slow_told, b.told AS fast_told
FROM pair JOIN told AS a ON a.source_id = pair.source_id AND a.row_id = pair.slow_row_id
    JOIN told AS b ON b.source_id = pair.source_id AND b.row_id = pair.fast_row_id AND b.word = a.word
WHERE a.told <> b.told AND (SELECT count(*) FROM told AS c JOIN told AS d ON c.source_id = d.source_id AND c.word = d.word AND c.told <> d.told
    AND c.source_id = pair.source_id AND c.row_id = pair.slow_row_id AND d.row_id = pair.fast_row_id) = 1
ORDER BY pair.source_id, slow_row_id, fast_row_id;

-- engine_witness: one row where anything tells how an engine ran: its log, its metrics, or a table of two ways to run it; none otherwise.
CREATE TABLE engine_witness AS
SELECT row_count FROM (SELECT (SELECT count(*) FROM engine_load) + (SELECT count(*) FROM bench_comparison) AS row_count) WHERE row_count > 0;

-- host_and_device: what a log, samples and a table say of the host between the steps of an engine: decode steps that were logged with both times, the
-- process that fills its core and how busy the device is beside it, and the same load with a server and without one. One row.
CREATE VIEW host_and_device AS
WITH step AS (
    SELECT count(*) AS step_count, sum(step_ns)::DOUBLE AS host_ns, sum(least(device_step_ns, step_ns))::DOUBLE AS device_ns
    FROM engine_load WHERE step_ns > 0 AND device_step_ns > 0 AND coalesce(new_token_count, 0) = 0
),
device AS (SELECT avg(busy_share) AS busy_share FROM gpu_sample WHERE busy_share IS NOT NULL),
thread AS (
    SELECT max(cpu_share) AS cpu_share FROM host_process
    WHERE regexp_matches(lower(coalesce(name, '')), 'python|vllm|sglang|trtllm|text-generation|lmdeploy|enginecore')
),
load AS (SELECT max(running_median_count) AS running_count FROM engine_queue),
compared AS (
    SELECT arg_max(slow_hz, fast_hz / slow_hz) AS server_hz, arg_max(fast_hz, fast_hz / slow_hz) AS library_hz,
        arg_max(slow_busy_share, fast_hz / slow_hz) AS server_busy_share
    FROM bench_comparison
    WHERE slow_hz IS NOT NULL AND regexp_matches(slow_told, 'server|http|api|online|stream')
        AND regexp_matches(fast_told, 'offline|library|no.?stream|in.?process')
)
SELECT step_count, host_ns, device_ns, busy_share, cpu_share, running_count, server_hz, library_hz, server_busy_share
FROM step, device, thread, load, compared;

-- clock_pair: one load at two clocks of the device; the lower clock and its throughput as shares of the higher's.
CREATE VIEW clock_pair AS
SELECT slow / fast AS clock_share, slow_hz / fast_hz AS rate_share, slow_busy_share FROM (
    SELECT try_cast(regexp_extract(slow_told, '[0-9.]+') AS DOUBLE) AS slow, try_cast(regexp_extract(fast_told, '[0-9.]+') AS DOUBLE) AS fast,
        slow_hz, fast_hz, slow_busy_share
    FROM bench_comparison WHERE regexp_matches(word, 'clock') AND slow_hz > 0)
WHERE slow > 0 AND fast > 0;

-- beaten_quantisation: methods of 4 bits that another kernel for the same weights beats by half or more (a public case: 5.3 times), or that 16 bits
-- beat at fewer than 16 sequences, where reading the weights is all that counts: Marlin is near the ideal up to 16 rows (Frantar et al. 2024).
CREATE VIEW beaten_quantisation AS
SELECT slow_told, slow_hz, fast_hz FROM bench_comparison
WHERE regexp_matches(word, 'quant|kernel|weight|config|variant|label|backend|precision|dtype') AND slow_hz IS NOT NULL
    AND regexp_matches(slow_told, 'awq|gptq|int4|w4a16|4.?bit') AND NOT regexp_matches(slow_told, 'marlin|machete|w4a8')
    AND (fast_hz > 1.5 * slow_hz AND (regexp_matches(fast_told, 'marlin|machete')
            -- a flag against its absence: the engine then chooses the kernel, or does without
            OR word = 'quantization' AND fast_told IN ('(default)', 'none', 'auto') AND coalesce(load_count, 1) < 16)
            AND regexp_extract(fast_told, 'awq|gptq') IN ('', regexp_extract(slow_told, 'awq|gptq'))
        OR fast_hz > 1.1 * slow_hz AND load_count < 16 AND regexp_matches(fast_told, 'bf16|fp16|bfloat16|float16|none|16.?bit')
            AND NOT EXISTS (SELECT 1 FROM bench_comparison AS ahead WHERE ahead.source_id = bench_comparison.source_id
                AND ahead.fast_told = bench_comparison.slow_told AND ahead.slow_told = bench_comparison.fast_told
                AND ahead.load_count < bench_comparison.load_count));
