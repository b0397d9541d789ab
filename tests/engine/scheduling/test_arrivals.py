from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.scheduling.arrivals import BATCH, PeakLoad, read_arrivals


def test_reads_a_trace_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,deadline_s\n2.5,20,3,4.0\n0.5,10,2,\n")
    arrivals = read_arrivals(path)
    assert [(a.at_us, a.prompt_tokens, a.output_tokens, a.deadline_us) for a in arrivals] == [
        (500_000, 10, 2, None),
        (2_500_000, 20, 3, 4_000_000),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "arrival_s,prompt_tokens\n1,2\n",
        "arrival_s,prompt_tokens,output_tokens\n1,many,3\n",
        "arrival_s,prompt_tokens,output_tokens\n1,2,0\n",
        "arrival_s,prompt_tokens,output_tokens\n1,2\n",
    ],
)
def test_says_in_one_line_what_is_wrong_with_a_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"^.*trace\.csv: not an arrival trace \([^\n]*\)$"):
        read_arrivals(path)


def test_a_missing_trace_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an arrival trace"):
        read_arrivals(tmp_path / "none.csv")


def test_the_same_seed_draws_the_same_arrivals_and_another_seed_others() -> None:
    load = PeakLoad(num_requests=50)
    assert load.draw(1) == load.draw(1)
    assert load.draw(1) != load.draw(2)


def test_arrivals_are_denser_in_the_peak() -> None:
    load = PeakLoad(num_requests=900, rate_per_s=1.0, peak_factor=4.0)
    arrivals = load.draw(0)
    start_us, end_us = load.peak_us(arrivals)
    assert 3 * (end_us - start_us) < start_us - arrivals[0].at_us


def test_batch_requests_are_promised_later_answers_than_interactive_ones() -> None:
    arrivals = PeakLoad(num_requests=200).draw(0)
    slack = {is_batch: [a.deadline_us - a.at_us for a in arrivals if (a.kind == BATCH) is is_batch and a.deadline_us]
             for is_batch in (True, False)}  # fmt: skip
    assert slack[True]
    assert min(slack[True]) > max(slack[False])
