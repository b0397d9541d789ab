"""Started by Python itself in every process of a recorded command: this folder stands first in PYTHONPATH.

Another `sitecustomize` further back in the path still runs, so that the command finds its Python as it left it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)


def _start() -> None:
    recorder = importlib.import_module("doctor_torch_recorder")  # beside this file, while it stands in the path
    recorder.watch_for_torch()


def _run_the_other() -> None:
    """Run the `sitecustomize` that this one hides."""
    for entry in sys.path:
        path = Path(entry) / "sitecustomize.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


_start()
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
_run_the_other()
