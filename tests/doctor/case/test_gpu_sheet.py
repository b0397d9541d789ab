"""The data sheet of devices: figures with their source, found by the names that drivers print."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from doctor.case.derive import derive
from doctor.case.store import create_case

NAMES = {
    "NVIDIA H200": "H200 SXM",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA A100-SXM4-40GB": "A100 40GB SXM",
    "NVIDIA A100-SXM4-80GB": "A100 80GB SXM",
    "NVIDIA A100 80GB PCIe": "A100 80GB PCIe",
    "A100-PCIE-40GB": "A100 40GB PCIe",
    "NVIDIA A10G": "A10G",
    "NVIDIA A10": "A10",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA H20": "H20",
    "NVIDIA H20-3e": "H20-3e",
    "NVIDIA H800": "H800 SXM",
    "NVIDIA A800-SXM4-80GB": "A800 80GB",
    "NVIDIA L20": "L20",
    "NVIDIA L2": "L2",
    "NVIDIA GeForce RTX 5090": "GeForce RTX 5090",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-32GB": "V100 SXM2",
    "NVIDIA GeForce RTX 4090": "GeForce RTX 4090",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "AMD Instinct MI300X": "MI300X",
    "NVIDIA GeForce GTX 108...": None,
    "NVIDIA A1000": None,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
}


@pytest.fixture(scope="module")
def case() -> Iterator[duckdb.DuckDBPyConnection]:
    with create_case() as connection:
        for name in NAMES:
            connection.execute("INSERT INTO gpu_sample (source_id, name) VALUES (0, ?)", [name])
        derive(connection)
        yield connection


def test_names_that_drivers_print_find_their_product(case: duckdb.DuckDBPyConnection) -> None:
    found = dict(case.execute("SELECT name, product_name FROM gpu_model").fetchall())
    assert {name: found.get(name) for name in NAMES} == NAMES


def test_every_line_says_where_its_figures_are_stated(case: duckdb.DuckDBPyConnection) -> None:
    lines = case.execute(
        "SELECT product_name, source_url, memory_bytes, memory_rate_bytes_per_s FROM gpu_sheet"
    ).fetchall()
    assert len(lines) > 40
    assert all(url.startswith("https://") for _, url, _, _ in lines)
    assert all(memory > 8e9 and rate > 1e11 for _, _, memory, rate in lines)


def test_figures_that_no_public_document_states_are_marked(case: duckdb.DuckDBPyConnection) -> None:
    marked = case.execute("SELECT product_name FROM gpu_sheet WHERE NOT is_confirmed ORDER BY product_name").fetchall()
    assert marked == [("A800 80GB",), ("H20",), ("H20-3e",), ("H800 SXM",), ("L2",), ("L20",)]


def test_figures_of_arithmetic_keep_their_order(case: duckdb.DuckDBPyConnection) -> None:
    wrong = case.execute(
        "SELECT product_name FROM gpu_sheet"
        " WHERE fp32_flop_hz > bf16_flop_hz OR tf32_flop_hz > bf16_flop_hz OR bf16_flop_hz > fp8_flop_hz"
    ).fetchall()
    assert wrong == []
