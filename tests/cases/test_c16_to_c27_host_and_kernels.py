"""Public cases that a log, a setting or a table of two runs shows: the host's part, graphs, compilation, precision.

Evidence is reconstructed from their figures in the engines' own formats: C16 NVIDIA/TensorRT-LLM#16827, C20
Project-MONAI/VLM-Surgical-Agent-Framework#5, C21 sgl-project/sglang#33483, C22 vllm-project/vllm#580, C24
NVIDIA/TensorRT-LLM#6142, C25 huggingface/transformers#21681, C26 huggingface/text-generation-inference#2388, C27
vllm-project/vllm#21376, S08 bitsandbytes#490, S14 pytorch/pytorch#153195, S15 vllm PR#44152. Each also runs with its
tempting cause made true, which must turn the verdict.
"""

from __future__ import annotations

import json

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

BRIMFUL = """\
kv_cache_config:
  free_gpu_memory_fraction: 0.85
scheduler_config:
  capacity_scheduler_policy: MAX_UTILIZATION
max_batch_size: 256
"""
POLICIES = """\
scheduler_policy,concurrency,output tok/s,TPOT p50 (ms),TPOT p99 (ms)
GUARANTEED_NO_EVICT,256,{kept},60,122
MAX_UTILIZATION,256,{brimful},70,{tail}
"""
LLAMA_13B = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
    "intermediate_size": 13824, "vocab_size": 32000, "torch_dtype": "float16", "tie_word_embeddings": False,
}  # fmt: skip


def test_c16_a_policy_that_admits_to_the_brim_is_named_with_its_tail(clinic: Clinic) -> None:
    verdicts = clinic.told(BRIMFUL, POLICIES.format(kept=161.0, brimful=95.7, tail=1111))
    assert verdicts.first == "kv-preemption-thrash"
    finding = verdicts.finding("kv-preemption-thrash")
    assert "122 to 1111 ms" in finding["summary"]
    assert finding["fixes"][0]["setting"].endswith("{capacity_scheduler_policy: GUARANTEED_NO_EVICT}")


def test_c16_without_pressure_the_same_policy_is_no_fault(clinic: Clinic) -> None:
    verdicts = clinic.told(BRIMFUL, POLICIES.format(kept=576.1, brimful=574.7, tail=125))
    assert "kv-preemption-thrash" not in verdicts.found


def test_c20_a_recipe_that_switches_graphs_off_is_named_with_its_measured_cost(clinic: Clinic) -> None:
    command = (
        "docker run --gpus all vllm/vllm-openai:v0.8.2 --model nvidia/private --enforce-eager --max-model-len 4096\n"
    )
    verdicts = clinic.told(command, "eager,batch,tok/s\ntrue,1,11.2\nfalse,1,45.9\n")
    assert verdicts.first == "cudagraph-off"
    assert verdicts.finding("cudagraph-off")["gain"]["speedup_expected"] > 4.0


def test_c20_eager_prefill_beside_decode_with_graphs_is_no_fault(clinic: Clinic) -> None:
    decode = [texts.sglang_decode(10 + second, 12) for second in range(20)]
    prefill = [texts.sglang_prefill(40 + second, 2000, 0) for second in range(5)]
    assert "cudagraph-off" not in clinic.told(texts.lines(decode, prefill)).found


def test_c21_a_batch_above_the_captured_sizes_is_named_although_nobody_waits(clinic: Clinic) -> None:
    above = [texts.sglang_decode(5.0 * place, 67, graph=False, rate=600) for place in range(40)]
    below = [texts.sglang_decode(200 + 5.0 * place, 23, rate=900) for place in range(10)]
    verdicts = clinic.told(
        texts.lines(texts.sglang_arguments(cuda_graph_max_bs=32, max_running_requests=4096), above, below)
    )
    assert verdicts.first == "cudagraph-ceiling"
    assert verdicts.evidence("cudagraph-ceiling", "largest captured batch") == 32
    assert "cudagraph-off" not in verdicts.found


def test_c21_a_large_batch_that_is_captured_is_no_fault(clinic: Clinic) -> None:
    lines = [texts.sglang_decode(5.0 * place, 67) for place in range(40)]
    verdicts = clinic.told(texts.lines(texts.sglang_arguments(cuda_graph_max_bs=128, max_running_requests=4096), lines))
    assert not verdicts.found & {"cudagraph-ceiling", "cudagraph-off"}


def test_c21_with_data_parallel_attention_the_requests_of_all_ranks_count(clinic: Clinic) -> None:
    arguments = texts.sglang_arguments(cuda_graph_max_bs=64, dp_size=8, enable_dp_attention=True)
    lines = [texts.sglang_decode(5.0 * place, 20, graph=place % 10 > 0) for place in range(40)]
    verdicts = clinic.told(texts.lines(arguments, lines))
    assert "160 requests" in verdicts.finding("cudagraph-ceiling")["summary"]


def test_c22_a_server_that_halves_the_device_is_named(clinic: Clinic) -> None:
    table = "mode,batch,GPU util percent,tok/s\nhttp server,64,50,610\noffline,64,95,1180\n"
    assert clinic.told(table).first == "step-gap-scheduler"


def test_c22_a_server_that_costs_little_is_no_fault(clinic: Clinic) -> None:
    table = "mode,batch,GPU util percent,tok/s\nhttp server,64,93,1150\noffline,64,95,1180\n"
    assert clinic.told(table).first is None


def test_c24_the_line_about_the_recompile_limit_is_enough(clinic: Clinic) -> None:
    log = (
        "[07/15/2025-10:02:11] [TRT-LLM] [I] max_seq_len=4096, max_num_requests=128, max_num_tokens=8192\n"
        "W0715 10:02:31.1 841 torch/_dynamo/convert_frame.py:1016] [18/8] torch._dynamo hit "
        "config.recompile_limit (8)\n"
        "W0715 10:02:31.1 841 torch/_dynamo/convert_frame.py:1016] [18/8]    function: 'forward' "
        "(/home/somebody/model.py:37)\n"
        "W0715 10:02:31.1 841 torch/_dynamo/convert_frame.py:1016] [18/8]    last reason: 18/7: tensor "
        "'input_ids' size mismatch at "
        "index 0. expected 1, actual 128\n"
    )
    verdicts = clinic.told(log)
    assert verdicts.first == "recompile-storm"
    assert "somebody" not in json.dumps(verdicts.document)


def test_c24_compiling_before_the_server_is_ready_is_warm_up(clinic: Clinic) -> None:
    compiled = [
        "V0715 10:00:01.1 841 torch/_dynamo/guards.py:2] [0/1] [__recompiles] Recompiling function forward in x.py:1"
    ] * 5
    assert "recompile-storm" not in clinic.told(texts.lines(compiled, texts.SERVING, texts.vllm_status(30, 4))).found


def test_c25_a_16_bit_checkpoint_in_fp32_is_named(clinic: Clinic) -> None:
    verdicts = clinic.told(json.dumps(LLAMA_13B), ">>> model.dtype\nmodel.dtype = torch.float32\n")
    assert verdicts.first == "wrong-dtype-fp32"
    assert "stored in float16" in verdicts.finding("wrong-dtype-fp32")["summary"]


def test_c25_weights_of_four_bytes_a_parameter_tell_without_a_setting(clinic: Clinic) -> None:
    log = "INFO 03-01 10:00:00 [gpu_model_runner.py:1108] Model loading took {} GiB and 9.1 seconds\n"
    heavy = clinic.told(json.dumps(LLAMA_13B), log.format("48.4882"))
    assert 3.9 < heavy.evidence("wrong-dtype-fp32", "weights") < 4.1
    assert "wrong-dtype-fp32" not in clinic.told(json.dumps(LLAMA_13B), log.format("24.2441")).found


def test_c26_fp8_that_is_widened_is_named_and_stays_low_in_decode(clinic: Clinic) -> None:
    log = (
        '2024-08-08T07:50:19.123456Z  INFO text_generation_launcher: Args {\n    model_id: "org/private",\n    '
        "quantize: Some(\n"
        '        Fp8,\n    ),\n    num_shard: Some(\n        1,\n    ),\n    hostname: "pod-7",\n}\n'
        "2024-08-08T07:50:40.000000Z  INFO text_generation_launcher: GPU does not support FP8, using Marlin FP8 "
        "kernel\n"
    )
    verdicts = clinic.told(log)
    assert verdicts.first == "fp8-no-hardware"
    assert verdicts.finding("fp8-no-hardware")["severity"] == "low"
    assert not {"pod-7", "org/private"} & set(json.dumps(verdicts.document).replace('"', " ").split())


def test_c26_marlin_by_choice_on_a_device_with_fp8_is_ruled_out(clinic: Clinic) -> None:
    line = (
        "2024-08-08T07:50:40.0Z  INFO text_generation_launcher: GPU supports FP8, but using Marlin FP8 kernel for "
        "better performance\n"
    )
    verdicts = clinic.told(line)
    assert verdicts.first is None
    assert "by choice" in verdicts.ruled_out["fp8-no-hardware"]


AWQ_FORCED = (
    "INFO 07-22 15:46:11 [awq_marlin.py:112] Detected that the model can run with awq_marlin, however you specified "
    "quantization=awq explicitly, so forcing awq. Use quantization=awq_marlin for faster inference\n"
    "WARNING 07-22 15:46:11 [config.py:335] awq quantization is not fully optimized yet. The speed can be slower than "
    "non-quantized models.\n"
)


def test_c27_a_forced_old_kernel_is_named_with_its_measured_cost(clinic: Clinic) -> None:
    verdicts = clinic.told(AWQ_FORCED, "quantization,batch,tok/s\nawq,1,23\nawq_marlin,1,123\n")
    assert verdicts.first == "quant-kernel-legacy"
    assert 5 < verdicts.finding("quant-kernel-legacy")["gain"]["speedup_expected"] < 6


def test_c27_a_device_that_is_too_old_for_marlin_has_no_choice(clinic: Clinic) -> None:
    look = "index, name, memory.used [MiB], memory.total [MiB]\n0, Tesla T4, 9000 MiB, 15360 MiB\n"
    verdicts = clinic.told(AWQ_FORCED, look)
    assert "quant-kernel-legacy" not in verdicts.found
    assert "too old" in verdicts.ruled_out["quant-kernel-legacy"]


def test_s08_bitsandbytes_for_serving_is_named_and_fp8_is_not(clinic: Clinic) -> None:
    slow = {**LLAMA_13B, "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    fast = {**LLAMA_13B, "quantization_config": {"quant_method": "fp8"}}
    assert clinic.told(json.dumps(slow)).first == "quant-kernel-legacy"
    assert "quant-kernel-legacy" not in clinic.told(json.dumps(fast)).found


TF32 = (
    "/usr/lib/python3/dist-packages/torch/_inductor/compile_fx.py:194: UserWarning: TensorFloat32 tensor cores "
    "for float32 matrix "
    "multiplication available but not enabled. Consider setting `torch.set_float32_matmul_precision('high')`\n"
)


def test_s14_the_warning_about_tf32_counts_unless_the_model_is_in_16_bits(clinic: Clinic) -> None:
    assert clinic.told(TF32).first == "tf32-off"
    verdicts = clinic.told(TF32 + "vllm serve org/name --dtype bfloat16\n")
    assert "tf32-off" not in verdicts.found
    assert "bfloat16" in verdicts.ruled_out["tf32-off"]


def test_s15_a_missing_table_for_experts_is_an_opportunity_and_never_first(clinic: Clinic) -> None:
    line = (
        "WARNING 11-07 19:34:49 [fused_moe.py:1167] Using default MoE config. Performance might be sub-optimal! "
        "Config file not found at "
        "/opt/fused_moe/configs/E=128,N=768,device_name=NVIDIA_H20.json\n"
    )
    full = [texts.vllm_status(10.0 * place, 16, 30, 98.5) for place in range(20)]
    verdicts = clinic.told(texts.lines(line.strip(), full))
    assert verdicts.first == "kv-pool-too-small"
    assert verdicts.finding("moe-default-config")["severity"] == "low"
    assert "NVIDIA H20" in verdicts.finding("moe-default-config")["summary"].upper()
