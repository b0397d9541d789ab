"""Names of kernels as a narrow screen shows them."""

from __future__ import annotations

import re

from doctor.reports.wording import clean

_FUNCTOR = re.compile(r"(\w+)(?:_kernel_cuda|_cuda_kernel|_kernel)(?=[(<])")


def short_name(name: str) -> str:
    """A kernel's function without namespaces and template arguments; what an elementwise kernel computes."""
    text = clean(name).removeprefix("void ")
    head = text.split("<", maxsplit=1)[0].split("(", maxsplit=1)[0].rsplit("::", maxsplit=1)[-1].strip()
    inner = [word for word in _FUNCTOR.findall(text) if word not in head]
    return f"{inner[0]} {head}" if inner and "elementwise" in head else head or text
