from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, SamplingParams, logs  # noqa: E402
from engine.execution.status_log import StatusLog  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402


def test_a_status_line_has_the_documented_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm = LLM(str(save_model(make_model("llama"), tmp_path)), device="cpu", dtype="float32", max_model_len=64)
    llm.core.submit([5, 6, 7], SamplingParams(max_new_tokens=4, temperature=0))
    llm.core.step()
    status = StatusLog(llm.core.counters, llm.core.loop.scheduler)
    llm.core.step()
    with caplog.at_level(logging.INFO, logger="engine"):
        status.tick(status._last_s + 0.5)
        status.tick(status._last_s + 1.5)
    [line] = [message for message in caplog.messages if message.startswith("event=status")]
    fields = dict(pair.split("=") for pair in line.split())
    assert fields.pop("event") == "status"
    documented = set(re.findall(r"^ {4}([a-z_]+(?:, [a-z_]+)*)", logs.__doc__ or "", re.MULTILINE))
    assert set(fields) == {name for group in documented for name in group.split(", ")}
    assert fields["running"] == "1"
    assert float(fields["output_tokens_per_s"]) == pytest.approx(1 / 1.5, abs=0.06)


def test_a_line_starts_with_time_level_and_logger() -> None:
    logger = logging.getLogger("engine")
    before = (logger.handlers, logger.level, logger.propagate)
    try:
        logs.log_to_stderr()
        record = logging.LogRecord("engine.status", logging.INFO, "", 0, "event=status running=1", None, None)
        line = logger.handlers[0].format(record)
    finally:
        logger.handlers, logger.level, logger.propagate = before
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO engine\.status event=status running=1", line)
