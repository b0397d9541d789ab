"""The product that a text names in words (`two RTX 4090s`); of two different ones neither is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_MOST_LINE = 2000
_MOST_NAMES = 16
_NAMES = re.compile(
    r"(?<![\w.\-/])(?:(?:NVIDIA|Tesla|GeForce|Quadro) ){0,2}"
    r"(GB[23]00|B[23]00|GH200|H200(?: NVL)?|H100(?: NVL| PCIe)?|H800|H20|A100(?:[ -](?:SXM4[ -])?(?:40"
    r"|80) ?GB(?: PCIe)?)?|A800|A30|A40|A10G?|L40S?|L4|L20|V100|T4"
    r"|RTX PRO 6000|RTX 6000 Ada|RTX A[456]000|(?:RTX )?(?:50[789]0|40[789]0|30[789]0)(?: Ti)?|RTX 2080 Ti|A6000"
    r"|MI300X|MI325X|MI355X|MI250X?)(?:'?s)?(?![\w\-/])",
)
_GEFORCE = re.compile(r"[2345]0[789]0")
_SIZED = re.compile(r"[ -](?:SXM4[ -])?(40|80) ?GB")


class CardNameScanner:
    """Names of products in sentences."""

    kind = "engine-config"
    is_beside = True
    clues = (
        "B200", "B300", "H200", "H100", "H800", "H20", "A100", "A800", "A30", "A40", "A10", "L40", "L4 ",
        "L20", "V100", "T4 ",
        "RTX", "090", "080", "070", "A6000", "MI3", "MI2",
    )  # fmt: skip

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: each line stands alone."""
        return False

    def line(self, number: int, text: str) -> None:
        """Names in one line."""
        for found in _NAMES.finditer(text[:_MOST_LINE]):
            name = found[1]
            if _GEFORCE.match(name):
                name = f"RTX {name}"
            elif name == "A6000":
                name = "RTX A6000"
            elif (sized := _SIZED.search(name)) is not None:
                name = f"A100 {sized[1]}GB"
            if len(self._names) < _MOST_NAMES:
                self._names.setdefault(name, number)

    def drain(self) -> Iterator[TableBatch]:
        """The one name, once the text is over."""
        if self._is_given:
            self._is_given = False
            [(name, number)] = self._names.items()
            row: dict[str, Any] = {"setting": "card", "spelled": "card", "told": name.lower(), "said_by": "log"}
            yield batch_of("engine_setting", [{**row, "line_id": number}], self.kind)

    def facts(self) -> SourceFacts | None:
        """The product; None where none or several are named."""
        self._is_given = len(self._names) == 1
        return SourceFacts(self.kind, "name of the product", is_complete=True) if self._is_given else None
