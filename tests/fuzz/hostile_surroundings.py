"""Gives `doctor` hostile files, names, disks and limits: `python -m tests.fuzz.hostile_surroundings [WORD...]`.

Each case is a program of its own with a folder for temporary files of its own. It has to end in time with an exit code
that the case allows and at least one line for each failure, all of them doctor's own; nothing may be left behind, no
control character may reach the screen, and nothing may be called a bug. A WORD runs the cases whose name holds it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from tests.support.samples import SAMPLES

SECONDS = 120
SPARSE_BYTES = 100 << 30
ENDINGS = (
    *("nsys-rep", "qdrep", "sqlite", "json", "json.gz", "pt.trace.json", "pickle", "pt", "txt", "log", "csv", "xml"),
    *("yaml", "jsonl", "parquet", "arrow", "zst", "duckdb", "md", "pftrace"),
)
REPORT = SAMPLES / "launch-bound-decode-nsys-report" / "launch-sick.nsys-rep"
EXPORT = SAMPLES / "launch-bound-decode-nsys-report" / "launch-sick.sqlite.gz"
TRACE = SAMPLES / "launch-bound-decode-torch-trace" / "launch-sick.pt.trace.json.gz"
SHOUT = "\x1b]0;owned\x07\x1b[31m[bold]%s %d {0}'; DROP TABLE kernel; --\n\x9b2J\u202e"
USUAL = frozenset({0, 2})
REFUSED = frozenset({2})
LOADER_GAVE_UP = frozenset({127})
"""The dynamic loader ends a process that has no memory for a library, before anybody could say a word."""


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: of the case.
        arguments: of doctor, relative to the folder of the case.
        codes: exit codes that it may end with.
        meanwhile: what happens while it runs, with the folder and the process.
        environment: beside the usual one.
        limits: kinds and soft limits of `resource`.
        made: files that it may leave in its folder.
    """

    name: str
    arguments: tuple[str, ...]
    codes: frozenset[int] = REFUSED
    meanwhile: Callable[[Path, subprocess.Popen[bytes]], None] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


def bombs(folder: Path) -> Iterator[Case]:
    """Small files that would fill a disk, and archives that point elsewhere."""
    line = b'{"traceEvents": [' + b" " * (1 << 20)
    packed = gzip.compress(line * 400, 9)
    (folder / "bomb.json.gz").write_bytes(packed)
    (folder / "nested.gz").write_bytes(gzip.compress(gzip.compress(packed)))
    (folder / "export.sqlite.gz").write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(400 << 20)))
    (folder / "report.gz").write_bytes(gzip.compress(REPORT.read_bytes()[:4096] + bytes(400 << 20)))
    (folder / "bomb.zst").write_bytes(zstandard.ZstdCompressor(3).compress(bytes(800 << 20)))
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../trace.json", bytes(100 << 20))
    with tarfile.open(folder / "links.tar", "w") as archive:
        link = tarfile.TarInfo("../../up")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("/absolute"), io.BytesIO())
    shutil.copy(folder / "links.tar", folder / "copy.tar")
    (folder / "links.tar.gz").write_bytes(gzip.compress((folder / "copy.tar").read_bytes()))
    for name in sorted(path.name for path in folder.iterdir()):
        yield Case(f"bomb {name} diagnose", ("diagnose", name))
        yield Case(f"bomb {name} redact", ("redact", name, "-o", "out"))
        yield Case(f"bomb {name} convert", ("convert", name, "-o", "out.sqlite"))


def sparse(folder: Path) -> Iterator[Case]:
    """A hundred gigabytes that take no room, under every name, and behind a beginning that looks right."""
    heads = {"sqlite": b"SQLite format 3\0", "json": b'{"traceEvents": [', "nsys-rep": REPORT.read_bytes()[:60_000]}
    for ending in ENDINGS:
        for what, head in (("", b""), *((("begun-", heads[ending]),) if ending in heads else ())):
            path = folder / f"{what}sparse.{ending}"
            path.write_bytes(head)
            os.truncate(path, SPARSE_BYTES)
            codes = USUAL if what else REFUSED
            yield Case(f"sparse {path.name} diagnose", ("diagnose", path.name), codes)
            yield Case(f"sparse {path.name} redact", ("redact", path.name, "-o", "out"))
    yield Case("sparse.duckdb sql", ("sql", "sparse.duckdb", "SELECT 1"))


def no_files(folder: Path) -> Iterator[Case]:
    """What is no regular file, may not be read, or never ends."""
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nowhere")
    for name in (
        "pipe",
        "socket",
        "loop",
        "gone",
        "/dev/zero",
        "/dev/null",
        "/dev/full",
        "/dev/random",
        "/proc/self/mem",
    ):
        for command in (("diagnose", name), ("redact", name, "-o", "out"), ("convert", name, "-o", "out.sqlite")):
            yield Case(f"no file {name} {command[0]}", command)
    yield Case("no file sql", ("sql", "pipe", "SELECT 1"))
    yield Case("no file in a folder", ("diagnose", "."))


def names(folder: Path) -> Iterator[Case]:
    """Names with line ends, escapes, markup, bytes that are no text, and too many of them."""
    content = TRACE.read_bytes()
    for at, name in enumerate(
        (b"a\nb\x1b[31m.json.gz", b"\xff\xfe[bold]%s.json.gz", b"-x.json.gz", b"'; DROP.json.gz")
    ):
        place = folder / f"named-{at}"
        place.mkdir()
        Path(os.fsdecode(os.fsencode(place) + b"/" + name)).write_bytes(content)
        yield Case(f"name {name!r}", ("diagnose", place.name), frozenset({0}))
        broken = folder / f"broken-{at}"
        broken.mkdir()
        Path(os.fsdecode(os.fsencode(broken) + b"/" + name)).write_bytes(content[:40])
        yield Case(f"broken name {name!r}", ("diagnose", broken.name))
    many = folder / "many"
    many.mkdir()
    for number in range(10_050):
        (many / f"{number}").touch()
    yield Case("many empty files", ("diagnose", "many"))
    yield Case("a very long name", ("diagnose", "x" * 5000))


def shouting_trace(folder: Path) -> Path:
    """A real trace in which every name of a kernel, operator and thread is hostile."""
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    for event in document["traceEvents"]:
        if event.get("cat") in {"kernel", "cpu_op", "user_annotation"}:
            event["name"] = SHOUT + str(event["name"])
        if event.get("ph") == "M" and "name" in event.get("args", {}):
            event["args"]["name"] = SHOUT
    path = folder / "shouting.json"
    path.write_text(json.dumps(document), "utf-8")
    return path


def shouting_export(folder: Path) -> Path:
    """A real export in which every text is hostile."""
    path = folder / "shouting.sqlite"
    path.write_bytes(gzip.decompress(EXPORT.read_bytes()))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE StringIds SET value = ? || value WHERE value NOT LIKE 'cu%'", (SHOUT,))
        database.execute("UPDATE DIAGNOSTIC_EVENT SET text = ? || text", (SHOUT,))
    return path


def shouting(folder: Path) -> Iterator[Case]:
    """Escape sequences, markup and SQL inside the evidence."""
    log = folder / "shouting.log"
    log.write_text(
        f"INFO 11-30 08:00:00 [core.py:77] vllm {SHOUT}\n"
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB {SHOUT}. GPU 0 has a total capacity "
        f"of 79.10 GiB of which 1.00 GiB is free. Process {SHOUT} has 78.00 GiB memory in use.\n",
        "utf-8",
    )
    for path in (shouting_trace(folder), shouting_export(folder), log):
        for output_format in ("terminal", "json", "markdown", "github", "junit", "sarif", "html"):
            name = f"shouting {path.name} {output_format}"
            yield Case(name, ("diagnose", path.name, "--format", output_format), frozenset({0}))
        yield Case(f"shouting {path.name} compare", ("compare", path.name, path.name), USUAL)
    yield Case("shouting pattern", ("diagnose", SHOUT + "*"))
    yield Case("shouting sql", ("sql", "shouting.json", f"SELECT '{SHOUT.replace(chr(39), '')}'"), USUAL)


def after(seconds: float, deed: Callable[[Path], object]) -> Callable[[Path, subprocess.Popen[bytes]], None]:
    """Do something to the folder a while after the start."""

    def wait(folder: Path, process: subprocess.Popen[bytes]) -> None:
        time.sleep(seconds)
        deed(folder)

    return wait


def changing(folder: Path) -> Iterator[Case]:
    """Evidence that vanishes, shrinks and grows while it is read."""
    plain = gzip.decompress(TRACE.read_bytes())
    originals = {
        "report.nsys-rep": REPORT.read_bytes(),
        "export.sqlite": gzip.decompress(EXPORT.read_bytes()),
        "trace.json": plain,
        "trace.json.gz": TRACE.read_bytes(),
    }
    deeds: dict[str, Callable[[Path], object]] = {
        "vanishes": lambda path: path.unlink(),
        "shrinks": lambda path: os.truncate(path, path.stat().st_size // 3),
        "is emptied": lambda path: os.truncate(path, 0),
        "grows": lambda path: path.open("ab").write(b"\0" * 100_000),
        "is closed": lambda path: path.chmod(0),
    }
    for name, content in originals.items():
        for what, deed in deeds.items():
            for seconds in (0.4, 0.7, 1.0, 1.4):
                place = folder / f"{name}-{what}-{seconds}".replace(" ", "-")
                place.mkdir()
                (place / name).write_bytes(content)
                target = f"{place.name}/{name}"

                def change(folder: Path, target: str = target, deed: Callable[[Path], object] = deed) -> None:
                    deed(folder / target)

                yield Case(f"{name} {what} after {seconds}", ("diagnose", target), USUAL, after(seconds, change))


def limits(folder: Path) -> Iterator[Case]:
    """Too little memory, too small files, too few open files, no place for temporary ones."""
    for path in (REPORT, EXPORT, TRACE):
        shutil.copy(path, folder / path.name)
        for mib in (200, 300, 400, 500, 700, 1000):
            name = f"{path.name} with {mib} MiB of addresses"
            yield Case(name, ("diagnose", path.name), USUAL | LOADER_GAVE_UP, limits={resource.RLIMIT_AS: mib << 20})
        for size in (0, 4096, 200_000, 3_000_000):
            limit = {resource.RLIMIT_FSIZE: size}
            name = f"{path.name} with files of {size}"
            yield Case(f"{name} diagnose", ("diagnose", path.name), USUAL, limits=limit)
            yield Case(f"{name} save", ("diagnose", path.name, "--save", "c.duckdb"), limits=limit)
            yield Case(f"{name} html", ("diagnose", path.name, "--format", "html", "-o", "o.html"), USUAL, limits=limit)
            yield Case(f"{name} redact", ("redact", path.name, "-o", "o"), USUAL, limits=limit)
            yield Case(f"{name} convert", ("convert", path.name, "-o", "o.pftrace"), USUAL, limits=limit)
        yield Case(f"{path.name} with 12 files", ("diagnose", path.name), USUAL, limits={resource.RLIMIT_NOFILE: 12})
        yield Case(
            f"{path.name} without TMPDIR", ("diagnose", path.name), USUAL, environment={"TMPDIR": "/nonexistent"}
        )
        yield Case(f"{path.name} TMPDIR read-only", ("diagnose", path.name), USUAL, environment={"TMPDIR": "/proc"})


def cases_of_others(folder: Path) -> Iterator[Case]:
    """Saved cases that are newer, cut, locked or written twice."""
    import duckdb

    doctor(("diagnose", str(TRACE), "--save", "good.duckdb"), folder)
    content = (folder / "good.duckdb").read_bytes()
    variants = {
        "cut": content[: len(content) // 2],
        "zeroed": content[:20_000] + bytes(40_000) + content[60_000:],
        "newer-storage": content[:12] + (9999).to_bytes(8, "little") + content[20:],
        "header-only": content[:4096],
        "empty": b"",
    }
    for what, changed in variants.items():
        (folder / f"{what}.duckdb").write_bytes(changed)
    for what, sql in (("newer", "UPDATE schema_version SET version = 10000"), ("other", "DROP TABLE kernel")):
        (folder / f"{what}.duckdb").write_bytes(content)
        with duckdb.connect(folder / f"{what}.duckdb") as database:
            database.execute(sql)
    for what in (*variants, "newer", "other"):
        for command in (("diagnose", f"{what}.duckdb"), ("sql", f"{what}.duckdb", "SELECT count(*) FROM kernel")):
            yield Case(f"case {what} {command[0]}", command)
    (folder / "closed.duckdb").write_bytes(content)
    (folder / "closed.duckdb").chmod(0o444)
    yield Case("case read-only", ("diagnose", "closed.duckdb"), frozenset({0}))
    again = ("diagnose", str(TRACE), "--save", "two.duckdb")
    yield Case(
        "case written twice", again, USUAL, lambda place, process: doctor(again, place), made=frozenset({"two.duckdb"})
    )


def signals(folder: Path) -> Iterator[Case]:
    """Signals at many times of a run that takes some seconds, once Python itself has started."""
    for number, at in ((number, at) for number in (2, 15, 1) for at in (0.2, 0.4, 0.6, 0.9, 1.2, 1.5, 1.9, 2.4, 3.0)):
        for command in (
            ("diagnose", str(REPORT), "--save", "c.duckdb"),
            ("convert", str(REPORT), "-o", "o.sqlite"),
            ("redact", str(EXPORT), "-o", "o.sqlite"),
        ):

            def send(place: Path, process: subprocess.Popen[bytes], number: int = number, at: float = at) -> None:
                time.sleep(at)
                process.send_signal(number)

            name = f"signal {signal.Signals(number).name} at {at} {command[0]}"
            made = frozenset({"c.duckdb", "o.sqlite"})
            yield Case(name, command, frozenset({0, 128 + number, -number}), send, made=made)


GROUPS = {
    "bombs": bombs,
    "sparse": sparse,
    "no files": no_files,
    "names": names,
    "shouting": shouting,
    "changing": changing,
    "limits": limits,
    "cases": cases_of_others,
    "signals": signals,
}


def doctor(arguments: tuple[str, ...], folder: Path) -> None:
    """Run doctor to its end, whatever comes of it."""
    command = [sys.executable, "-m", "doctor.cli.main", *arguments]
    subprocess.run(command, cwd=folder, env=_environment({}), capture_output=True, timeout=SECONDS, check=False)


def _environment(more: dict[str, str]) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def complaints(case: Case, folder: Path) -> list[str]:
    """What is wrong with how a case ended."""
    before = {path.name for path in folder.iterdir()}
    with tempfile.TemporaryDirectory(prefix="doctor-hostile-") as scratch:

        def limit() -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            for kind, most in case.limits.items():
                resource.setrlimit(kind, (most, most))

        process = subprocess.Popen(
            [sys.executable, "-m", "doctor.cli.main", *case.arguments],
            cwd=folder,
            env=_environment({"TMPDIR": scratch, **case.environment}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=limit,  # noqa: PLW1509 - no other thread holds a lock here
        )
        if case.meanwhile is not None:
            threading.Thread(target=case.meanwhile, args=(folder, process), daemon=True).start()
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return ["does not end"]
        left = [path.name for path in Path(scratch).iterdir()]
    made = {path.name for path in folder.iterdir()} - before
    for name in made:
        (folder / name).unlink() if not (folder / name).is_dir() else shutil.rmtree(folder / name)
    kept = made - case.made if process.returncode else ()
    return [*_about_words(process.returncode, case, out, err), *(f"left {name}" for name in (*left, *kept))]


def _about_words(code: int, case: Case, out: bytes, err: bytes) -> Iterator[str]:
    text = err.decode("utf-8", "replace")
    if code not in case.codes:
        yield f"ended with {code}"
    if code in REFUSED and not text.strip():
        yield "says nothing"
    if code not in LOADER_GAVE_UP and any(not line.startswith("doctor: ") for line in text.splitlines()):
        yield "says what is not its own"
    if "Traceback" in text or "bug in doctor" in text:
        yield "calls itself wrong"
    shown = out.decode("utf-8", "replace") + text
    if strange := {repr(one) for one in shown if unicodedata.category(one) in {"Cc", "Cf"} and one not in "\n\t"}:
        yield f"shows {' '.join(sorted(strange))}"


def main(words: list[str]) -> int:
    """Run the cases; return 1 where one of them ended badly."""
    num_bad = num_cases = 0
    for title, group in GROUPS.items():
        with tempfile.TemporaryDirectory(prefix="doctor-hostile-") as place:
            folder = Path(place)
            for case in group(folder):
                if words and not any(word in f"{title}: {case.name}" for word in words):
                    continue
                num_cases += 1
                if found := complaints(case, folder):
                    num_bad += 1
                    sys.stdout.write(f"{title}: {case.name}: {', '.join(found)}\n")
                    sys.stdout.flush()
    sys.stdout.write(f"{num_cases} hostile cases, {num_bad} ended badly\n")
    return int(num_bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
