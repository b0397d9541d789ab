from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv": "pagde"}, "kv must be one of paged, contiguous, concat, not 'pagde'"),
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"block_size": 1.5}, "block_size must be int, not 1.5"),
        ({"block_size": True}, "block_size must be int, not True"),
        ({"prefix_caching": 1}, "prefix_caching must be bool, not 1"),
        ({"num_blocks": "many"}, "num_blocks must be int or none, not 'many'"),
        ({"memory_share": 0}, r"memory_share must be in \(0, 1\], not 0"),
        ({"memory_share": 1.2}, r"memory_share must be in \(0, 1\], not 1.2"),
        ({"weight_offload": -0.1}, r"weight_offload must be in \[0, 1\], not -0.1"),
        ({"speculate": "magic"}, "speculate must be ngram or draft:FOLDER, not 'magic'"),
        ({"preemption": "swap"}, "preemption=swap needs host_blocks above 0"),
        ({"preemption": "swap", "host_blocks": 4, "kv": "contiguous"}, "preemption=swap needs kv=paged"),
        ({"speculate": "ngram", "overlap": True}, "overlap must be off"),
        ({"ngram_min": 5}, "ngram_min must be at most 4, not 5"),
        ({"cuda_graphs": True, "device": "cpu"}, "cuda_graphs needs a GPU"),
        ({"cuda_graphs": True, "kv": "concat"}, "cuda_graphs needs a GPU"),
        ({"model": 3}, "model must be str, not 3"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_what_is_wanted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig.from_options({"model": "folder", **options})


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown option 'blocksize'; known: admission, after_step"):
        EngineConfig.from_options({"model": "folder", "blocksize": 16})


def test_a_configuration_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="the option model is missing"):
        EngineConfig.from_options({})


def test_replaced_options_are_checked_too() -> None:
    config = EngineConfig("folder")
    assert config.with_options(block_size=32).block_size == 32
    with pytest.raises(ConfigError, match="block_size must be at least 1"):
        config.with_options(block_size=0)
    with pytest.raises(ConfigError, match="unknown option 'size'"):
        config.with_options(size=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be an integer >= 1, not 0"),
        ({"max_new_tokens": True}, "max_new_tokens must be an integer >= 1, not True"),
        ({"temperature": -1}, "temperature must be a number >= 0, not -1"),
        ({"temperature": float("nan")}, "temperature must be a number >= 0, not nan"),
        ({"top_p": 0}, r"top_p must be a number in \(0, 1\], not 0"),
        ({"top_k": 1.5}, "top_k must be an integer >= 0, not 1.5"),
        ({"min_p": 2}, r"min_p must be a number in \[0, 1\], not 2"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0, not 0"),
        ({"presence_penalty": 3}, r"presence_penalty must be a number in \[-2, 2\], not 3"),
        ({"frequency_penalty": "x"}, r"frequency_penalty must be a number in \[-2, 2\], not 'x'"),
        ({"seed": -1}, "seed must be an integer"),
        ({"logprobs": 21}, r"logprobs must be an integer in \[0, 20\], not 21"),
        ({"stop": ("",)}, "stop must be a tuple of texts, none empty"),
        ({"stop_token_ids": ("a",)}, "stop_token_ids must be a tuple of integers"),
        ({"ignore_eos": 1}, "ignore_eos must be true or false, not 1"),
        ({"n": 0}, "n must be an integer >= 1, not 0"),
        ({"temprature": 1}, "unknown sampling option 'temprature'"),
    ],
)
def test_bad_sampling_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingParams.from_options(options)


def test_lists_of_a_json_object_become_tuples() -> None:
    params = SamplingParams.from_options({"stop": ["a", "b"], "stop_token_ids": [3]})
    assert (params.stop, params.stop_token_ids) == (("a", "b"), (3,))
    assert SamplingParams.from_options({"stop": "a"}).stop == ("a",)
