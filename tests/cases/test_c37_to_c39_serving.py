"""Public cases of serving policy and measuring.

Evidence is reconstructed from their figures in the engines' own formats: C37 vllm-project/vllm#54607, C38
sgl-project/sglang PR#14050, C39 vllm-project/vllm PR#24343, S11 EleutherAI/lm-evaluation-harness#1468, S12
0xBakeer/qwen38-flash-next-spark#9, S13 vllm-project/vllm#39963, S18 sgl-project/sglang PR#31170. Each also runs with
its tempting cause made true, which must turn the verdict.
"""

from __future__ import annotations

import json

from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic

BLOCK_OF_784 = (
    "INFO 04-25 03:28:52 [config.py:281] Setting attention block size to 784 tokens to ensure that attention page "
    "size is >= mamba "
    "page size.\n"
)
METRICS = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="org/private"}} 801405.0
vllm:prefix_cache_hits_total{{engine="0",model_name="org/private"}} {hits}
vllm:num_requests_running{{engine="0",model_name="org/private"}} 8.0
"""


def requests(shared: int, own: int = 900, count: int = 6) -> str:
    """Requests that begin with the same tokens."""
    begin = list(range(100, 100 + shared))
    return "".join(
        json.dumps(
            {"prompt_token_ids": begin + [7000 + 1000 * place + offset for offset in range(own)], "max_new_tokens": 8}
        )
        + "\n"
        for place in range(count)
    )


def test_c37_a_prefix_of_240_tokens_never_fills_a_block_of_784(clinic: Clinic) -> None:
    verdicts = clinic.told(BLOCK_OF_784, METRICS.format(hits="0.0"), requests(shared=240))
    assert verdicts.first == "prefix-below-block"
    assert "share 240 tokens, a block holds 784" in verdicts.finding("prefix-below-block")["summary"]


def test_c37_prompts_that_share_nothing_are_no_fault_of_the_cache(clinic: Clinic) -> None:
    verdicts = clinic.told(BLOCK_OF_784, METRICS.format(hits="0.0"), requests(shared=0))
    assert not verdicts.found & {"prefix-below-block", "prefix-miss"}


def test_c37_a_long_prefix_that_is_not_found_is_another_fault(clinic: Clinic) -> None:
    verdicts = clinic.told(BLOCK_OF_784, METRICS.format(hits="0.0"), requests(shared=2400, own=300))
    assert verdicts.first == "prefix-miss"
    assert "prefix-below-block" not in verdicts.found


def burst(start: float, tokens: int) -> list[str]:
    """Four prefills back to back while requests are being decoded, then a decode line."""
    queue = (17, 12, 8, 4)
    prefills = [texts.sglang_prefill(start + place, tokens, 50, waiting) for place, waiting in enumerate(queue)]
    return [*prefills, texts.sglang_decode(start + 10, 52)]


def test_c38_prefills_back_to_back_are_named(clinic: Clinic) -> None:
    warm = [texts.sglang_decode(5.0 * place, 48) for place in range(20)]
    bursts = [line for place in range(4) for line in burst(110 + 20.0 * place, 33_000)]
    verdicts = clinic.told(texts.lines(warm, bursts))
    assert verdicts.first == "prefill-blocks-decode"
    assert verdicts.evidence("prefill-blocks-decode", "prefills in a row") == 4


def test_c38_a_burst_while_the_server_fills_is_no_fault(clinic: Clinic) -> None:
    warm = [texts.sglang_decode(10 + 5.0 * place, 48) for place in range(20)]
    assert "prefill-blocks-decode" not in clinic.told(texts.lines(burst(0, 33_000), warm)).found


def test_c38_prefills_in_small_pieces_are_ruled_out(clinic: Clinic) -> None:
    warm = [texts.sglang_decode(5.0 * place, 48) for place in range(20)]
    bursts = [line for place in range(4) for line in burst(110 + 20.0 * place, 4_096)]
    verdicts = clinic.told(texts.lines(texts.sglang_arguments(chunked_prefill_size=4096), warm, bursts))
    assert "prefill-blocks-decode" not in verdicts.found
    assert "4,096 tokens" in verdicts.ruled_out["prefill-blocks-decode"]


def speculating(tokens: int, length: float) -> str:
    """Ten status lines of one running request with drafts of so many tokens."""
    steps = 100
    pairs = [
        line
        for place in range(10)
        for line in (
            texts.vllm_status(10.0 * place, 1, 0, 2.0),
            texts.vllm_speculation(10.0 * place, length, steps * tokens, round(steps * (length - 1)), tokens),
        )
    ]
    settings = {"method": "draft_model", "model": "org/draft", "num_speculative_tokens": tokens}
    return texts.lines(texts.vllm_arguments(speculative_config=settings), pairs)


def test_c39_thirty_two_drafted_tokens_for_one_accepted_are_named(clinic: Clinic) -> None:
    verdicts = clinic.told(speculating(32, 2.18))
    assert verdicts.first == "spec-not-paying"
    assert verdicts.evidence("spec-not-paying", "acceptance length") == 2.18
    assert verdicts.finding("spec-not-paying")["severity"] == "high"


def test_c39_short_drafts_that_are_accepted_are_ruled_out(clinic: Clinic) -> None:
    verdicts = clinic.told(speculating(3, 2.4))
    assert "spec-not-paying" not in verdicts.found
    assert "2.40" in verdicts.ruled_out["spec-not-paying"]


def test_c39_a_table_by_draft_length_names_the_faster_one(clinic: Clinic) -> None:
    verdicts = clinic.told("spec tokens,batch,acceptance length,tok/s\n32,1,2.18,48.3\n1,1,1.63,108.5\n")
    assert verdicts.first == "spec-not-paying"
    assert 2.2 < verdicts.finding("spec-not-paying")["gain"]["speedup_expected"] < 2.3


def replicas(*running: int) -> str:
    """Status lines of several engines over ten minutes."""
    return texts.lines(
        texts.vllm_status(10.0 * place, number, 0, 30.0, engine=engine)
        for place in range(60)
        for engine, number in enumerate(running)
    )


def test_s11_a_replica_that_idles_beside_busy_ones_is_named_and_even_ones_are_not(clinic: Clinic) -> None:
    verdicts = clinic.told(replicas(62, 60, 30, 2))
    assert verdicts.first == "dp-imbalance"
    assert verdicts.evidence("dp-imbalance", "requests on the idlest") == 2
    assert "dp-imbalance" not in clinic.told(replicas(61, 60, 62, 60)).found


def test_s12_a_prefix_cache_that_is_off_is_named_with_its_measured_cost(clinic: Clinic) -> None:
    table = "prefix caching,concurrency,tok/s,TTFT p50 (s),hit rate\noff,8,46.5,5.86,\non,8,81.8,2.55,66.5%\n"
    verdicts = clinic.told("vllm serve org/name --no-enable-prefix-caching --api-key topsecret\n", table)
    assert verdicts.first == "prefix-cache-off"
    assert 1.7 < verdicts.finding("prefix-cache-off")["gain"]["speedup_bound"] < 1.8
    assert "topsecret" not in json.dumps(verdicts.document)


def test_s12_prompts_without_anything_in_common_need_no_prefix_cache(clinic: Clinic) -> None:
    verdicts = clinic.told("vllm serve org/name --no-enable-prefix-caching\n", requests(shared=20))
    assert "prefix-cache-off" not in verdicts.found
    assert "share only" in verdicts.ruled_out["prefix-cache-off"]


def test_s13_two_clients_of_one_server_that_disagree_are_the_finding(clinic: Clinic) -> None:
    table = "client,context,batch,tok/s\naiohttp default buffer,50000,1,44\naiohttp large buffer,50000,1,{}\n"
    assert clinic.told(table.format(486)).first == "client-bottleneck"
    assert clinic.told(table.format(46)).first is None


def test_s18_routing_that_scatters_prefixes_is_named(clinic: Clinic) -> None:
    table = "routing,concurrency,req/s,hit rate\nload,64,5.47,12%\naffinity,64,{},55%\n"
    verdicts = clinic.told(table.format(7.88))
    assert verdicts.first == "prefix-miss"
    assert "prefix-miss" not in clinic.told(table.format(5.60)).found
