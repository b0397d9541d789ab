"""The settings of a finding that fit what was recorded, in the order in which this user can apply them."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.rule import Fix, ProgramKind

SYSTEM = "system"
FRAMEWORKS = ("pytorch", "vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "transformers", "engine")
"""What a fix may be for, besides the machine itself."""
KIN = {"pytorch": "transformers", "transformers": "pytorch", "tgi": "pytorch"}
"""Who runs the one can apply what is said for the other."""
GENERATORS = frozenset({"vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "engine"})
"""Frameworks that write text token by token, and nothing else that a recording would show."""


def fitting(fixes: Sequence[Fix], kind: ProgramKind, frameworks: Sequence[str]) -> tuple[Fix, ...]:
    """The fixes that are for such a program, in the rule's order; all of them where none is.

    Where nothing tells what was recorded, it is taken for what this project exists for. A framework that the evidence
    names is spoken of in any case.
    """
    assumed = ProgramKind.GENERATION if kind is ProgramKind.UNKNOWN else kind

    def fits(fix: Fix) -> bool:
        is_usable = assumed is ProgramKind.GENERATION or fix.target not in GENERATORS or fix.target in frameworks
        return is_usable and (not fix.fits or assumed in fix.fits)

    return tuple(fix for fix in fixes if fits(fix)) or tuple(fixes)


def ordered(fixes: Sequence[Fix], frameworks: Sequence[str]) -> tuple[Fix, ...]:
    """The fixes with those for `frameworks` first, in that order, then their kin; all others keep the rule's order.

    What concerns the machine holds under any framework, so that it keeps its place: a rule that names it first has the
    better cure there.
    """
    wanted = dict.fromkeys((*frameworks, *(KIN[framework] for framework in frameworks if framework in KIN)))
    places = {framework: place for place, framework in enumerate(wanted)}
    queue = iter(
        sorted((fix for fix in fixes if fix.target != SYSTEM), key=lambda fix: places.get(fix.target, len(places)))
    )
    return tuple(fix if fix.target == SYSTEM else next(queue) for fix in fixes)
