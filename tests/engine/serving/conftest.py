from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_server import RunningServer, start_server


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="needs the extra 'engine'")
    from tests.support.tiny_models import make_model, save_model
    from tests.support.tiny_tokenizer import save_tokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    save_model(make_model("llama", vocab_size=259, max_position_embeddings=512), folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(checkpoint, tmp_path_factory.mktemp("server"), "--max-open-requests", "400") as running:
        yield running
