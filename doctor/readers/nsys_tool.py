"""Reports through an installed Nsight Systems: its own export, into a temporary SQLite file.

The native reader needs none of this; it is for those who want NVIDIA's word, or a report newer than what is known here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from doctor.errors import EvidenceError, ToolMissingError

INSTALL_PATTERNS = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-x64/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute*/*/host/target-linux-x64/nsys",
    "opt/nvidia/nsight-compute*/host/target-linux-x64/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems*/bin/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-x64/nsys",
)
"""Where installers put it, below the root of the file system; of several the newest by name is taken."""

_MOST_SECONDS = 3600


def find_nsys(search_path: str | None = None, root: Path = Path("/")) -> Path:
    """The program `nsys` on this machine.

    Args:
        search_path: folders to look in first, as in $PATH; $PATH itself where None.
        root: where the usual install folders start.

    Raises:
        ToolMissingError: there is none.
    """
    named = shutil.which("nsys", path=search_path)
    if named:
        return Path(named)
    for pattern in INSTALL_PATTERNS:
        found = sorted(path for path in root.glob(pattern) if os.access(path, os.X_OK) and path.is_file())
        if found:
            return found[-1]
    raise ToolMissingError(
        "nsys is not installed here (looked in PATH and the usual install folders): leave --reader away, "
        "a .nsys-rep reads without it"
    )


@contextmanager
def exported(report: Path, nsys: Path | None = None) -> Iterator[Path]:
    """Have nsys export a report, and give the path of the SQLite file; it is removed afterwards.

    Args:
        report: a native report.
        nsys: the program; looked for where None.

    Raises:
        ToolMissingError: nsys is not installed, or does not run.
        EvidenceError: nsys refuses the report.
    """
    program = nsys or find_nsys()
    with tempfile.TemporaryDirectory(prefix="doctor-nsys-") as folder:
        output, named = Path(folder) / "export.sqlite", Path(folder) / "report.nsys-rep"
        named.symlink_to(report.resolve())  # nsys goes by the ending, and an unpacked copy has none
        command = [str(program), "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}", str(named)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)
        except OSError as error:
            raise ToolMissingError(f"{program} does not run: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise EvidenceError(f"{report}: nsys export did not end within {_MOST_SECONDS // 60} minutes") from error
        if done.returncode or not output.exists():
            words = next((line for line in reversed((done.stderr + done.stdout).splitlines()) if line.strip()), "")
            raise EvidenceError(f"{report}: nsys export failed with exit code {done.returncode}: {words.strip()[:200]}")
        yield output
