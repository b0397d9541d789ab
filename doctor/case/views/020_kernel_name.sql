-- kernel_name: what each distinct kernel name is. Families are told by the vocabulary of the libraries that name kernels; the order of the
-- tests matters, since names nest (a fused attention kernel holds "gemm", a Triton reduction may hold "all_reduce").
--   family: collective, attention, moe, gemm, softmax, norm, rope, kv_cache, activation, sampling, index, concat, quantise, reduction, elementwise, other
--   precision (gemm only): fp64, fp32, tf32, bf16, fp16, fp8, int8, int4, NULL where the name does not tell
--   is_unpacking, is_legacy: code of AWQ, GPTQ, ExLlama and bitsandbytes that writes weights out wider, and all of its kernels that Marlin and Machete replace
-- Family and precision are enumerations: text to whoever reads them, and one byte in each of millions of rows.
CREATE TYPE IF NOT EXISTS work_family AS ENUM (
    'collective', 'attention', 'moe', 'gemm', 'softmax', 'norm', 'rope', 'kv_cache', 'activation', 'sampling', 'select', 'index', 'concat',
    'quantise', 'reduction', 'elementwise', 'other', 'kernel', 'memcpy', 'memset', 'graph');
CREATE TYPE IF NOT EXISTS work_precision AS ENUM ('fp64', 'fp32', 'tf32', 'bf16', 'fp16', 'fp8', 'int8', 'int4');

-- The other words of device work, which its rows are made with.
CREATE TYPE IF NOT EXISTS work_kind AS ENUM ('kernel', 'memcpy', 'memset', 'graph');
CREATE TYPE IF NOT EXISTS copy_direction AS ENUM ('htod', 'dtoh', 'dtod', 'htoh', 'ptop');
CREATE TYPE IF NOT EXISTS memory_place AS ENUM ('pageable', 'pinned', 'device', 'array', 'managed');

CREATE TABLE kernel_name AS
WITH used AS (
    SELECT coalesce(name_id, short_name_id) AS name_id FROM kernel UNION SELECT name_id FROM profile_sum WHERE report = 'kernel'
),
named AS (
    SELECT name_id, text AS name, lower(text) AS word FROM used JOIN text ON text.text_id = used.name_id
),
sorted AS (
    SELECT name_id, name, word,
        CASE
            WHEN regexp_matches(word, '^(void )?(nccl|rccl)|nccl(dev)?kernel|ncclsymk|(^|[^a-z])cross_device_reduce|multimem_all_reduce'
                || '|multimem_(all_gather|reduce_scatter)|(one|two)_?shot_?all_?reduce|allreduce_fusion|lamport.*reduce|all_?reduce.*lamport'
                || '|userbuffers|quick_?reduce|qr_all_reduce|nvshmem|mscclpp?[_:]|deep_ep|custom_all_?reduce|trtllm.*all_?reduce')
                AND NOT regexp_matches(word, '^triton_') THEN 'collective'
            WHEN regexp_matches(word, 'flash|fmha|paged_?attention|unified_attention|batch(prefill|decode)with|(prefill|decode)_?attention|mla_|_mla'
                || '|mem_?eff(icient)?_?att|attention_kernel|attn_fwd|_fwd_kernel|sdpa|xqa|masked_multihead|fused_attention|_attn_|attn_kernel')
                THEN 'attention'
            WHEN regexp_matches(word, 'moe|topk_?gating|topk_?softmax|grouped_topk|expert|permute_tokens|finalize_?routing') THEN 'moe'
            WHEN regexp_matches(word, 'marlin|machete|awq|gptq|gemm|gemv|nvjet|xmma|cutlass.*(mma|conv)|wgmma|matmul|^cijk_|splitkreduce|splitk_reduce'
                || '|_mm_kernel|dot_kernel|linear_kernel|s\d+816|ck::.*(gemm|conv)|tensorop|exllama|bmm_') THEN 'gemm'
            WHEN regexp_matches(word, 'softmax') THEN 'softmax'
            WHEN regexp_matches(word, 'rms_?norm|layer_?norm|group_?norm|batch_?norm|_norm_|norm_kernel|rmsnorm') THEN 'norm'
            WHEN regexp_matches(word, 'rotary|rope') THEN 'rope'
            WHEN regexp_matches(word, 'reshape_and_cache|store_kv|write_kv|kv_cache|kvcache|set_kv|concat_and_cache') THEN 'kv_cache'
            WHEN regexp_matches(word, 'silu|gelu|swiglu|act_and_mul|sigmoid') THEN 'activation'
            WHEN regexp_matches(word, 'multinomial|sampl|radixsort|radix_?topk|gathertopk|topk|bitonicsort|argmax|distribution_nullary|exponential'
                || '|sbtopk|mbtopk|penalt|logits') THEN 'sampling'
            WHEN regexp_matches(word, 'nonzero|write_indices|deviceselect|flatten.*indices') THEN 'select'
            WHEN regexp_matches(word, 'index|gather|scatter|embedding|deviceselect') THEN 'index'
            WHEN regexp_matches(word, 'catarray|cat_array|concat') THEN 'concat'
            WHEN regexp_matches(word, 'quant|fp8_cast|cast.*fp8') THEN 'quantise'
            WHEN regexp_matches(word, 'reduce|triton_red|triton_per|scan|cumsum|sum_kernel') THEN 'reduction'
            WHEN regexp_matches(word, 'elementwise|vectorized|unrolled|triton_poi|copy|fill|transpose|triu|tril|arange|where|compare|cast') THEN 'elementwise'
            ELSE 'other'
        END AS family
    FROM named
)
SELECT name_id, name,
    family::work_family AS family,
    (CASE WHEN family <> 'gemm' THEN NULL
        WHEN regexp_matches(word, 'dgemm|dgemv|(^|[^a-z0-9])f64|\bdouble\b|(^|[^a-z])d\d+gemm|^cijk_[a-z]+_[a-z]+_db_') THEN 'fp64'
        WHEN regexp_matches(word, 'marlin|awq|gptq|int4|_w4|u4|s4_|exllama') THEN 'int4'
        WHEN regexp_matches(word, 'int8|imma|i8i8|_i8|s8_|igemm|s8s8') THEN 'int8'
        WHEN regexp_matches(word, 'e4m3|e5m2|fp8|qmma|_f8|float8') THEN 'fp8'
        WHEN regexp_matches(word, 'tf32|s1688(gemm|_?tensorop|cudnn)|s1688') AND NOT regexp_matches(word, 'h1688|bf16|f16_f16') THEN 'tf32'
        WHEN regexp_matches(word, 'bf16|bfloat16|__nv_bfloat|_bb[a-z]*_|_bh_') THEN 'bf16'
        WHEN regexp_matches(word, 'fp16|f16|half|hgemm|h16816|h1688|h884|_hh[a-z]*_|_hb_') THEN 'fp16'
        WHEN regexp_matches(word, 'sgemm|ffma|f32f32_f32f32|_simt_s|float|f32|_sb_|_s_b_|_sss_') THEN 'fp32'
    END)::work_precision AS precision,
    regexp_matches(word, 'kdequantize|kdequant_mm|kint8vectorquant|kquantizeblockwise|ktransformrowcol|dequantize_weights|dequantize_4bit'
        || '|reconstruct_(gptq|exllama|kernel)|awq_dequantize|dequantize_gptq') AS is_unpacking,
    (is_unpacking OR regexp_matches(word, 'awq|gemm_forward_4bit|gptq|gemm_half_q_half|q4_matmul|q_gemm|exllama|vecquant|kgemm_4bit|kgemv_4bit'))
        AND NOT regexp_matches(word, 'marlin|machete') AS is_legacy
FROM sorted
ORDER BY name_id;
