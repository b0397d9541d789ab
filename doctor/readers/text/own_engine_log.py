"""Lines of the engine of this project: `TIME LEVEL engine.status event=status running=3 ...`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import settings_of
from doctor.readers.text.engine_lines import Kind, Row, number, sample, setting
from doctor.readers.text.stamp import Stamp

ENGINE = "engine"

_FIELD = re.compile(r"\b([a-z_]{1,40})=(\"[^\"]{0,200}\"|[^\s\"]{1,200})")


def _status(text: str, at: Stamp) -> Iterable[Row]:
    fields = dict(_FIELD.findall(text))
    if fields.get("event") != "status":
        return
    drafted, accepted = number(fields.get("drafted")), number(fields.get("accepted"))
    yield sample(
        ENGINE,
        at,
        "state",
        running_count=number(fields.get("running")),
        waiting_count=number(fields.get("waiting")),
        kv_usage_share=number(fields.get("kv_usage")),
        prefix_hit_share=number(fields.get("prefix_hit_rate")),
        prompt_token_hz=number(fields.get("prompt_tokens_per_s")),
        output_token_hz=number(fields.get("output_tokens_per_s")),
        preemption_count=number(fields.get("preemptions")),
        graph_share=number(fields.get("graph_share")),
        drafted_count=drafted,
        accepted_count=accepted,
    )


def _settings(text: str, at: Stamp) -> Iterable[Row]:
    fields = _FIELD.findall(text)
    if ("event", "settings") in fields:
        for kept in settings_of(ENGINE, fields):
            yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


KINDS: tuple[Kind, ...] = (
    Kind("event=status ", _status, is_last=True),
    Kind("event=settings ", _settings, is_last=True),
)
