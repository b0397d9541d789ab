"""Finding nsys in trees of folders like those that NVIDIA's installers make."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.errors import ToolMissingError
from doctor.nsight import find_nsys, installed

COMPUTE = "opt/nvidia/nsight-compute/2025.3.1/host"
SYSTEMS = "opt/nvidia/nsight-systems/2025.3.1"


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def test_an_install_of_nsight_systems_is_complete(tmp_path: Path) -> None:
    real = program(tmp_path / SYSTEMS / "target-linux-x64/nsys")
    program(tmp_path / SYSTEMS / "host-linux-x64/QdstrmImporter")
    link = tmp_path / SYSTEMS / "bin/nsys"
    link.parent.mkdir()
    link.symlink_to(real)
    nsys = installed("", tmp_path)
    assert nsys is not None
    assert (nsys.program, nsys.importer, nsys.missing) == (link, None, ())


def test_a_script_that_starts_the_real_one_is_trusted(tmp_path: Path) -> None:
    script = program(tmp_path / "usr/local/cuda-13.0/bin/nsys", b"#!/bin/sh\nexec somewhere/nsys\n")
    nsys = installed("", tmp_path)
    assert nsys is not None
    assert (nsys.program, nsys.missing) == (script, ())


def test_the_part_inside_nsight_compute_is_given_its_importer(tmp_path: Path) -> None:
    program(tmp_path / COMPUTE / "target-linux-x64/nsys")
    importer = program(tmp_path / COMPUTE / "linux-desktop-glibc_2_11_3-x64/QdstrmImporter")
    nsys = installed("", tmp_path)
    assert nsys is not None
    assert (nsys.importer, nsys.missing) == (importer, ())


def test_an_nsys_without_importer_says_what_to_install(tmp_path: Path) -> None:
    program(tmp_path / COMPUTE / "target-linux-x64/nsys")
    nsys = installed("", tmp_path)
    assert nsys is not None
    (reason,) = nsys.missing
    assert "QdstrmImporter is missing" in reason
    assert "nsight-systems-cli" in reason


def test_a_complete_one_goes_before_an_incomplete_one_in_the_path(tmp_path: Path) -> None:
    program(tmp_path / "somewhere/bin/nsys")
    complete = program(tmp_path / SYSTEMS / "target-linux-x64/nsys")
    program(tmp_path / SYSTEMS / "host-linux-x64/QdstrmImporter")
    nsys = installed(str(tmp_path / "somewhere/bin"), tmp_path)
    assert nsys is not None
    assert nsys.program == complete
    assert find_nsys(str(tmp_path / "somewhere/bin"), tmp_path) == tmp_path / "somewhere/bin/nsys"


def test_where_there_is_none_there_is_none(tmp_path: Path) -> None:
    assert installed("", tmp_path) is None
    with pytest.raises(ToolMissingError):
        find_nsys("", tmp_path)
