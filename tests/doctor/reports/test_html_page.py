"""The page as text: what it says, what it leaves out, and what cannot become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.diagnosis.outcome import Diagnosis, Display
from doctor.diagnosis.tracks import STREAM_KINDS, CloseUp, Span, Track, ZoomableTimeline
from doctor.reports.presentation import Presentation, render
from tests.support import diagnoses

EVERY_KIND = [
    diagnoses.launch_bound,
    diagnoses.healthy,
    diagnoses.healthy_with_a_note,
    diagnoses.untrusted_replay,
    diagnoses.foreign_process,
    diagnoses.hostile,
]
_VOID = {"meta", "link", "br"}


class Reading(HTMLParser):
    """The elements of a page, its scripts, and whether every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.structure: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": []}
        self.headings: list[int] = []
        self.policy = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.structure.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attributes if name == "id" and value]
        self.links += [value for name, value in attributes if name in {"href", "src", "action"} and value]
        self.handlers += [name for name, _ in attributes if name.startswith("on") or name == "style"]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Shapes of SVG."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.contents:
            self.contents[self.open[-1]].append(data)


def page(diagnosis: Diagnosis) -> str:
    return render(diagnosis, "html", Presentation())


def zoomed(name: str, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with one row and one close-up in which a kernel of this name ran."""
    row = Track(f"GPU 0, stream 7 {name}", STREAM_KINDS, 0.5, ((0.25, 1.0), (0.0, 0.0), (0.5, 0.0)))
    close_up = CloseUp(0, 10, (Span(0, 0, 2, 5, name),))
    return replace(diagnosis, display=replace(diagnosis.display, zoom=ZoomableTimeline((row,), (close_up,))))


@pytest.mark.parametrize("make", EVERY_KIND)
def test_every_page_is_whole_and_needs_nothing_from_elsewhere(make: object) -> None:
    assert callable(make)
    reading = Reading(page(make()))
    assert not reading.open
    assert len(set(reading.ids)) == len(reading.ids)
    assert reading.headings[0] == 1
    assert reading.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(reading.headings, reading.headings[1:], strict=False))
    assert all(link == "data:," or link[1:] in reading.ids for link in reading.links)
    assert not reading.handlers


def test_the_verdict_its_win_and_the_setting_to_change_come_before_everything_else() -> None:
    text = page(diagnoses.launch_bound())
    order = [
        "critical",
        "Decode is bound by kernel launches</h1>",
        "about 4.1x (3.2-5.0), at most 4.9x",
        "drop --enforce-eager",
        'id="vitals"',
        'id="timeline"',
        'id="findings"',
        'id="kernels"',
        'id="ruled-out"',
        'id="not-run"',
        'id="provenance"',
    ]
    places = [text.index(words, text.index("<main")) for words in order]
    assert places == sorted(places)


def test_a_healthy_run_has_no_badge_and_says_so() -> None:
    text = page(diagnoses.healthy())
    assert "No rule found anything worth curing; 1 rule could not be checked</h1>" in text
    assert 'class="badge' not in text


def test_what_was_not_checked_comes_with_how_to_collect_it() -> None:
    text = page(diagnoses.launch_bound())
    assert "foreign-gpu-process, fragmentation, own-pid-in-container</td>" in text
    assert "torch.cuda.memory._dump_snapshot" in text


def test_folders_of_evidence_are_never_told() -> None:
    known = diagnoses.launch_bound()
    (file,) = known.evidence
    text = page(replace(known, evidence=(replace(file, path="/home/alice/secret/launch.nsys-rep", sha256="ab" * 32),)))
    assert "launch.nsys-rep" in text
    assert "ab" * 32 in text
    assert "alice" not in text


def test_incomplete_evidence_stands_under_the_verdict() -> None:
    text = page(diagnoses.foreign_process())
    assert text.index("the text ends inside the traceback") < text.index('id="findings"')


@pytest.mark.parametrize(
    "evil", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--<script>", "]]>&\u2028\x00"]
)
def test_a_name_from_evidence_stays_text_wherever_it_lands(evil: str) -> None:
    known = diagnoses.launch_bound()
    first = replace(known.findings[0], title=evil, summary=evil)
    plain = Reading(page(zoomed("plain", known)))
    hostile = Reading(page(zoomed(evil, replace(known, findings=(first, *known.findings[1:])))))
    assert hostile.ids == plain.ids
    assert len(hostile.contents["script"]) == len(plain.contents["script"]) == 3
    assert hostile.contents["script"][1:] == plain.contents["script"][1:]
    assert json.loads(hostile.contents["script"][0])["names"] == [evil.replace("\u2028", " ").replace("\x00", "?")]


@settings(max_examples=30, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("<>&'\"/!-=` \u2028\x00aZ"), min_size=1, max_size=40).filter(str.strip))
def test_no_text_ever_changes_the_structure_of_the_page(text: str) -> None:
    known = diagnoses.launch_bound()
    first = replace(known.findings[0], title=text, summary=text, verify=text)
    changed = zoomed(text, replace(known, findings=(first, *known.findings[1:])))
    assert Reading(page(changed)).structure == Reading(page(zoomed("plain", known))).structure


def test_the_policy_allows_the_page_s_own_script_and_style_and_nothing_else() -> None:
    reading = Reading(page(zoomed("kernel", diagnoses.launch_bound())))
    allowed = set(re.findall(r"'sha256-([^']+)'", reading.policy))
    blocks = [*reading.contents["script"][1:], *reading.contents["style"]]
    assert allowed == {base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks}
    assert reading.policy.startswith("default-src 'none'")
    assert "unsafe" not in reading.policy


def test_the_licence_of_the_plotting_library_travels_with_it() -> None:
    text = page(zoomed("kernel", diagnoses.launch_bound()))
    assert "Copyright (c) 2022 Leon Sorokin" in text
    assert "uPlot (v1.6.32)" in text


def test_the_script_gets_times_since_the_window_began_in_the_order_of_the_rows() -> None:
    known = diagnoses.launch_bound()
    assert known.window is not None
    shifted = replace(known, window=replace(known.window, start_ns=1, end_ns=1_000_001))
    data = json.loads(Reading(page(zoomed("kernel", shifted))).contents["script"][0])
    assert data["length"] == 1_000_000
    assert data["tracks"][0]["shares"] == [[25, 100], [0, 0], [50, 0]]
    assert data["closeUps"] == [{"start": -1, "end": 9, "spans": [[0, 0, 1, 3, 0]]}]
    assert {(mark["finding"], mark["start"], mark["end"]) for mark in data["marks"]} == {
        (1, 119_999, 1_000_000),
        (2, 119_999, 1_000_000),
    }


def test_a_diagnosis_without_rows_to_zoom_into_shows_the_coarse_picture() -> None:
    text = page(diagnoses.launch_bound())
    assert "<svg" in text
    assert "uPlot (v" not in text
    assert "<svg" not in page(replace(diagnoses.launch_bound(), display=Display()))
