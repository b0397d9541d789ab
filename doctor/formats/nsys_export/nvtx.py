"""NVTX ranges and marks, in the words of the case file."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from doctor.formats.nsys_export.codes import NVTX_DOMAIN_CREATED, RANGE_KINDS
from doctor.formats.nsys_export.identifiers import process_ids, thread_ids
from doctor.formats.nsys_export.names import StringTable, translate
from doctor.formats.nsys_export.tables import NVTX, ExportTables, Only
from doctor.formats.private_columns import column_without_folders

Domains = Mapping[tuple[int, int], str]
"""Names of NVTX domains by process id and domain id."""


def read_domains(tables: ExportTables, strings: StringTable) -> Domains:
    """Read the events that create NVTX domains; the default domain has none."""
    domains: dict[tuple[int, int], str] = {}
    for batch in tables.batches(NVTX, Only("eventType", (NVTX_DOMAIN_CREATED,))):
        names = _texts(batch, strings).to_pylist()
        pids = process_ids(batch.column("globalTid")).to_pylist()
        for pid, domain_id, name in zip(pids, batch.column("domainId").to_pylist(), names, strict=True):
            if pid is not None and domain_id is not None and name is not None:
                domains[pid, domain_id] = name
    return domains


def ranges(batch: pa.RecordBatch, strings: StringTable, domains: Domains) -> pa.RecordBatch:
    """Rows of `nvtx_range` out of NVTX_EVENTS; event types that are no range or mark are left out."""
    is_range = pc.is_in(batch.column("eventType"), pa.array(list(RANGE_KINDS), pa.int64()))
    return ranges_and_others(batch.filter(is_range), strings, domains)


def ranges_and_others(batch: pa.RecordBatch, strings: StringTable, domains: Domains) -> pa.RecordBatch:
    """A row of `nvtx_range` for each of NVTX_EVENTS; without a kind where it is no range or mark."""
    pids = process_ids(batch.column("globalTid"))
    return pa.RecordBatch.from_pydict(
        {
            "pid": pids,
            "tid": thread_ids(batch.column("globalTid")),
            "start_ns": batch.column("start"),
            "end_ns": ends(batch.column("start"), batch.column("end")),
            "name": column_without_folders(_texts(batch, strings)),
            "domain": _domain_names(pids, batch.column("domainId"), domains),
            "range_kind": translate(batch.column("eventType"), RANGE_KINDS),
        }
    )


def ends(starts: pa.Array, written: pa.Array) -> pa.Array:
    """Ends, NULL where there is none. Exports up to 2021 know no NULL and write 0, which lies before any start."""
    is_absent = pc.fill_null(pc.and_(pc.equal(written, 0), pc.greater(starts, 0)), False)
    return pc.if_else(is_absent, pa.scalar(None, pa.int64()), written)


def _texts(batch: pa.RecordBatch, strings: StringTable) -> pa.Array:
    """Texts, or those that the ids stand for. Exports up to 2021 write an empty text beside an id, and 0 for no id."""
    texts, ids = batch.column("text"), batch.column("textId")
    if ids.null_count == len(ids):
        return texts
    has_id = pc.fill_null(pc.not_equal(ids, 0), False)
    is_empty = pc.and_(has_id, pc.fill_null(pc.equal(texts, ""), False))
    return pc.coalesce(
        pc.if_else(is_empty, pa.scalar(None, pa.string()), texts), strings.look_up(ids).dictionary_decode()
    )


def _domain_names(pids: pa.Array, domain_ids: pa.Array, domains: Domains) -> pa.Array:
    if not domains:
        return pa.nulls(len(pids), pa.string())
    width = 1 << 40
    keys = pc.add(pc.multiply(pids, width), domain_ids)
    return translate(keys, {pid * width + domain_id: name for (pid, domain_id), name in domains.items()})
