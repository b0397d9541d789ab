"""Makes the folders of `samples/` out of what `samples/record.py` wrote.

Usage, in the repository root: `python -m samples.assemble --recorded FOLDER [--into samples] [--only NAME ...]`.
Recordings go through `doctor redact`; what must be found comes from `samples/patients` and from the measured walls,
never from a diagnosis. A recording of 1 MiB or more is left out, and said so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from samples.patients.patient import Patient
from samples.record import chosen

MOST_BYTES = 2**20
DOCTOR = Path(sys.executable).with_name("doctor")
TEXTS = {"engine.log", "nvidia-smi.csv"}
COUNTED = (
    "steps",
    "pieces",
    "graph_replays",
    "layer_syncs",
    "pageable_copies",
    "cache_flushes",
    "audits",
    "kv_bytes_copied",
    "expert_visits",
    "gating_rounds",
    "drafted",
    "accepted",
)
PROGRAMS = {
    "engine": "random-weight Llama of 0.85 B parameters in bf16 (8 layers of 32 experts where experts are concerned)",
    "healthy": "random weights in bf16, about a billion parameters or BERT's size",
    "decoder": "the 0.8 B decoder of `samples/workload.py`",
    "transformers": "random-weight Llama of 0.85 B parameters in bf16, of transformers",
    "encoder": "an encoder of BERT's size in bf16, of transformers",
    "compiled": "an encoder of BERT's size in bf16, compiled",
}
MADE_BY = {
    "sick.nsys-rep": "nsys 2025.3.1, `python -m samples.record nsys --only {}` under the line of `samples/record.py`",
    "sick.pt.trace.json.gz": "`torch.profiler`, `python -m samples.record measure --only {}`",
    "engine.log": "the engine's own log of two runs of `python -m samples.record measure --only {}`",
    "nvidia-smi.csv": "the device every 100 ms while `python -m samples.record measure --only {}` ran",
}


def assemble(patient: Patient, recorded: Path, into: Path) -> list[str]:
    """Write the folder of one patient anew, and give back the names of its recordings.

    Raises:
        CalledProcessError: `doctor redact` refused a recording.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    names = [name for name in _shipped(patient) if (recorded / name).exists()]
    names = [name for name in names if _copied(recorded / name, into / name)]
    if not names:
        return []
    found = _measured(recorded)
    (into / "expected.json").write_text(json.dumps(expected(patient, found), indent=2) + "\n", encoding="utf-8")
    (into / "README.md").write_text("\n".join(_note(patient, names, found)) + "\n", encoding="utf-8")
    return names


def expected(patient: Patient, found: dict[str, Any]) -> dict[str, Any]:
    """What a diagnosis must say, see `doctor/scoring/expected.py`; `found` is a `measured.json`, or empty."""
    rule = patient.cures or patient.first
    is_compared = "speedup" in found and rule is not None and not patient.compound
    return {
        "first": patient.first,
        "allowed": sorted(patient.allowed),
        "ruled_out": list(patient.ruled_out),
        "measured_speedup": {rule: _rounded(found["speedup"])} if is_compared else {},
        "half": patient.half,
    }


def _rounded(speedup: dict[str, float]) -> dict[str, float]:
    return {name: round(speedup[name], 2) for name in ("median", "low", "high")}


def _shipped(patient: Patient) -> tuple[str, ...]:
    if patient.log_only:
        return ("engine.log",)
    recordings = ("sick.nsys-rep", "sick.pt.trace.json.gz")
    return (*recordings, "nvidia-smi.csv") if patient.name.startswith("healthy") else recordings


def _copied(source: Path, target: Path) -> bool:
    if source.name in TEXTS:
        shutil.copyfile(source, target)
    else:
        subprocess.run([str(DOCTOR), "redact", str(source), "-o", str(target)], check=True)
    if target.suffix == ".gz":
        target.write_bytes(gzip.compress(gzip.decompress(target.read_bytes()), 9, mtime=0))
    if target.stat().st_size < MOST_BYTES:
        return True
    sys.stdout.write(f"{target} is left out: {target.stat().st_size:,} bytes\n")
    target.unlink()
    return False


def _measured(recorded: Path) -> dict[str, Any]:
    path = recorded / "measured.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _note(patient: Patient, names: list[str], found: dict[str, Any]) -> list[str]:
    program = PROGRAMS[patient.name.split("-")[0]]
    lines = [
        f"# {patient.name}",
        "",
        f"{patient.problem[0].upper()}{patient.problem[1:]}.",
        "",
        f"One NVIDIA H200, driver 580, torch 2.11, triton 3.6, transformers 5.17; {program}. Recorded by this project:",
        "",
        *(f"- `{name}`: {MADE_BY[name].format(patient.name)};" for name in names),
        "- what must be found was written into `samples/patients` before anything was recorded;",
        *_walls(patient, found),
    ]
    if any(name.startswith("sick") for name in names):
        return [*lines, "- recordings went through `doctor redact`: times and names of kernels are as recorded."]
    return [*lines, "- nothing was left out of the text (`doctor redact` is for recordings)."]


def _walls(patient: Patient, found: dict[str, Any]) -> list[str]:
    if "speedup" not in found:
        return []
    facts, turns = found["facts"], len(found["runs"]["sick"])
    if patient.torch_profiler:
        plain_s = sorted(run["wall_s"] for run in found["runs"]["cured"])[turns // 2]
        times = facts["sick"]["watched_s"] / plain_s
        return [
            f"- the work takes {times:.2f} times as long under that profiler, {turns} turns of each in one process;"
        ]
    wall = found["speedup"]
    counts = [
        f"{name} {facts['sick'].get(name, 0)} against {facts['cured'].get(name, 0)}"
        for name in COUNTED
        if facts["sick"].get(name, 0) != facts["cured"].get(name, 0)
    ]
    return [
        f"- without a profiler, ill over cured, {turns} turns of each in one process: {wall['median']:.2f}"
        f" ({wall['low']:.2f} to {wall['high']:.2f});",
        *([f"- counted, ill against cured: {', '.join(counts)};"] if counts else []),
    ]


def main() -> None:
    """Assemble what was recorded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recorded", type=Path, required=True)
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    for patient in chosen(arguments.only):
        if (arguments.recorded / patient.name).is_dir():
            names = assemble(patient, arguments.recorded / patient.name, arguments.into / patient.name)
            sys.stdout.write(f"{patient.name}: {', '.join(names) or 'nothing to ship'}\n")


if __name__ == "__main__":
    main()
