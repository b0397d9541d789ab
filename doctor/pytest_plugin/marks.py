"""`@pytest.mark.healthy(at_most="low", allow=[...], gpu_busy=0.6, syncs_per_step=1)`: what it demands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pytest

    from doctor.checks.check import Demand

NAME = "healthy"
HELP = (
    "healthy(at_most='low', allow=[], **vitals): record the test's body with the profiler of torch, diagnose it, and "
    "fail where it is less healthy than this; bounds such as gpu_busy=0.6 (at least) or syncs_per_step=1 (at most)."
)


class HealthyMark(Protocol):
    """Arguments of the marker."""

    def __call__(self, *, at_most: str = "low", allow: list[str] | tuple[str, ...] = (), **vitals: object) -> object:
        """Mark a test.

        Args:
            at_most: worst severity that is let pass.
            allow: ids of rules that are let pass.
            vitals: bounds on figures of the diagnosis.
        """


def demand_of(arguments: Mapping[str, object]) -> Demand:
    """The demand behind the arguments of the marker or of `assert_healthy`.

    Raises:
        UsageError: an argument is unusable.
    """
    from doctor.checks.check import Demand  # noqa: PLC0415 - only tests that use doctor pay for it
    from doctor.checks.judging import bounds_of, severity_named  # noqa: PLC0415
    from doctor.checks.running import refuse_unknown_rules  # noqa: PLC0415
    from doctor.errors import UsageError  # noqa: PLC0415

    vitals = {name: value for name, value in arguments.items() if name not in {"at_most", "allow"}}
    allow = arguments.get("allow", ())
    if isinstance(allow, str) or not isinstance(allow, list | tuple):
        raise UsageError(f"allow is {allow!r}, but must be a list of rules")
    demand = Demand(severity_named(arguments.get("at_most", "low")), tuple(map(str, allow)), bounds_of(vitals))
    if demand.allow:
        refuse_unknown_rules([demand])
    return demand


def demand_on(item: pytest.Item) -> Demand | None:
    """What the nearest marker demands of a test, None where it has none.

    Raises:
        UsageError: an argument is unusable.
    """
    mark = item.get_closest_marker(NAME)
    if mark is None:
        return None
    if mark.args:
        from doctor.errors import UsageError  # noqa: PLC0415 - only tests that use doctor pay for it

        raise UsageError(f"the marker {NAME} takes named arguments only, such as at_most='low'")
    return demand_of(mark.kwargs)
