from __future__ import annotations

import re

import pytest

from doctor.reports.presentation import Presentation, render
from tests.support import diagnoses


def test_the_heading_is_the_verdict() -> None:
    text = render(diagnoses.launch_bound(), "markdown", Presentation())
    assert text.splitlines()[0] == "## Decode is bound by kernel launches. To win: about 4.1x (3.2-5.0), at most 4.9x"


def test_settings_are_code_so_that_they_can_be_copied() -> None:
    text = render(diagnoses.launch_bound(), "markdown", Presentation())
    assert "| vLLM | `drop --enforce-eager` |" in text


@pytest.mark.parametrize("make", [diagnoses.launch_bound, diagnoses.healthy, diagnoses.hostile])
def test_every_row_of_a_table_has_the_cells_of_its_heading(make: object) -> None:
    assert callable(make)
    for table in re.findall(r"(?:^\|.*\n)+", render(make(), "markdown", Presentation()), re.MULTILINE):
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(bars) == 1, table


def test_names_from_evidence_cannot_become_markup() -> None:
    text = render(diagnoses.hostile(), "markdown", Presentation())
    outside_code = re.sub(r"(`+) .*? \1", "", text)
    assert not re.search(r"(?<!\\)<", outside_code)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
