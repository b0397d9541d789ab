"""Copies of a loaded case that say the same of a run in other words: no annotations, other kernel names, other ids."""

from __future__ import annotations

import re

import duckdb

from doctor.case.derive import derive

SHIFTED_IDS = {
    "pid": 1_000_000,
    "tid": 2_000_000,
    "correlation_id": 500_000,
    "stream_id": 40,
    "context_id": 3,
    "device_id": 5,
}

# other libraries' names for the same work
OTHER_NAMES = {
    "gemm": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_{}",
    "attention": "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, {}>>",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, {}, false>",
    "elementwise": "triton_poi_fused_add_mul_{}",
    "reduction": "triton_red_fused_mean_pow_{}",
    "norm": "triton_red_rms_norm_{}",
    "activation": "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel<{}>>",
    "rope": "rotary_embedding_kernel_{}",
    "index": "void gather_kernel_{}",
    "select": "void at_cuda_detail::cub::DeviceSelectSweepKernel<{}>",
    "sampling": "void at::native::sbtopk::gatherTopK<float, {}>",
    "concat": "CatArrayBatchedCopy_alignedK_contig_{}",
    "collective": "ncclDevKernel_AllReduce_Sum_f32_RING_LL_{}",
    "other": "some_kernel_{}",
}
GROUPED, ROUTING = "void moe_grouped_gemm_kernel_{}", "void moe_align_block_size_kernel_{}"
FP32_LARGE_TILE, FP32_SMALL_TILE = "ampere_sgemm_128x128_tn_{}", "void gemv2T_kernel_val<float, {}>"


def without_annotations(case: duckdb.DuckDBPyConnection) -> None:
    case.execute("DELETE FROM nvtx_range")


def with_other_names(case: duckdb.DuckDBPyConnection) -> None:
    """Give every kernel name another one of its family, precision and tile."""
    derive(case)
    names = case.execute("SELECT name_id, name, family, precision FROM kernel_name").fetchall()
    for name_id, name, family, precision in names:
        pattern = OTHER_NAMES.get(family, OTHER_NAMES["other"])
        if family == "gemm" and precision == "fp32":
            pattern = FP32_LARGE_TILE if _has_large_tile(name) else FP32_SMALL_TILE
        if family in ("gemm", "moe") and (family == "moe" or "group" in name.lower()):
            pattern = GROUPED if re.search("gemm|fused_moe_kernel|grouped_mm", name.lower()) else ROUTING
        case.execute("UPDATE text SET text = ? WHERE text_id = ?", [pattern.format(name_id), name_id])
    case.execute("UPDATE kernel SET short_name_id = name_id")


def with_other_names_and_ids(case: duckdb.DuckDBPyConnection) -> None:
    """Other kernel names, and every process, thread, correlation, stream, context and device numbered anew."""
    columns = case.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    tables = {name for (name,) in case.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    for table, column in columns:
        if table in tables and column in SHIFTED_IDS:
            case.execute(f"UPDATE {table} SET {column} = {column} + {SHIFTED_IDS[column]}")
    with_other_names(case)


def _has_large_tile(name: str) -> bool:
    tile = re.search(r"(\d{2,3})x(\d{2,3})", name)
    return tile is not None and int(tile[1]) * int(tile[2]) >= 4096 and "split" not in name
