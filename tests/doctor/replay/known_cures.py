"""Cures of the recordings' known problems, written out here so that no rule is needed to test the replay."""

from __future__ import annotations

from doctor.rule import Act, Cure, CureStep, Target

IN_DECODE = """
    EXISTS (SELECT 1 FROM nvtx_range JOIN text ON text_id = nvtx_range.name_id
        WHERE text = 'decode_step' AND host_call.start_ns BETWEEN nvtx_range.start_ns AND nvtx_range.end_ns)
"""
PAGEABLE = "kind = 'memcpy' AND src_kind = 'pageable' AND size_bytes >= 65536"
PAGEABLE_CALLS = f"SELECT host_call_id FROM launch JOIN device_op USING (device_op_id) WHERE {PAGEABLE}"

GRAPHS_FOR_DECODE = Cure(
    (
        CureStep(
            Target.SILENCE,
            Act.REMOVE,
            f"SELECT host_call_id FROM host_call WHERE silence_ns <= 500000 AND {IN_DECODE}",
        ),
        CureStep(
            Target.HOST_CALL,
            Act.SET_DURATION_NS,
            f"SELECT host_call_id FROM host_call WHERE call_class = 'launch' AND {IN_DECODE}",
            value=1_500,
        ),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"SELECT host_call_id FROM host_call WHERE call_class IN ('memset', 'module', 'other') AND {IN_DECODE}",
        ),
    )
)
NO_LONG_SILENCE = Cure(
    (
        CureStep(
            Target.SILENCE,
            Act.SET_DURATION_NS,
            """SELECT host_call_id, (SELECT median(silence_ns) FROM host_call WHERE call_class = 'launch')
               FROM host_call WHERE silence_ns > 5000000""",
        ),
    )
)
PINNED_COPIES = Cure(
    (
        CureStep(Target.HOST_CALL, Act.SET_DURATION_NS, PAGEABLE_CALLS, value=5_000),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            f"SELECT host_call_id FROM host_call WHERE call_class = 'sync' AND host_call_id - 1 IN ({PAGEABLE_CALLS})",
        ),
        CureStep(
            Target.DEVICE_OP,
            Act.SET_DURATION_NS,
            f"SELECT device_op_id, size_bytes / 50.0 FROM device_op WHERE {PAGEABLE}",
        ),
        CureStep(Target.DEVICE_OP, Act.MOVE_TO_SIDE_STREAM, f"SELECT device_op_id FROM device_op WHERE {PAGEABLE}"),
    )
)
NO_SYNCS = Cure(
    (
        CureStep(Target.HOST_CALL, Act.REMOVE, "SELECT host_call_id FROM host_call WHERE call_class = 'sync'"),
        CureStep(
            Target.HOST_CALL,
            Act.REMOVE,
            "SELECT host_call_id FROM launch JOIN device_op USING (device_op_id) WHERE copy_kind = 'dtoh'",
        ),
        CureStep(Target.DEVICE_OP, Act.REMOVE, "SELECT device_op_id FROM device_op WHERE copy_kind = 'dtoh'"),
    )
)
NO_EXTRA_WORK_ON_RANK_1 = Cure(
    (
        CureStep(
            Target.DEVICE_OP,
            Act.REMOVE,
            """SELECT device_op_id FROM device_op
               WHERE device_id = 1 AND family = 'gemm'
                   AND end_ns - start_ns > (SELECT 2 * max(end_ns - start_ns) FROM device_op
                                            WHERE device_id = 0 AND family = 'gemm')""",
        ),
    ),
    is_host_work=False,
)
