from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import logits_of  # noqa: E402
from tests.support.real_small_model import small_model_or_skip  # noqa: E402

TEXTS = ("The capital of France is", "def fibonacci(n):\n    ", "Water boils at a temperature of")


@pytest.fixture(scope="module")
def folder() -> Path:
    return small_model_or_skip()


def test_real_model_gives_the_logits_of_transformers(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompts = [torch.tensor(tokenizer(text).input_ids) for text in TEXTS]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    decoder = load_decoder(folder, LoadOptions(dtype=torch.float32, max_positions=128))
    ours = logits_of(decoder, prompts, [[len(prompt) for prompt in prompts]])
    for prompt, logits in zip(prompts, ours, strict=True):
        with torch.inference_mode():
            wanted = model(prompt[None]).logits[0]
        torch.testing.assert_close(logits, wanted, atol=1e-3, rtol=1e-4)
        assert torch.equal(logits.argmax(-1), wanted.argmax(-1))


def test_real_model_knows_the_capital_of_france(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompt = torch.tensor(tokenizer(TEXTS[0]).input_ids)
    (logits,) = logits_of(load_decoder(folder, LoadOptions(max_positions=128)), [prompt], [[len(prompt)]])
    assert tokenizer.decode(logits[-1].argmax()) == " Paris"
