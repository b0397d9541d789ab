import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from safetensors.torch import load_file, save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.errors import CheckpointError, ConfigError, UnsupportedArchitectureError  # noqa: E402
from engine.model.fp8 import Fp8Linear, dequantise_blocks, quantise_channels  # noqa: E402
from engine.model.operators import FP8, REFERENCE  # noqa: E402
from engine.model.weight_format import WeightFormat  # noqa: E402
from engine.model.weight_only import quantise_weight_only  # noqa: E402
from engine.model.weights import LoadOptions, load_decoder  # noqa: E402
from tests.support.decoding import draw_prompts, logits_of  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

WHOLE = [[12, 30]]


def distance(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Relative error of all logits."""
    ours_flat, theirs_flat = torch.cat(ours).float(), torch.cat(theirs).float()
    return float((ours_flat - theirs_flat).norm() / theirs_flat.norm())


def logits(folder: Path, options: LoadOptions) -> tuple[list[Tensor], int]:
    decoder = load_decoder(folder, options)
    return logits_of(decoder, draw_prompts((12, 30), 160), WHOLE), decoder.weight_bytes


@pytest.mark.parametrize(
    ("weight_format", "most", "share"),
    [(WeightFormat.FP8, 0.2, 0.55), (WeightFormat.INT8, 0.03, 0.55), (WeightFormat.INT4, 0.4, 0.40)],
)
def test_quantised_layers_take_less_memory_and_stay_close(
    weight_format: WeightFormat, most: float, share: float, tmp_path: Path
) -> None:
    if weight_format != WeightFormat.FP8:
        pytest.importorskip("torchao", reason="needs the package torchao")
    model = make_model("llama", vocab_size=16, hidden_size=128, intermediate_size=256, attention_bias=True)
    folder = save_model(model.to(torch.bfloat16), tmp_path)
    prompts = draw_prompts((12, 30), 16)
    native = load_decoder(folder, LoadOptions())
    quantised = load_decoder(folder, LoadOptions(weight_format=weight_format))
    error = distance(logits_of(quantised, prompts, WHOLE), logits_of(native, prompts, WHOLE))
    assert 0.0 < error < most
    table_bytes = 2 * native.rotary.cos_PD.nbytes
    assert quantised.weight_bytes - table_bytes < share * (native.weight_bytes - table_bytes)


def test_int4_refuses_fp32(tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="needs the package torchao")
    folder = save_model(make_model("llama"), tmp_path)
    with pytest.raises(ConfigError, match="need dtype bfloat16"):
        load_decoder(folder, LoadOptions(weight_format=WeightFormat.INT4))


def test_weight_only_formats_say_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(ConfigError, match="quantization int8 needs torchao"):
        quantise_weight_only(torch.zeros(32, 32), None, WeightFormat.INT8)


def test_fp8_product_is_as_exact_as_its_three_mantissa_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    weight_OI, x_TI = torch.randn(64, 128, generator=generator), torch.randn(9, 128, generator=generator)
    product = Fp8Linear(*quantise_channels(weight_OI), None, REFERENCE)
    exact = x_TI.double() @ weight_OI.double().t()
    # Rounding to 3 mantissa bits moves a number by 2**-4 at most and by about a third of that on average.
    assert (product(x_TI).double() - exact).norm() / exact.norm() < 2**-4


def test_fp8_rows_of_very_different_size_keep_their_precision() -> None:
    weight_OI = torch.randn(32, 64) * torch.logspace(-6, 4, 32)[:, None]
    kept, scale_O = quantise_channels(weight_OI)
    back = kept.float() * scale_O[:, None]
    assert ((back - weight_OI).norm(dim=1) / weight_OI.norm(dim=1)).max() < 2**-4


def test_fp8_product_refuses_sizes_that_are_not_multiples_of_16() -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        Fp8Linear(torch.zeros(24, 64, dtype=FP8), torch.ones(24), None, REFERENCE)


def as_fp8_checkpoint(folder: Path, method: str, scale: str) -> Path:
    """Rewrite a checkpoint with FP8 matrices in the layers, factors per `scale` (row, matrix, block)."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "_proj.weight" in name]:
        weight = tensors[name].float()
        if scale == "block":
            tensors[name], tensors[f"{name}_scale_inv"] = in_blocks(weight, 32)
        else:
            per_row = weight.abs().amax(1) / 448
            factors = per_row[:, None] if scale == "row" else per_row.max()
            tensors[name], tensors[f"{name}_scale"] = (weight / factors).to(FP8), factors.float()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def in_blocks(weight: Tensor, block: int) -> tuple[Tensor, Tensor]:
    rows, columns = (-(-size // block) for size in weight.shape)
    scales = torch.empty(rows, columns)
    kept = torch.empty(weight.shape, dtype=FP8)
    for row in range(rows):
        for column in range(columns):
            place = (slice(row * block, (row + 1) * block), slice(column * block, (column + 1) * block))
            scales[row, column] = weight[place].abs().max() / 448
            kept[place] = (weight[place] / scales[row, column]).to(FP8)
    return kept, scales


@pytest.mark.parametrize(
    ("method", "scale", "is_kept"),
    [("compressed-tensors", "row", True), ("compressed-tensors", "matrix", True), ("fp8", "block", False)],
)
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_fp8_checkpoint_loads_and_stays_close_to_its_original(
    family: str, method: str, scale: str, is_kept: bool, tmp_path: Path
) -> None:
    folder = save_model(make_model(family), tmp_path)
    original, _ = logits(folder, LoadOptions())
    decoder = load_decoder(as_fp8_checkpoint(folder, method, scale), LoadOptions(dtype=torch.float32))
    ours = logits_of(decoder, draw_prompts((12, 30), 160), WHOLE)
    assert 0.0 < distance(ours, original) < 0.15
    assert any(isinstance(module, Fp8Linear) for module in decoder.modules()) == is_kept


@pytest.mark.parametrize("shape", [(64, 64), (96, 40), (130, 33)])
def test_blockwise_fp8_is_undone_also_where_blocks_are_cut_off(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape)
    kept, scales = in_blocks(weight, 32)
    back = dequantise_blocks(kept, scales, torch.float32)
    assert ((back - weight).norm() / weight.norm()) < 2**-4


def test_factors_of_an_fp8_cache_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    folder = save_model(make_model("llama"), tmp_path)
    assert load_decoder(folder, LoadOptions()).kv_scales == {}
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.k_scale"] = torch.tensor(0.5)
    tensors["model.layers.1.self_attn.v_scale"] = torch.tensor([0.25])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert load_decoder(folder, LoadOptions()).kv_scales == {1: (0.5, 0.25)}


def test_factors_that_fit_no_row_are_reported(tmp_path: Path) -> None:
    folder = as_fp8_checkpoint(save_model(make_model("llama"), tmp_path), "compressed-tensors", "row")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.o_proj.weight_scale"] = torch.ones(7, 1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.o_proj\.weight_scale: 7 factors for 64 rows"):
        load_decoder(folder, LoadOptions())


def test_other_quantisation_methods_are_refused_by_name(tmp_path: Path) -> None:
    folder = as_fp8_checkpoint(save_model(make_model("llama"), tmp_path), "gptq", "row")
    with pytest.raises(UnsupportedArchitectureError, match="gptq; readable are fp8"):
        load_decoder(folder, LoadOptions())
