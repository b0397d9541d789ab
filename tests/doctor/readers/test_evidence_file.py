from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.errors import DamagedEvidenceError, EvidenceTooLargeError
from doctor.readers.evidence_file import HEAD_BYTES, EvidenceFile, UnpackingBounds, open_evidence

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "zstd": lambda content: zstandard.ZstdCompressor(write_checksum=True).compress(content),
}
TIGHT = UnpackingBounds(most_bytes=4 << 20, most_ratio=20, free_bytes=1 << 20)


def packed_file(folder: Path, packing: str, content: bytes) -> EvidenceFile:
    path = folder / packing
    path.write_bytes(PACKINGS[packing](content))
    return open_evidence(path)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=200_000), min_size=1, max_size=4), st.sampled_from(("gzip", "zstd")))
def test_contents_come_back_whatever_the_packing_and_its_members(
    tmp_path: Path, members: list[bytes], packing: str
) -> None:
    path = tmp_path / "members"
    path.write_bytes(b"".join(PACKINGS[packing](member) for member in members))
    file = open_evidence(path)
    assert b"".join(file.chunks()) == b"".join(members)
    assert file.cut_short is None


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_head_is_the_first_64_kib_of_the_contents(packing: str, tmp_path: Path) -> None:
    content = os.urandom(3 * HEAD_BYTES)
    assert packed_file(tmp_path, packing, content).head() == content[:HEAD_BYTES]
    assert packed_file(tmp_path, packing, b"short").head() == b"short"


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_data_that_ends_early_gives_what_came_before_and_says_so(packing: str, tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    file = packed_file(tmp_path, packing, content)
    file.path.write_bytes(file.path.read_bytes()[: 1 << 19])
    found = b"".join(file.chunks())
    assert found
    assert content.startswith(found)
    assert file.cut_short is not None
    assert "ends too early" in file.cut_short


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_checksum_that_does_not_fit_is_said_and_costs_little(packing: str, tmp_path: Path) -> None:
    content = os.urandom(40_000)
    file = packed_file(tmp_path, packing, content)
    packed = bytearray(file.path.read_bytes())
    packed[-6 if packing == "gzip" else -2] ^= 0xFF
    file.path.write_bytes(bytes(packed))
    found = b"".join(file.chunks())
    assert file.cut_short is not None
    assert "damaged" in file.cut_short
    assert content.startswith(found)
    assert len(found) > 35_000


def test_zeros_behind_a_gzip_member_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(b"contents") + bytes(512))
    file = open_evidence(path)
    assert b"".join(file.chunks()) == b"contents"
    assert file.cut_short is None


def test_packed_data_broken_from_the_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\x1f\x8b\x08" + b"\xff" * 50)
    with pytest.raises(DamagedEvidenceError, match="its gzip data"):
        open_evidence(path).head()


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_bomb_stops_at_the_ratio_of_packed_to_plain(packing: str, tmp_path: Path) -> None:
    file = packed_file(tmp_path, packing, bytes(64 << 20))
    file.bounds = TIGHT
    taken: list[int] = []
    with pytest.raises(EvidenceTooLargeError, match="which no trace does"):
        taken.extend(len(chunk) for chunk in file.chunks())
    assert sum(taken) <= 4 << 20


def test_a_file_over_the_absolute_bound_is_refused_whatever_its_ratio(tmp_path: Path) -> None:
    file = packed_file(tmp_path, "gzip", os.urandom(6 << 20))
    file.bounds = TIGHT
    with pytest.raises(EvidenceTooLargeError):
        list(file.chunks())


def test_a_well_packed_real_size_passes_the_bounds(tmp_path: Path) -> None:
    repeated = os.urandom(1 << 16) * 16
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(repeated))
    assert sum(map(len, open_evidence(path).chunks())) == len(repeated)


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_unpacked_copy_is_whole_and_gone_afterwards(packing: str, tmp_path: Path) -> None:
    file = packed_file(tmp_path, packing, b"contents" * 1000)
    with file.unpacked() as plain:
        assert plain.read_bytes() == b"contents" * 1000
        assert (plain == file.path) == (packing == "none")
    assert plain.exists() == (packing == "none")


def test_progress_ends_at_the_packed_size(tmp_path: Path) -> None:
    file = packed_file(tmp_path, "gzip", os.urandom(3 << 20))
    seen: list[tuple[int, int]] = []
    for _ in file.chunks(lambda done, total: seen.append((done, total))):
        pass
    assert seen[-1] == (file.size_bytes, file.size_bytes)
    assert seen == sorted(seen)
