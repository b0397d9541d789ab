"""The settings of a finding in the order in which this user can apply them."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.rule import Fix

SYSTEM = "system"
FRAMEWORKS = ("pytorch", "vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "transformers", "engine")
"""What a fix may be for, besides the machine itself."""
KIN = {"pytorch": "transformers", "transformers": "pytorch", "tgi": "pytorch"}
"""Who runs the one can apply what is said for the other."""


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
