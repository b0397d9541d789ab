"""Times as bound values: DuckDB takes a small integer for 32 bits wide, and its sums then overflow at two seconds."""

from __future__ import annotations

from typing import Any

import duckdb

from doctor.case.timeline.view import View


def whole(number: int) -> Any:
    """A number that is 64 bits wide whatever its size."""
    return duckdb.LongValue(number)


def bound(view: View) -> dict[str, Any]:
    """The start, length and cells of a view, as queries name them."""
    return {"start": whole(view.start_ns), "length": whole(view.length_ns), "cells": view.cells}
