"""Experts run one after another from Python: nonzero, wait, gather, small products, scatter.

What happens: a loop over experts asks the device which tokens belong to each one. The answer has a length that only
the device knows, so the host waits for it, then launches a handful of small products for a few tokens. Sixty-four
experts in forty layers are thousands of waits and tens of thousands of launches a step.

How it is detected: at least sixteen waits a usual step that come right after index-selecting kernels (nonzero, masked
selection, unique). From one such wait to the next is one piece; pieces that follow each other are one run, a layer. The
win is the run replayed with the first piece of each run kept and only the matrix products of the others, since a
grouped product still reads every expert's weights.

When it is not this: a few waits after nonzero are `sync-in-step`. A grouped product or a fused expert kernel shows one
launch for all experts.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="moe-expert-loop",
    title="Experts run one after another from Python",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_waits": Threshold(
        16, "selecting waits a step", source="own H200 recording: 32 experts in 16 layers, 512 a step"
    ),
    "min_steps": Threshold(3, "steps", source="a cause seen once or twice is not what the run is made of"),
}

SQL = """
SELECT count(*) AS piece_count, count(DISTINCT run) AS run_count, count(DISTINCT expert_piece.step_id) AS step_with_count,
    median(until_interval_id - from_interval_id) AS piece_launches, (SELECT count(*) FROM usual_step) AS step_count,
    min(usual_step.start_ns) AS first_start_ns, min(usual_step.end_ns) AS first_end_ns
FROM expert_piece JOIN usual_step USING (step_id)
WHERE NOT is_boundary
"""

LATER = """
    FROM thread_call AS call
    ASOF JOIN expert_piece AS piece ON call.source_id = piece.source_id AND call.pid = piece.pid AND call.tid = piece.tid
        AND call.interval_id >= piece.from_interval_id
    WHERE call.interval_id < piece.until_interval_id AND NOT piece.is_first AND NOT piece.is_boundary
"""

CURE = Cure(
    steps=(
        CureStep(Target.HOST_CALL, Act.REMOVE, f"SELECT call.host_call_id {LATER}"),
        CureStep(Target.SILENCE, Act.REMOVE, f"SELECT call.host_call_id {LATER}"),
        CureStep(
            Target.DEVICE_OP,
            Act.REMOVE,
            f"""SELECT device_op_id FROM (SELECT call.host_call_id {LATER}) JOIN launch USING (host_call_id)
            JOIN device_op USING (device_op_id) WHERE family <> 'gemm'""",
        ),
    ),
    spread=2.0,
)


class ExpertPieces(NamedTuple):
    """Pieces between selecting waits in the usual steps of the window."""

    piece_count: int
    run_count: int
    step_with_count: int
    piece_launches: float | None
    step_count: int
    first_start_ns: int | None
    first_end_ns: int | None


def judge(row: ExpertPieces) -> Verdict:
    """So many selecting waits that they can only be a loop over experts."""
    if row.step_with_count < THRESHOLDS["min_steps"].value or not row.run_count:
        return None
    per_step = row.piece_count / row.step_with_count
    if per_step < THRESHOLDS["min_waits"].value:
        return None
    return Finding(
        summary=f"{per_step:,.0f} waits for index lists a step, about {row.piece_count / row.run_count:.0f} experts in a row with"
        f" {row.piece_launches or 0:.0f} launches each",
        evidence=(
            Evidence(
                "selecting waits per step",
                per_step,
                "calls",
                Where(start_ns=row.first_start_ns, end_ns=row.first_end_ns),
            ),
            Evidence("experts in a row", row.piece_count / row.run_count, "pieces"),
            Evidence("launches per expert", row.piece_launches or 0.0, "launches"),
        ),
        cure=CURE,
        confidence=0.85,
        cleared=f"{per_step:,.0f} waits for index lists a step, but they cost little here",
    )


FIXES = (
    Fix(
        "pytorch",
        "torch.nn.functional.grouped_mm over tokens sorted by expert; torch.bincount offsets on the device",
        "one product for all experts, no wait for token counts",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html",
    ),
    Fix(
        "vllm",
        "serve the model with the built-in FusedMoE layer (drop --model-impl transformers)",
        "fused expert kernels",
        source="https://docs.vllm.ai/en/latest/design/fused_moe_modular_kernel.html",
    ),
    Fix(
        "sglang",
        "--moe-runner-backend triton (or auto)",
        "fused expert kernels",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "moe_config: {backend: CUTLASS}",
        "grouped expert kernels",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'from_pretrained(..., experts_implementation="grouped_mm")',
        "one grouped product a layer",
        source="https://huggingface.co/docs/transformers/experts_interface",
    ),
    Fix(
        "engine",
        "--moe-routing grouped",
        "tokens are sorted by expert once",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=ExpertPieces,
    judge=judge,
    fixes=FIXES,
    verify="record again: launches per expert layer fall under ten and the waits are gone.",
    doc=__doc__,
)
