-- expert_piece: what the host runs for one expert in a loop over experts: from one wait for an index list (nonzero, unique, masked selection:
-- kernels of family `select` just before) to the next. Pieces that follow each other are a run, one run a layer; the loop over layers shows as a
-- piece much longer than the others, or as one that holds what stands between layers and in no expert: a norm, attention, routing.
CREATE TABLE _selecting_wait AS
WITH launched AS (
    -- the wait follows within four launches; spelled out, since a join on a range is quadratic within a thread
    SELECT DISTINCT call.source_id, call.pid, call.tid, call.interval_id + unnest([1, 2, 3, 4]) AS interval_id
    FROM thread_call AS call JOIN launch USING (host_call_id) JOIN device_op USING (device_op_id)
    WHERE family = 'select'
)
SELECT DISTINCT wait.source_id, wait.pid, wait.tid, wait.host_call_id, wait.interval_id, wait.step_id
FROM thread_call AS wait JOIN launched USING (source_id, pid, tid, interval_id)
WHERE wait.call_class = 'sync';

CREATE TABLE expert_piece AS
WITH spaced AS (
    SELECT *, lead(interval_id) OVER (PARTITION BY source_id, pid, tid ORDER BY interval_id, host_call_id) AS next_interval_id FROM _selecting_wait
),
between_layers AS (
    SELECT DISTINCT call.source_id, call.pid, call.tid, call.interval_id
    FROM thread_call AS call JOIN launch USING (host_call_id) JOIN device_op USING (device_op_id)
    WHERE family IN ('norm', 'attention', 'rope', 'softmax', 'sampling')
),
sized AS (
    SELECT *, median(next_interval_id - interval_id) OVER (PARTITION BY source_id, pid, tid) AS usual_launches FROM spaced
    WHERE next_interval_id > interval_id
),
crossing AS (
    SELECT DISTINCT sized.source_id, sized.pid, sized.tid, sized.interval_id
    FROM between_layers ASOF JOIN sized ON sized.source_id = between_layers.source_id AND sized.pid = between_layers.pid
        AND sized.tid = between_layers.tid AND sized.interval_id < between_layers.interval_id
    WHERE between_layers.interval_id <= sized.next_interval_id
),
told AS (
    SELECT sized.*, next_interval_id - sized.interval_id > 2 * usual_launches + 6 OR crossing.interval_id IS NOT NULL AS is_boundary
    FROM sized LEFT JOIN crossing USING (source_id, pid, tid, interval_id)
),
cut AS (
    SELECT *, coalesce(lag(is_boundary) OVER thread OR lag(next_interval_id) OVER thread <> interval_id, true) AS is_first
    FROM told WINDOW thread AS (PARTITION BY source_id, pid, tid ORDER BY interval_id)
)
SELECT source_id, pid, tid, step_id, interval_id AS from_interval_id, next_interval_id AS until_interval_id, is_first, is_boundary,
    sum(is_first::INTEGER) OVER (PARTITION BY source_id, pid, tid ORDER BY interval_id ROWS UNBOUNDED PRECEDING) AS run
FROM cut
ORDER BY source_id, pid, tid, from_interval_id;

DROP TABLE _selecting_wait;
