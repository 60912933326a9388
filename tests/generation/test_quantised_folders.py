"""Folders with GPTQ, AWQ and compressed-tensors weights: the packages compute what the integers stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from mycc.compiler.generation.folder import read_folder
from mycc.compiler.generation.network import load_network

from . import layouts
from .folders import greedy, make_folder, make_network

IDS = torch.tensor([[3, 17, 99, 250, 8, 41]])


def compressed(form: str, weights: dict[str, Any], activations: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
CASES: dict[str, tuple[dict[str, Any], layouts.Writer]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32}, layouts.gptq()),
    "gptq asymmetric": ({"quant_method": "gptq", "bits": 4, "sym": False}, layouts.gptq(symmetric=False)),
    "gptq act order": ({"quant_method": "gptq", "bits": 4, "desc_act": True}, layouts.gptq(act_order=True)),
    "gptq 8 bits": ({"quant_method": "gptq", "bits": 8}, layouts.gptq(8, symmetric=False)),
    "gptq v2": (
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, layouts.gptq(symmetric=False, second=True),
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}, layouts.awq()),
    "packed": (compressed("pack-quantized", INT4), layouts.packed()),
    "packed, zeros and order": (compressed("pack-quantized", INT4), layouts.packed(symmetric=False, act_order=True)),
    "packed 8 bits": (compressed("pack-quantized", {**INT4, "num_bits": 8}), layouts.packed(8)),
    "int8": (compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}), layouts.integers),
    "int8 rows": (
        compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, TOKENS), layouts.integers,
    ),
    "float8": (compressed("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}), layouts.float8),
    "float8 blocks": ({"quant_method": "fp8", "weight_block_size": [32, 32]}, layouts.float8_blocks),
}  # fmt: skip


def folder_of(path: Path, case: str, kind: str = "llama", **more: Any) -> dict[str, torch.Tensor]:
    make_folder(path, kind, initializer_range=0.1, **more)
    return layouts.quantise_folder(path, *CASES[case])


@pytest.mark.parametrize("case", [name for name in CASES if name != "int8 rows"])
def test_integers_stand_for_what_the_layout_says(case: str, tmp_path: Path) -> None:
    floats = folder_of(tmp_path, case, "qwen2")
    network = load_network(read_folder(tmp_path), "AutoModelForCausalLM")
    assert "layers of" in network.quantised
    reference = make_network("qwen2", initializer_range=0.1).double()
    reference.load_state_dict(floats)
    layers = [m for m in network.modules() if hasattr(m, "floats")]
    assert len(layers) == 14
    for layer in layers:
        layer.dtype = torch.float64
    with torch.no_grad():
        found = network.double()(IDS).logits
        np.testing.assert_allclose(found.numpy(), reference(IDS).logits.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.slow  # test_quantized.py compiles a folder of such integers
@pytest.mark.parametrize("case", ["gptq act order", "awq"])
def test_packages_have_the_values_of_the_dequantised_model(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    floats = folder_of(folder, case)
    package = mycc.compile_generation(folder, out=tmp_path / "text.pkg", max_length=32, chunk=8)
    reference = make_network("llama", initializer_range=0.1).double()
    reference.load_state_dict(floats)
    prompt = [5, 6, 7, 8, 9]
    found = list(mycc.load(package).generate_tokens(prompt, max_new_tokens=12, ignore_eos=True))
    assert found == greedy(reference, prompt, 12)


@pytest.mark.slow
def test_rows_of_activations_are_integers(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    floats = folder_of(folder, "int8 rows")
    package = mycc.compile_generation(folder, out=tmp_path / "text.pkg", max_length=32, chunk=8)
    reference = make_network("llama", initializer_range=0.1)
    reference.load_state_dict({name: tensor.float() for name, tensor in floats.items()})
    model = mycc.load(package)
    logits = model.entry("prefill")(IDS.numpy(), np.zeros(1, np.int64), state=model.new_state())
    expected = reference(IDS).logits[:, -1].detach().numpy()
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    assert 1e-5 < error < 0.05, "rows of activations are integers"


def changed(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replaces tensors of the first layer's q_proj, or takes them out."""
    path = folder / "model.safetensors"
    state = load_file(path)
    for name, tensor in tensors.items():
        full = f"model.layers.0.self_attn.q_proj.{name}"
        state.pop(full, None)
        if tensor is not None:
            state[full] = tensor
    save_file(state, path, metadata={"format": "pt"})


BAD: dict[str, tuple[str, dict[str, Any], dict[str, torch.Tensor | None], str]] = {
    "nf4": ("gptq", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, {},
            r"bitsandbytes \(nf4\) are not taken\n  model.layers.0"),
    "gemv": ("awq", {"version": "gemv"}, {}, "AWQ with version 'gemv' is not taken, only gemm"),
    "marlin": ("gptq", {"checkpoint_format": "marlin"}, {}, "checkpoint_format 'marlin' is not taken"),
    "3 bits": ("gptq", {"bits": 3}, {}, "bits 3 is not taken"),
    "sparse": ("packed", {"format": "marlin-24"}, {}, "'model.layers.0.self_attn.q_proj' .* sparse weights"),
    "nvfp4": ("packed", {"format": "nvfp4-pack-quantized"}, {}, "q_proj' .* format nvfp4-pack-quantized is not taken"),
    "missing": ("gptq", {}, {"qzeros": None}, "self_attn.q_proj' .* the tensor .*q_proj.qzeros is missing"),
    "layout": ("awq", {}, {"qweight": torch.zeros(64, 16, dtype=torch.int32)}, r"q_proj' .* qweight is \[64, 16\]"),
    "zero scale": ("gptq", {}, {"scales": torch.zeros(2, 64)}, "q_proj' .* 128 of its 128 scales are zero"),
    "left over": ("gptq", {}, {"oddity": torch.zeros(2)}, "1 tensors that LlamaForCausalLM does not read"),
    "groups": ("gptq", {}, {"g_idx": torch.zeros(64, dtype=torch.int32)}, "do not lie in 2 groups of one size"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_taken_is_named(case: str, tmp_path: Path) -> None:
    base, config, tensors, text = BAD[case]
    folder_of(tmp_path, base, num_hidden_layers=1)
    changed(tmp_path, **tensors)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["quantization_config"].update(config)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(mycc.CompileError, match=f"(?s){text}"):
        load_network(read_folder(tmp_path), "AutoModelForCausalLM")
