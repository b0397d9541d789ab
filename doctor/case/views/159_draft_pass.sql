-- draft_pass: forward passes of two models that take turns in one process, the smaller one at least as often: a draft and the model that verifies it.
-- A pass ends where a token is picked; how many attention kernels it holds tells the number of layers. One model has one such number; here two
-- of them, one at least twice the other, make up four fifths of the passes. Pieces of a prompt pick no token and count with the pass behind them:
-- so all attention of a pass has to be one kernel of one size, and the two models may have none (by name and grid) in common. One row, or none.
CREATE TABLE draft_pass AS
WITH work AS (
    SELECT source_id, pid, device_id, family, start_ns, end_ns, [name_id, coalesce(grid_blocks, 0)] AS kernel,
        sum((family = 'sampling')::INTEGER) OVER (PARTITION BY source_id, pid, device_id ORDER BY start_ns, device_op_id) AS pass_number
    FROM device_op, steady_window
    WHERE start_ns >= from_ns AND start_ns < until_ns AND family IN ('attention', 'sampling')
),
pass AS (
    SELECT source_id, pid, device_id, pass_number, count(*) AS layer_count, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        list(DISTINCT kernel) AS kernels
    FROM work WHERE family = 'attention' GROUP BY source_id, pid, device_id, pass_number
),
timed AS (  -- from the last attention of the pass before: what is launched between belongs to this one
    SELECT *, end_ns - coalesce(lag(end_ns) OVER (PARTITION BY source_id, pid, device_id ORDER BY start_ns), start_ns) AS pass_ns FROM pass
),
kind AS (
    SELECT source_id, pid, device_id, layer_count, count(*) AS pass_count, sum(pass_ns)::BIGINT AS pass_ns, min(start_ns) AS first_start_ns,
        arg_min(end_ns, start_ns) AS first_end_ns, list_distinct(flatten(list(kernels))) AS kernels, max(len(kernels)) = 1 AS is_alike
    FROM timed GROUP BY source_id, pid, device_id, layer_count, len(kernels) = 1
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid, device_id ORDER BY pass_count DESC, layer_count) AS place,
        sum(pass_count) OVER (PARTITION BY source_id, pid, device_id) AS all_count
    FROM kind
)
SELECT draft.source_id, draft.pid, draft.device_id, draft.layer_count AS draft_layer_count, draft.pass_count AS draft_pass_count,
    draft.pass_ns AS draft_ns, target.layer_count AS target_layer_count, target.pass_count AS target_pass_count, target.pass_ns AS target_ns,
    draft.first_start_ns, draft.first_end_ns
FROM ranked AS draft JOIN ranked AS target USING (source_id, pid, device_id)
WHERE draft.is_alike AND target.is_alike AND draft.place <= 2 AND target.place <= 2 AND target.layer_count >= 2 * draft.layer_count AND draft.pass_count + 1 >= target.pass_count  -- the prompt goes through the larger one first
    AND NOT list_has_any(draft.kernels, target.kernels) AND target.pass_count >= 3 AND draft.pass_count + target.pass_count >= 0.8 * draft.all_count
ORDER BY draft.pass_ns DESC, draft.source_id, draft.pid, draft.device_id;
