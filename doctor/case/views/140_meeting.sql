-- meeting_member: one row a rank and collective. The ranks of one job issue the same collectives in the same order, so the k-th from the end of
-- one rank is the k-th from the end of the others; they end together, which is checked. A collective's kernel lasts from the arrival of its
-- rank: until the last one comes it waits (`waiting_ns`), then data moves (`transfer_ns`).
CREATE TABLE meeting_member AS
WITH placed AS (
    SELECT device_op_id, source_id, pid, device_id, start_ns, end_ns, name_id,
        row_number() OVER (PARTITION BY source_id, pid, device_id, name_id ORDER BY end_ns DESC) AS from_last
    FROM device_op, steady_window
    WHERE family = 'collective' AND start_ns >= from_ns AND start_ns < until_ns
),
met AS (
    SELECT *, count(*) OVER meeting AS rank_count, max(start_ns) OVER meeting AS last_start_ns, max(end_ns) OVER meeting - min(end_ns) OVER meeting AS end_spread_ns,
        row_number() OVER (PARTITION BY name_id, from_last ORDER BY start_ns DESC, source_id, pid, device_id) AS place_from_last_to_come,
        start_ns - lead(start_ns) OVER (PARTITION BY name_id, from_last ORDER BY start_ns DESC, source_id, pid, device_id) AS behind_next_ns
    FROM placed
    WINDOW meeting AS (PARTITION BY name_id, from_last)
)
SELECT name_id, from_last, device_op_id, source_id, pid, device_id, start_ns, end_ns, last_start_ns - start_ns AS waiting_ns,
    greatest(end_ns - last_start_ns, 0) AS transfer_ns, place_from_last_to_come = 1 AS is_last_to_come,
    -- how much later than the one before it the last rank came: what the others could have saved
    CASE WHEN place_from_last_to_come = 1 THEN coalesce(behind_next_ns, 0) ELSE 0 END AS late_ns
FROM met
WHERE rank_count > 1 AND end_spread_ns <= 50000
ORDER BY start_ns;

-- meeting_rank: each rank's part in the meetings, and its own computing
CREATE TABLE meeting_rank AS
WITH attended AS (
    SELECT source_id, pid, device_id, count(*) AS meeting_count, count(*) FILTER (is_last_to_come) AS last_count, sum(late_ns)::BIGINT AS late_ns,
        sum(waiting_ns)::BIGINT AS waiting_ns, sum(transfer_ns)::BIGINT AS transfer_ns, arg_max(start_ns, late_ns) AS latest_start_ns,
        max(late_ns) AS latest_late_ns
    FROM meeting_member GROUP BY source_id, pid, device_id
),
computed AS (
    SELECT source_id, pid, device_id, sum(end_ns - start_ns)::BIGINT AS compute_ns
    FROM device_op, steady_window
    WHERE family <> 'collective' AND start_ns >= from_ns AND start_ns < until_ns GROUP BY source_id, pid, device_id
)
SELECT attended.*, coalesce(compute_ns, 0) AS compute_ns, coalesce(source.rank, device_id) AS rank
FROM attended LEFT JOIN computed USING (source_id, pid, device_id) JOIN source USING (source_id)
ORDER BY rank, source_id, pid, device_id;
