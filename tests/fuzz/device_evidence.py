"""Damages texts of devices, ranks and CPUs in many ways and reads them.

`python -m tests.fuzz.device_evidence [COUNT] [SEED]`: COUNT inputs for every reader, each read to its end. Allowed are
rows, notes and an `EvidenceError` of one line, in a few seconds; and the rows must fit into a case file. Anything else
is printed with the seed that makes it again, and the exit code is 1. Lines made to defeat regular expressions are among
the inputs.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.load import CaseLoader
from doctor.case.store import create_case
from doctor.errors import EvidenceError
from doctor.readers.nvidia_smi_xml import NvidiaSmiXmlReader
from doctor.readers.nvml_samples import NvmlSamplesReader
from doctor.readers.protocol import Reader, no_progress
from doctor.readers.text.cgroup import CgroupScanner
from doctor.readers.text.document import TextDocumentReader
from doctor.readers.text.expert_log import ExpertLogScanner
from doctor.readers.text.gpustat import GpustatScanner
from doctor.readers.text.kernel_log import KernelLogScanner
from doctor.readers.text.latency_table import LatencyTableScanner
from doctor.readers.text.nccl_log import NcclLogScanner
from doctor.readers.text.nccl_tests import NcclTestsScanner
from doctor.readers.text.nvidia_smi_csv import NvidiaSmiCsvScanner
from doctor.readers.text.nvidia_smi_list import NvidiaSmiListScanner
from doctor.readers.text.nvidia_smi_monitor import NvidiaSmiMonitorScanner
from doctor.readers.text.nvidia_smi_query import NvidiaSmiQueryScanner
from doctor.readers.text.nvidia_smi_table import NvidiaSmiTableScanner
from doctor.readers.text.operator_table import OperatorTableScanner
from doctor.readers.text.profile_sums import ProfileSumsScanner
from doctor.readers.text.result_lines import ResultLinesScanner
from doctor.readers.text.topology import TopologyScanner
from tests.cases import test_lists_and_columns as lists
from tests.cases import test_sums_of_a_profile as sums
from tests.doctor.readers.text import test_kernel_and_host as host
from tests.doctor.readers.text import test_nvidia_smi as smi
from tests.doctor.readers.text import test_topology_and_nccl as cluster
from tests.fuzz.watch import Watch
from tests.support import device_texts
from tests.support.device_texts import nvml_line

MOST_ROWS = 20_000
MOST_LINE = 64 * 1024
KEPT_IN_A_CASE = 20
"""One text in so many is read as a file and put into a case, which costs more than scanning it."""
SCANNERS = (
    CgroupScanner,
    ExpertLogScanner,
    GpustatScanner,
    KernelLogScanner,
    LatencyTableScanner,
    NcclLogScanner,
    NcclTestsScanner,
    NvidiaSmiCsvScanner,
    NvidiaSmiListScanner,
    NvidiaSmiMonitorScanner,
    NvidiaSmiQueryScanner,
    NvidiaSmiTableScanner,
    OperatorTableScanner,
    ProfileSumsScanner,
    ResultLinesScanner,
    TopologyScanner,
)

EPLB = "INFO 11-29 14:43:01 EPLB step: 7 for model m: avg_tokens=2048.00, max_tokens=3150, balancedness=0.6502, steps\n"
NCCL_TESTS = """\
$ ./build/all_reduce_perf -b 64M -e 256M -f 2 -g 2
#  Rank  0 Group  0 Pid   4711 on    machine device  0 [0x07] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    67108864      16777216     float     sum      -1    512.3  130.99  229.23      0    511.0  131.33  229.83      0
# Avg bus bandwidth    : 229.23
"""
ORIGINALS: Mapping[str, tuple[Reader, tuple[str, ...]]] = {
    "nvidia-smi table": (TextDocumentReader(), (smi.OLD_TABLE, smi.MIG_TABLE)),
    "nvidia-smi -q": (TextDocumentReader(), (smi.LONG_REPORT,)),
    "nvidia-smi -q -x": (NvidiaSmiXmlReader(), (smi.XML_REPORT,)),
    "nvidia-smi --query": (TextDocumentReader(), (smi.QUERIES, device_texts.query_gpu(device_texts.busy(3)))),
    "nvidia-smi -L": (TextDocumentReader(), (smi.LIST,)),
    "dmon and pmon": (TextDocumentReader(), (smi.DMON,)),
    "topology": (TextDocumentReader(), (cluster.WITH_CARDS, cluster.WITHOUT_TABS)),
    "nccl log": (TextDocumentReader(), (cluster.OLD_LINES, device_texts.nccl_log(["a", "b"], via="via P2P/IPC/read"))),
    "kernel log": (TextDocumentReader(), (host.LOG,)),
    "host": (TextDocumentReader(), (host.PS + device_texts.cpu_stat(60, 5) + device_texts.process_status(7),)),
    "nccl-tests": (TextDocumentReader(), (NCCL_TESTS,)),
    "client log": (
        TextDocumentReader(),
        (
            "timestamp,latency_ms\n1000.0,180\n1012.5,61\n",
            "2025-05-01 10:00:20,000 inference took 210 ms\n2025-05-01 10:00:21,000 inference took 41 ms\n",
        ),
    ),
    "gpustat": (
        TextDocumentReader(),
        ("[0] NVIDIA A100 | 65'C,  40 %,  98 %,  310 / 400 W | 71002 / 81920 MB | a:python/3099(70000M) b(512M)\n",),
    ),
    "expert log": (TextDocumentReader(), (EPLB * 3 + "step,rank,tokens\n1,0,200\n1,1,300\n",)),
    "sums of a profile": (
        TextDocumentReader(),
        (
            *("".join(form(report, rows) for report, rows in sums.COPIES.items()) for form in sums.FORMS),
            sums.OPERATORS.format(800),
        ),
    ),
    "lists of results": (TextDocumentReader(), tuple(text for _, text, _ in lists.FORMS.values())),
    "nvml samples": (
        NvmlSamplesReader(),
        ("".join(nvml_line(i, [{"busy_share": 0.5}], host={"cpu_count": 8}) for i in range(4)),),
    ),
}
HOSTILE = (
    "|" + " " * 60_000,
    "| 0 " + "a " * 30_000,
    "|    0   N/A  N/A  1 C " + "x" * 60_000 + "|",
    "GPU0\t" * 12_000,
    "Channel 00 : " + "0[0] -> " * 8000,
    "NVRM: Xid (PCI:" + "0" * 60_000,
    "# gpu " + "pwr " * 15_000,
    "memory.used, " * 5000,
    "some avg10=" + "1" * 60_000,
    ":" * 60_000 + " NCCL INFO ",
    "a" * 60_000 + ":1:1 [0] NCCL INFO x",
    "EPLB step: " + "9" * 60_000,
    "Name:\t" + "n" * 60_000,
    "nr_periods " * 6000,
    "[1] GPU | 3'C | 1 / 2 MB | " + "a:b/1(" * 10_000,
    "2025-05-01 10:00:20,000 request " + "latency " * 7000,
    "Killed process 1 (" * 3000,
    "1.0 " * 15_000 + "cudaMemcpyAsync",
    "GPU activities: " + "1" * 60_000 + "%",
    "Time (%) Total Time (ns) " * 2400,
    '"Total Time (ns)' + '","' * 15_000,
    "TP4 " * 12_000 + ": 6.4 s",
    "TP=4" + " -" * 20_000 + "> 6",
    "\x1b[" + "1;" * 30_000,
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace") * 100,
)

Mutation = Callable[[str, random.Random], str]


def cut(text: str, dice: random.Random) -> str:
    """End early."""
    return text[: dice.randrange(len(text) + 1)]


def swap_lines(text: str, dice: random.Random) -> str:
    """Lines in another order, some twice."""
    lines = text.splitlines(keepends=True)
    return "".join(dice.choice(lines) for _ in range(len(lines)))


def strange_number(text: str, dice: random.Random) -> str:
    """Another number where one was."""
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    if not digits:
        return text
    at = dice.choice(digits)
    number = dice.choice(("9" * 12, "9" * 40, "-1", "1e308", "0x7f", "NaN", "\u0664\u0662", "4294967296", "1.5", ""))
    return text[:at] + number + text[at + 1 :]


def strange_byte(text: str, dice: random.Random) -> str:
    """Some other characters."""
    out = list(text)
    for _ in range(dice.choice((1, 3, 20))):
        out[dice.randrange(len(out))] = dice.choice("|,:;\t\n \x00\x1b\u202e<>&[]{}\"'\\%N/A")
    return "".join(out)


def hostile_line(text: str, dice: random.Random) -> str:
    """A line that tires regular expressions."""
    lines = text.splitlines(keepends=True)
    lines.insert(dice.randrange(len(lines) + 1), dice.choice(HOSTILE) + "\n")
    return "".join(lines)


def drop_separators(text: str, dice: random.Random) -> str:
    """Separators that a paste lost."""
    return text.replace(dice.choice(("|", "\t", ",", ":", "  ", '"', "<")), dice.choice(("", " ")))


MUTATIONS: tuple[Mutation, ...] = (cut, swap_lines, strange_number, strange_byte, hostile_line, drop_separators)


def damaged(text: str, dice: random.Random) -> bytes:
    """One input: damaged one to three times."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        text = dice.choice(MUTATIONS)(text, dice) or " "
    raw = text.encode("utf-8", "replace")
    if dice.random() < 0.1:
        at = dice.randrange(len(raw))
        raw = raw[:at] + dice.randbytes(dice.choice((1, 8, 64))) + raw[at:]
    return raw


def outcome_of_scanners(text: str) -> str:
    """What the scanners made of a text, shown the lines that they want; cheaper than a file by far.

    Raises:
        AssertionError: they gave more rows than there can be.
    """
    scanners = tuple(scanner() for scanner in SCANNERS)
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        for scanner in scanners:
            if scanner.is_open or any(clue in line for clue in scanner.clues):
                scanner.line(number, line[:MOST_LINE])
    for scanner in scanners:
        count += sum(batch.rows.num_rows for batch in scanner.drain())
        scanner.facts()
        count += sum(batch.rows.num_rows for batch in scanner.drain())
    assert count <= MOST_ROWS
    return "read" if count else "empty"


def outcome(reader: Reader, path: Path, case: duckdb.DuckDBPyConnection | None) -> str:
    """What the reader made of it.

    Raises:
        AssertionError: it gave more rows than there can be, or an error of several lines.
    """
    parts: list[TableBatch | SourceFacts] = []
    try:
        for part in reader.read(path, no_progress):
            parts.append(part)
            assert sum(p.rows.num_rows for p in parts if isinstance(p, TableBatch)) <= MOST_ROWS
    except EvidenceError as error:
        words = error.message
    else:
        words = ""
    assert len(words.splitlines()) <= 1
    if words:
        return "refused"
    if case is not None:
        CaseLoader(case).load(str(path), parts)
    return "read" if any(isinstance(part, TableBatch) for part in parts) else "empty"


def main(arguments: list[str]) -> int:
    """Read COUNT damaged inputs with every reader; return 1 where one of them was not survived."""
    count, seed = (int(word) for word in [*arguments, *("10000", "0")[len(arguments) :]])
    has_failed = False
    with tempfile.TemporaryDirectory(prefix="doctor-fuzz-") as folder, create_case() as case:
        path = Path(folder) / "damaged"
        for name, (reader, texts) in ORIGINALS.items():
            watch = Watch(name)
            for number in range(seed, seed + count):
                dice = random.Random(f"{name} {number}")
                raw = damaged(dice.choice(texts), dice) or b" "
                is_whole = number % KEPT_IN_A_CASE == 0
                with watch.over(number):
                    if isinstance(reader, TextDocumentReader) and not is_whole:
                        watch.outcomes[outcome_of_scanners(raw.decode("utf-8", "replace"))] += 1
                    else:
                        path.write_bytes(raw)
                        watch.outcomes[outcome(reader, path, case if is_whole else None)] += 1
            has_failed |= watch.num_failed > 0
            sys.stdout.write(watch.report())
            sys.stdout.flush()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
