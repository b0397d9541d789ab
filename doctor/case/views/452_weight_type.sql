-- weight_type: the type that the weights are loaded in, as far as settings, logs, configurations and failures tell; one row where any of them
-- speaks. `is_wide`: a load that
-- failed had filled more than 2.5 bytes a parameter by then, a quarter more than a whole model in 16 bits takes, and nothing is quantised.
-- `is_stored_wide`: the checkpoint lies in fp32 and nobody is told who would narrow it: engines load such a checkpoint in 16 bits, from_pretrained
-- of transformers takes it as it lies. `is_failed`: memory ran out, and the run's own tensors are the reason.
CREATE TABLE weight_type AS
WITH told AS (
    SELECT max(engine) AS engine, max(told) FILTER (told = 'float32') AS fp32, max(told) FILTER (told IN ('bfloat16', 'float16')) AS half
    FROM engine_choice WHERE setting = 'dtype'
),
logged AS (
    SELECT sum(amount_bytes)::DOUBLE AS weight_bytes FROM (
        SELECT rank, max(amount_bytes) AS amount_bytes FROM engine_figure WHERE figure = 'weights' GROUP BY rank)
),
failed AS (
    SELECT max(allocated_bytes) FILTER (phase = 'load')::DOUBLE AS loading_bytes, max(allocated_bytes)::DOUBLE AS allocated_bytes,
        max(total_bytes) AS total_bytes, count(*) > 0 AS is_failed,
        bool_or(framework IN ('vllm', 'sglang', 'tensorrt-llm', 'tgi', 'lmdeploy')) AS is_of_engine
    FROM oom_cause WHERE cause IN ('weights', 'full', 'pool', 'activation', 'logits', 'outside', 'growth', 'capture', 'unknown')
),
model AS (
    SELECT max(parameter_count) AS parameter_count, any_value(quantisation) AS quantisation, any_value(dtype) AS stored FROM model_config
),
joined AS (
    SELECT coalesce(engine, (SELECT engine FROM engine_word)) AS engine, fp32 IS NOT NULL AS is_fp32, half IS NOT NULL AS is_half, logged.weight_bytes,
        loading_bytes, allocated_bytes, total_bytes, coalesce(is_failed, false) AS is_failed, coalesce(is_of_engine, false) AS is_of_engine,
        parameter_count, quantisation, stored
    FROM told, logged, failed, model
)
SELECT * EXCLUDE (is_of_engine),
    coalesce(NOT is_half AND quantisation IS NULL AND loading_bytes >= 2.5 * parameter_count AND loading_bytes <= 4.6 * parameter_count, false) AS is_wide,
    coalesce(NOT is_half AND quantisation IS NULL AND stored = 'float32' AND is_failed AND NOT is_of_engine
        AND coalesce(engine, 'transformers') = 'transformers' AND allocated_bytes >= 2.5 * parameter_count, false) AS is_stored_wide
FROM joined
WHERE EXISTS (SELECT 1 FROM engine_evidence) AND NOT EXISTS (SELECT 1 FROM engine_choice WHERE setting = 'device' AND told = 'cpu');
