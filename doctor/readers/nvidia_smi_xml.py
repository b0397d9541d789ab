"""The long report of `nvidia-smi -q -x`: XML, read as it streams.

The document type names a file that is never fetched; entities, the usual weapon in XML, end the reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi import report
from doctor.formats.nvidia_smi.device_report import DeviceReport
from doctor.readers.evidence_file import open_evidence
from doctor.readers.protocol import Progress
from doctor.readers.text.scanner import batch_of

_MOST_DEPTH = 24
_MOST_TEXT = 4096
_MOST_DEVICES = 1024
_SHARED = {"driver_version": "driver_version", "cuda_version": "cuda_version"}
_ROOT = re.compile(rb"<nvidia_smi_log[\s>]")


class NvidiaSmiXmlReader:
    """One report, with any number of devices."""

    kind = "nvidia-smi"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Told by the root element."""
        return _ROOT.search(head[:4096]) is not None and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows by table, then the facts.

        Raises:
            DamagedEvidenceError: it declares entities, or ends before the first device does.
        """
        log = _Log()
        fault = log.read(open_evidence(path).chunks(progress))
        if log.entity:
            raise DamagedEvidenceError(f"{path} declares XML entities, which nvidia-smi never does: it is not read")
        if not log.rows["gpu_sample"]:
            raise DamagedEvidenceError(f"{path} holds no whole device: run `nvidia-smi -q -x` again")
        for table, rows in log.rows.items():
            if rows:
                yield batch_of(table, rows, self.kind)
        version = log.shared.get("driver_version")
        tool = f"nvidia-smi of driver {version}" if version else "nvidia-smi"
        yield SourceFacts(self.kind, tool, is_complete=fault is None, notes=() if fault is None else (fault,))


class _Log:
    """Rows of the devices whose element was closed."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"gpu_sample": [], "gpu_process": [], "mig_instance": []}
        self.shared: dict[str, Any] = {}
        self.entity = False
        self._path: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._device: DeviceReport | None = None
        self._bus: str | None = None
        self._look, self._count = 0, 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, chunks: Iterator[bytes]) -> str | None:
        """Parse to the end; give one line where the text is cut or broken."""
        try:
            for chunk in chunks:
                self._parser.Parse(chunk, False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            return f"the XML is cut or broken at line {error.lineno}; devices before that were read"
        except _RefusedError:
            return "entities are not read"
        return None

    def _refuse(self, *declaration: Any) -> None:
        self.entity = True
        raise _RefusedError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _MOST_DEPTH:
            raise _RefusedError
        self._path.append(report.part(name))
        self._text, self._length = [], 0
        if len(self._path) == 2 and self._path[-1] == "gpu":
            self._device, self._bus = DeviceReport(), q.bus_id(attributes.get("id", ""))
        elif self._device is not None:
            self._device.section(tuple(self._path[2:]))

    def _characters(self, text: str) -> None:
        if self._length < _MOST_TEXT:
            self._text.append(text)
            self._length += len(text)

    def _end(self, name: str) -> None:
        path = tuple(self._path)
        value = "".join(self._text).strip()[:_MOST_TEXT]
        self._text, self._length = [], 0
        self._path.pop()
        if len(path) == 2 and path[1] == "gpu":
            self._close_device()
        elif self._device is not None and len(path) > 2 and value:
            self._device.leaf(path[2:], value)
        elif len(path) == 2 and path[1] in _SHARED:
            self.shared[_SHARED[path[1]]] = q.word(value)
        elif len(path) == 2 and path[1] == "timestamp":
            self.shared["time_ns"] = q.time_ns(" ".join(value.split()))

    def _close_device(self) -> None:
        if self._device is None or self._count >= _MOST_DEVICES:
            return
        place = {"look_id": self._look, "time_ns": self.shared.get("time_ns"), "device_id": self._count}
        figures = {**self._device.figures(), **self.shared, **place}
        if self._bus is not None:
            figures["pci_bus_id"] = self._bus
        self.rows["gpu_sample"].append(figures)
        self.rows["gpu_process"] += [row | place for row in self._device.processes()]
        self.rows["mig_instance"] += [row | place for row in self._device.instances()]
        self._device = None
        self._count += 1


class _RefusedError(Exception):
    """Raised inside the parser to stop it."""
