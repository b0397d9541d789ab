"""Names of kernels as a narrow screen shows them."""

from __future__ import annotations

import re

from doctor.reports.wording import clean

_WITHOUT_NAME = ("<unnamed>::", "(anonymous namespace)::")
_WHAT_IT_COMPUTES = re.compile(
    r"CUDAFunctor(?:On[A-Z][a-z]+)?_(\w+)|(\w+?)(?:_kernel_cuda|_cuda_kernel|_kernel_impl|_kernel|Functor)(?=[(<,>_])"
)
_SAYS_NOTHING = frozenset({"Binary", "Unary", "BUnary", "AUnary", "gpu", "gpu_kernel_impl", "Compare", "Opaque"})


def short_name(name: str) -> str:
    """A kernel's function without namespaces and template arguments; what an elementwise kernel computes."""
    text = clean(name).removeprefix("void ")
    for word in _WITHOUT_NAME:
        text = text.replace(word, "")
    head = text.split("<", maxsplit=1)[0].split("(", maxsplit=1)[0].rsplit("::", maxsplit=1)[-1].strip()
    if "elementwise" not in head:
        return head or text
    found = (first or second for first, second in _WHAT_IT_COMPUTES.findall(text.removeprefix(head)))
    inner = next((word for word in found if word not in _SAYS_NOTHING and word not in head), "")
    return f"{inner} {head}".strip()
