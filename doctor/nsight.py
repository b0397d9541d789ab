"""Nsight Systems on this machine: where the program is, and whether it can write a report."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from doctor.errors import ToolMissingError

INSTALL_PATTERNS = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute*/*/host/target-linux-*/nsys",
    "opt/nvidia/nsight-compute*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
"""Where installers put it, below the root of the file system; of several the newest by name is taken."""

_IMPORTER = "QdstrmImporter"
_MOST_SECONDS = 20


@dataclass(frozen=True)
class Nsys:
    """One installed nsys.

    Attributes:
        program: the executable.
        importer: makes a report of what nsys recorded where nsys does not find it by itself; None where it does.
        missing: why no report can be written, and what to do; empty where one can.
    """

    program: Path
    importer: Path | None = None
    missing: tuple[str, ...] = ()


def find_nsys(search_path: str | None = None, root: Path = Path("/")) -> Path:
    """The program `nsys` on this machine.

    Args:
        search_path: folders to look in first, as in $PATH; $PATH itself where None.
        root: where the usual install folders start.

    Raises:
        ToolMissingError: there is none.
    """
    found = next(_programs(search_path, root), None)
    if found is None:
        raise ToolMissingError(
            "nsys is not installed here (looked in PATH and the usual install folders): leave --reader away, "
            "a .nsys-rep reads without it"
        )
    return found


def installed(search_path: str | None = None, root: Path = Path("/")) -> Nsys | None:
    """The first nsys that can write a report, else the first with what it lacks, else None.

    Args:
        search_path: as for `find_nsys`.
        root: as for `find_nsys`.
    """
    first: Nsys | None = None
    for program in _programs(search_path, root):
        nsys = _inspected(program)
        if not nsys.missing:
            return nsys
        first = first or nsys
    return first


def _programs(search_path: str | None, root: Path) -> Iterator[Path]:
    named = shutil.which("nsys", path=search_path)
    if named:
        yield Path(named)
    for pattern in INSTALL_PATTERNS:
        yield from sorted(filter(_is_program, root.glob(pattern)), reverse=True)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _inspected(program: Path) -> Nsys:
    """An nsys, and what it lacks to turn what it recorded into a report.

    The part inside Nsight Compute looks for its importer in `host-linux-*` beside its own folder and has it under
    another name; the importer needs libraries that slim images leave out.
    """
    with program.open("rb") as file:
        if file.read(2) == b"#!":  # a script that starts the real one, wherever that is
            return Nsys(program)
    home = program.resolve().parent.parent
    usual, others = sorted(home.glob(f"host-linux-*/{_IMPORTER}")), sorted(home.glob(f"*/{_IMPORTER}"))
    if not others:
        return Nsys(program, None, (f"{_IMPORTER} is missing below {home}: install the package nsight-systems-cli",))
    libraries = _missing_libraries((usual or others)[0])
    missing = f"libraries are missing: {', '.join(libraries)} (Debian, Ubuntu: apt install libdw1 libelf1)"
    return Nsys(program, None if usual else others[0], (missing,) if libraries else ())


def _missing_libraries(program: Path) -> list[str]:
    command = ["ldd", str(program)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    absent = (line for line in done.stdout.splitlines() if line.rstrip().endswith("not found"))
    return sorted({line.split("=>")[0].strip() for line in absent})
