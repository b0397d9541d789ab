"""What a lane holds: the one relation that every query of the time-line reads."""

from __future__ import annotations

from enum import IntEnum


class Work(IntEnum):
    """What an item of a lane is; the values stand in SQL too."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    GRAPH = 3
    LAUNCH = 4
    WAIT = 5
    CALL = 6
    RANGE = 7
    STEP = 8
    MEMSET = 9


ITEM = f"""
item AS (
    SELECT lane_id, device_op_id AS item_id, start_ns, end_ns, name_id,
        (CASE family WHEN 'collective' THEN {Work.COMMUNICATION:d} WHEN 'memcpy' THEN {Work.COPY:d}
            WHEN 'memset' THEN {Work.MEMSET:d} WHEN 'graph' THEN {Work.GRAPH:d}
            ELSE {Work.COMPUTE:d} END)::TINYINT AS work
    FROM device_op JOIN timeline.lane ON lane_kind = 'stream' AND lane.source_id = device_op.source_id
        AND lane.pid IS NOT DISTINCT FROM device_op.pid AND lane.device_id = device_op.device_id
        AND lane.stream_id = device_op.stream_id
    UNION ALL
    SELECT lane_id, host_call_id, start_ns, end_ns, name_id,
        (CASE call_class WHEN 'launch' THEN {Work.LAUNCH:d} WHEN 'graph' THEN {Work.LAUNCH:d}
            WHEN 'sync' THEN {Work.WAIT:d} WHEN 'copy' THEN {Work.COPY:d} WHEN 'memset' THEN {Work.MEMSET:d}
            ELSE {Work.CALL:d} END)::TINYINT
    FROM host_call JOIN timeline.lane ON lane_kind = 'thread' AND lane.source_id = host_call.source_id
        AND lane.pid IS NOT DISTINCT FROM host_call.pid AND lane.tid IS NOT DISTINCT FROM host_call.tid
    UNION ALL
    SELECT lane_id, range_id, start_ns, end_ns, name_id, {Work.RANGE:d}::TINYINT
    FROM timeline.range_depth AS r JOIN timeline.lane ON lane_kind = 'range' AND lane.source_id = r.source_id
        AND lane.pid IS NOT DISTINCT FROM r.pid AND lane.tid IS NOT DISTINCT FROM r.tid AND lane.depth = r.depth
    UNION ALL
    SELECT lane_id, step_id, start_ns, end_ns, NULL, {Work.STEP:d}::TINYINT
    FROM step JOIN timeline.lane ON lane_kind = 'step' AND lane.source_id = step.source_id
        AND lane.pid IS NOT DISTINCT FROM step.pid
)"""
"""A common table expression: `lane_id, item_id, start_ns, end_ns, name_id, work`; times on the case's clock."""
