"""The matrices of `nvidia-smi topo`: how devices and network cards are connected (`-m`), and peer access (`-p2p`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_DEVICE = re.compile(r"GPU(\d{1,3})$")
_CARD = re.compile(r"(NIC\d{1,3}|mlx\d_\w{1,8}|\w{2,12}_\d{1,3})$")
_NVLINK = re.compile(r"NV(\d{1,3})$")
_LINKS = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS", "SOC"})
_ACCESS = {
    "OK": "ok",
    "CNS": "chipset_not_supported",
    "GNS": "gpu_not_supported",
    "TNS": "topology_not_supported",
    "NS": "not_supported",
    "DR": "disabled",
    "U": "unknown",
}
_RANGES = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?){0,64}$")
_SPLIT = re.compile(r"\t+| {2,}")
_CARD_NAME = re.compile(r"(NIC\d{1,3}): (\w{1,32})$")
_MOST_LINE = 4000
_MOST_LINKS = 20_000
_MOST_CARDS = 1000


class TopologyScanner:
    """Matrices of devices within a text."""

    kind = "topology"
    clues = ("GPU0\t", "GPU0 ", "\tGPU1", "  NIC")

    def __init__(self) -> None:
        self._links: list[dict[str, Any]] = []
        self._affinities: list[dict[str, Any]] = []
        self._columns: list[str] = []
        self._cards: dict[str, str] = {}
        self._found = False
        self._has_peer = False
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Behind a header."""
        return bool(self._columns)

    def line(self, number: int, text: str) -> None:
        """The header, a row of the matrix, or the legend of the cards."""
        line = text[:_MOST_LINE].lstrip("> ")
        if "|" in line:  # a table of Markdown
            line = "\t".join(cell.strip() for cell in line.strip().strip("|").split("|"))
        card = _CARD_NAME.match(line.strip())
        if card is not None and len(self._cards) < _MOST_CARDS:
            self._cards[card.group(1)] = card.group(2)
            return
        words = line.split()
        if not words:
            return
        if _is_header(words):
            # two words in a name: a header is cut where a tab or two spaces stand, else by its words
            cells = [cell for cell in _SPLIT.split(line.strip()) if cell]
            joined = " ".join(words).replace("CPU Affinity", "CPU_Affinity").replace("NUMA Affinity", "NUMA_Affinity")
            self._columns = cells if _is_split_well(cells) else joined.split()
        elif self._columns and (_DEVICE.match(words[0]) or _CARD.match(words[0])):
            self._row(line, words)

    def drain(self) -> Iterator[TableBatch]:
        """Rows so far; names of cards stand in the legend, behind the matrix."""
        if self._affinities:
            yield batch_of("gpu_affinity", self._affinities, self.kind)
            self._affinities = []
        if self._is_over and self._links:
            named = [
                row | {"network_card": self._cards.get(row["network_card"] or "", row["network_card"])}
                for row in self._links
            ]
            yield batch_of("gpu_link", named, self.kind)
            self._links = []

    def facts(self) -> SourceFacts | None:
        """What was found; from here on links are given out."""
        self._is_over = True
        notes = () if self._has_peer else ("the topology of one GPU: it holds no link between GPUs to judge",)
        return SourceFacts(self.kind, "nvidia-smi topo", is_complete=True, notes=notes) if self._found else None

    def _row(self, line: str, words: list[str]) -> None:
        device = _DEVICE.match(words[0])
        ends = [name for name in self._columns if _DEVICE.match(name) or _CARD.match(name)]
        if device is None or len(words) < len(ends) + 1:
            return
        device_id = int(device.group(1))
        for end, word in zip(ends, words[1 : len(ends) + 1], strict=True):
            self._link(device_id, end, word)
        self._affinity(device_id, line, words[len(ends) + 1 :], len(ends))

    def _link(self, device_id: int, end: str, word: str) -> None:
        peer = _DEVICE.match(end)
        row: dict[str, Any] = {"device_id": device_id, "peer_device_id": int(peer.group(1)) if peer else None}
        row["network_card"] = None if peer else end
        self._has_peer = self._has_peer or (peer is not None and row["peer_device_id"] != device_id)
        nvlinks = _NVLINK.match(word)
        if nvlinks is not None:
            row |= {"link_kind": "nv", "nvlink_count": int(nvlinks.group(1))}
        elif word in _LINKS:
            row["link_kind"] = "sys" if word == "SOC" else word.lower()
        elif word in _ACCESS and peer is not None:
            row["peer_access"] = _ACCESS[word]
        else:
            return
        if row["peer_device_id"] != device_id and len(self._links) < _MOST_LINKS:
            self._links.append(row)
            self._found = True

    def _affinity(self, device_id: int, line: str, rest: list[str], end_count: int) -> None:
        """What stands behind the matrix; without tabs an empty cell cannot be seen, so cells are told by their form."""
        cells = [cell.strip() for cell in line.strip().split("\t")][end_count + 1 :] if "\t" in line else rest
        cpus = next((cell for cell in cells if _RANGES.match(cell)), None)
        if not cpus:
            return
        behind = cells[cells.index(cpus) + 1 :]
        node = next((cell for cell in behind if cell), "")
        self._found = True
        self._affinities.append(
            {
                "device_id": device_id,
                "cpu_affinity": cpus,
                "numa_node_id": int(node) if node.isascii() and node.isdigit() and len(node) < 4 else None,
            }
        )


def _is_header(words: list[str]) -> bool:
    return (
        words[0] == "GPU0"
        and len(words) > 1
        and (words[1] == "CPU" or _DEVICE.match(words[1]) is not None or _CARD.match(words[1]) is not None)
    )


def _is_split_well(cells: list[str]) -> bool:
    return all(" " not in cell for cell in cells if cell.startswith(("GPU0", "NIC")))
