"""Reports through an installed Nsight Systems: its own export, into a temporary SQLite file.

The native reader needs none of this; it is for those who want NVIDIA's word, or a report newer than what is known here.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from doctor.errors import EvidenceError, ToolMissingError
from doctor.nsight import find_nsys

_MOST_SECONDS = 3600


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
