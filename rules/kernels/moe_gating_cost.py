"""Routing takes too much of the expert layers: gating, top-k, sorting, permuting tokens.

What happens: before the experts of a layer can multiply, tokens are scored, the best experts of each are picked, tokens
are counted and sorted by expert and moved together; afterwards they are moved back and summed. Written as separate
small kernels this takes a fixed time a layer, and with few tokens it outweighs the products it prepares.

How it is detected: recordings with expert products (grouped or fused expert kernels, by name). Routing is every kernel
named after gating, alignment, permutation or finalising, what runs on the stream between a top-k kernel and the first
expert product, and, whatever they are called, twelve or more kernels and copies between the last dense product, which
is the router's, and the first expert product of the layer: experts chosen in rounds of maximum and mask have no name of
their own. It is at least 15 % of the time of routing and experts together. The win is the run replayed with routing at
5 % of the expert layers, and at no less than 17 us a layer; the distances between the kernels stay.

When it is not this: a loop over experts in Python is `moe-expert-loop`. A top-k without an expert product behind it
belongs to sampling. One kernel that takes most of the time between router and product prepares weights. With the host
behind, the routing kernels cost their launches: `host-dispatch-bound`.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cleared,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="moe-gating-cost",
    title="Expert routing takes as long as experts",
    stage=Stage.SPECIFIC,
    reads=("device_op", "kernel"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_share": Threshold(0.15, "share of the time of expert layers", source="rule of thumb"),
    "reachable": Threshold(
        0.05, "share of the time of expert layers", source="rule of thumb: what fused routing kernels leave"
    ),
    "min_products": Threshold(6, "expert products", source="fewer say nothing about a habit"),
    "least_us": Threshold(
        17.0,
        "us a layer",
        source="4 us for a fused choice (NVIDIA/Megatron-LM#6456, measured under graph replay) and 8 to 19 us for sorting tokens"
        " by expert (sgl-project/sglang#14133 and #7794)",
    ),
    "reach": Threshold(
        24, "kernels from top-k to product", source="top-k, scaling, counting, sorting and gathering, one by one"
    ),
    "many": Threshold(
        12, "kernels from router to product", source="softmax, top-k, sorting, counting and gathering are fewer"
    ),
    "layer_reach": Threshold(
        200, "kernels from router to product", source="ten kernels a round, sixteen rounds, and the sorting behind them"
    ),
}

PRODUCT_NAME = (
    "fused_moe_kernel|moe_?gemm|moe.*_gemm|gemm.*_moe|grouped_?gemm|group_?gemm|groupedgemm|grouped_mm|groupproblemshape|gemmgrouped"
    "|marlin_moe|moe_?wna16|moe_mmk|moe_marlin|fused_experts|moe.*cutlass.*kernel|bmm_.*dynbatch|ck.*moe.*gemm|masked_gemm|m_grouped"
)
ROUTING_NAME = (
    "topk_?gating|topk_?softmax|grouped_topk|moe_fused_gate|moe_align|count_and_sort_expert|expert_?map|expertprefixsum|expertfirsttoken"
    "|expandinputrows|finalize_?moe|finalize_?routing|moe_sum|permute_?tokens|moe_permute|moe_unpermute|unpermute|(pre|post)_reorder"
    "|ep_(scatter|gather)|seg_indptr|sort.*expert|expert.*(sort|count|histogram|offset)|moe.*(topk|router|routing|sorting|gather|scatter)"
    "|routing(index|main|deepseek|renormalize|llama)"
)

ROUTING = f"""
    WITH named AS (
        SELECT name_id, regexp_matches(word, '{PRODUCT_NAME}') AS is_product, regexp_matches(word, '{ROUTING_NAME}') AS is_named,
            regexp_matches(word, 'topk|top_k|moe_fused_gate') AS is_top_k
        FROM (SELECT name_id, lower(name) AS word FROM kernel_name)
    ),
    inside AS (
        SELECT device_op_id, source_id, device_id, stream_id, end_ns - start_ns AS own_ns,
            coalesce(is_product, false) AS is_product, coalesce(is_named, false) AS is_named, coalesce(is_top_k, false) AS is_top_k,
            family = 'gemm' AND NOT coalesce(is_product, false) AS is_dense, coalesce(is_product, false) OR family IN ('gemm', 'attention') AS is_work,
            family IN ('attention', 'rope', 'kv_cache', 'collective') AS is_other,
            family NOT IN ('gemm', 'norm', 'quantise', 'rope', 'kv_cache', 'attention', 'collective') AS is_loose
        FROM device_op AS op LEFT JOIN named USING (name_id), steady_window
        WHERE op.start_ns >= from_ns AND op.start_ns < until_ns AND (op.kind = 'kernel' OR op.copy_kind = 'dtod')
            -- most recordings end here, at no cost
            AND EXISTS (SELECT 1 FROM named WHERE is_product)
    ),
    sequence AS MATERIALIZED (
        SELECT *, (sum((is_work OR is_other OR is_top_k)::INTEGER) OVER
            (PARTITION BY source_id, device_id, stream_id ORDER BY device_op_id ROWS UNBOUNDED PRECEDING))::INTEGER AS block
        FROM inside
    ),
    counted AS (  -- a block is a kernel by which one tells where in a layer the stream is, and what follows it up to the next of them
        SELECT source_id, device_id, stream_id, block, count(*) AS op_count, bool_or(is_product) AS is_product, bool_or(is_dense) AS is_dense,
            bool_or(is_work) AS is_work, bool_or(is_other) AS is_other, bool_or(is_top_k) AS is_top_k, count(*) FILTER (is_loose) AS loose_count,
            sum(own_ns) FILTER (is_loose) AS loose_ns, max(own_ns) FILTER (is_loose) AS longest_ns
        FROM sequence GROUP BY ALL
    ),
    placed AS (
        SELECT *, 1 + coalesce(sum(op_count) OVER ahead, 0) AS place FROM counted
        WINDOW ahead AS (PARTITION BY source_id, device_id, stream_id ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ),
    -- which kernel of some kinds is the last one or the next, as one number: twice its place, and one more where it is of the kind that counts
    told AS (
        SELECT *, max(CASE WHEN is_work OR is_other THEN 2 * place + is_dense::INTEGER END) OVER upto AS dense,
            max(CASE WHEN is_work OR is_top_k THEN 2 * place + (NOT is_work)::INTEGER END) OVER upto AS top_k,
            max(CASE WHEN is_product OR is_dense THEN 2 * place + is_dense::INTEGER END) OVER ahead AS product,
            min(CASE WHEN is_work THEN 2 * place + is_product::INTEGER END) OVER after AS work
        FROM placed
        WINDOW upto AS (PARTITION BY source_id, device_id, stream_id ORDER BY block ROWS UNBOUNDED PRECEDING),
            ahead AS (PARTITION BY source_id, device_id, stream_id ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            after AS (PARTITION BY source_id, device_id, stream_id ORDER BY block ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    ),
    spaced AS (
        SELECT *, is_product AND coalesce(product % 2 = 1, false) AS is_first_product,
            coalesce(dense % 2 = 1 AND work % 2 = 1 AND (work - dense) // 2 <= $layer_reach, false) AS is_between,
            coalesce(top_k % 2 = 1 AND work % 2 = 1 AND (work - top_k) // 2 <= $reach, false) AS is_behind_top_k
        FROM told
    ),
    chosen AS (  -- one long kernel among short ones moves weights, not scores
        SELECT source_id, device_id, stream_id, block, is_first_product, is_behind_top_k, is_between
            AND sum(loose_count) OVER layer >= $many AND 2 * max(longest_ns) OVER layer < sum(loose_ns) OVER layer AS is_one_of_many
        FROM spaced WINDOW layer AS (PARTITION BY source_id, device_id, stream_id, is_between, work)
    ),
    sorted AS (
        SELECT device_op_id, own_ns, is_product, is_product AND is_first_product AS is_first_product,
            NOT is_product AND (is_named OR (is_one_of_many AND is_loose) OR is_behind_top_k) AS is_routing
        FROM sequence JOIN chosen USING (source_id, device_id, stream_id, block)
    )
"""

SQL = f"""{ROUTING}
SELECT product_count, layer_count, routing_count, product_ns, routing_ns, longest.start_ns AS longest_start_ns, longest.end_ns AS longest_end_ns,
    (SELECT sum(busy_ns)::BIGINT FROM device_busy) AS busy_ns
FROM (
    SELECT count(*) FILTER (is_product) AS product_count, count(*) FILTER (is_first_product) AS layer_count,
        count(*) FILTER (is_routing) AS routing_count, coalesce(sum(own_ns) FILTER (is_product), 0)::BIGINT AS product_ns,
        coalesce(sum(own_ns) FILTER (is_routing), 0)::BIGINT AS routing_ns,
        arg_min(device_op_id, (-own_ns, device_op_id)) FILTER (is_routing) AS longest_id
    FROM sorted)
LEFT JOIN device_op AS longest ON device_op_id = longest_id
"""

TARGETS = f"{ROUTING} SELECT device_op_id, $factor AS factor FROM sorted WHERE is_routing"


class Routing(NamedTuple):
    """Kernels of the expert layers in the window."""

    product_count: int
    layer_count: int
    routing_count: int
    product_ns: int
    routing_ns: int
    longest_start_ns: int | None
    longest_end_ns: int | None
    busy_ns: int | None


def judge(row: Routing) -> Verdict:
    """Routing against the whole of the expert layers."""
    if row.product_count < THRESHOLDS["min_products"].value or not row.routing_ns or not row.busy_ns:
        return None
    share = row.routing_ns / (row.routing_ns + row.product_ns)
    if share < THRESHOLDS["min_share"].value:
        return None
    left = THRESHOLDS["reachable"].value
    left_ns = max(row.product_ns * left / (1 - left), row.layer_count * THRESHOLDS["least_us"].value * 1e3)
    if left_ns >= row.routing_ns:
        return Cleared(
            f"routing takes {share:.0%} of the time of the expert layers, but {row.routing_ns / row.layer_count / 1e3:.0f} us a"
            " layer is what fused kernels take"
        )
    values = {name: THRESHOLDS[name].value for name in ("reach", "layer_reach", "many")}
    values["factor"] = left_ns / row.routing_ns
    return Finding(
        summary=f"routing takes {share:.0%} of the time of the expert layers, {row.routing_ns / row.busy_ns:.0%} of the device's time:"
        f" {row.routing_count / max(row.layer_count, 1):.0f} routing kernels a layer",
        evidence=(
            Evidence(
                "routing",
                share,
                "share of expert layers",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns),
            ),
            Evidence("routing of all device work", row.routing_ns / row.busy_ns, "share of device time"),
            Evidence("routing kernels", row.routing_count / max(row.layer_count, 1), "kernels a layer"),
            Evidence("expert products", float(row.product_count), "kernels"),
        ),
        cure=Cure(
            steps=(CureStep(Target.DEVICE_OP, Act.SCALE, TARGETS, values=values),), is_host_work=False, spread=1.5
        ),
        confidence=0.7,
        cleared=f"routing takes {share:.0%} of the expert layers, but they are a small part of the run",
    )


FIXES = (
    Fix(
        "pytorch",
        "one fused top-k softmax kernel; tokens sorted by expert once (torch.argsort, torch.bincount) for torch.nn.functional"
        ".grouped_mm; torch.compile over the router",
        "ten small kernels become two",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html",
    ),
    Fix(
        "vllm",
        "VLLM_USE_FLASHINFER_MOE_FP16=1 / VLLM_USE_FLASHINFER_MOE_FP8=1 (Hopper and later); raise --max-num-seqs",
        "routing, permutation and products in one backend; more tokens share a routing pass",
        source="https://docs.vllm.ai/en/latest/design/moe_kernel_features.html",
    ),
    Fix(
        "sglang",
        "--moe-runner-backend flashinfer_cutlass or flashinfer_trtllm; raise --max-running-requests",
        "fused routing and permutation",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "moe_config: {backend: TRTLLM} on Blackwell, CUTLASS before",
        "routing fused with the permutation",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        'from_pretrained(..., experts_implementation="grouped_mm") and torch.compile(model.forward)',
        "routing is compiled into few kernels",
        source="https://huggingface.co/docs/transformers/experts_interface",
    ),
    Fix(
        "engine",
        "--moe-gating fused",
        "all experts of a token are chosen at once",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Routing,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernels between top-k and expert product fall to two or three, under a tenth of the expert layers' time.",
    doc=__doc__,
)
