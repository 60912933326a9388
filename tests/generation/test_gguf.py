"""GGUF files: the network that is read holds the file's numbers, and its package computes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.checkpoints.gguf_blocks import BLOCKS, read_blocks
from mycc.compiler.generation.folder import read_folder
from mycc.compiler.generation.network import load_network

from .folders import greedy, make_network
from .gguf_files import Types, block_bytes, gguf, write_gguf

IDS = torch.tensor([[3, 17, 99, 250, 8, 41]])
TOKENS = ["<s>", "</s>", "t", "h", "e", "th", "the", "Ġ", *(f"w{i}" for i in range(392))]


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_those_of_gguf(kind: str) -> None:
    w = np.random.default_rng(0).standard_normal((6, 512)).astype(np.float32)
    data = block_bytes(kind, w)
    data[0] = 0  # scales of 0, as groups of zeros have them
    if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"):
        data[0, 2:4] = np.array([0.5], "<f2").view(np.uint8)  # groups of one value
        data[0, 8:12] = 33
    weight = read_blocks(kind, data, 512)
    zeros = 0 if weight.zeros is None else weight.zeros.double().repeat_interleave(weight.group, 1)
    found = (weight.values.double() - zeros) * weight.scales.double().repeat_interleave(weight.group, 1)
    expected = gguf.quants.dequantize(data, Types[kind])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    assert weight.bits == (4 if kind.startswith("Q4") else 8)
    assert int(weight.values.min()) >= -(1 << weight.bits - 1)
    assert int(weight.values.max()) < 1 << weight.bits - 1
    assert bool((weight.scales != 0).all())


WIDE = {"hidden_size": 256, "intermediate_size": 256}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "llama": ("llama", {}, {"": "Q4_0", "token_embd": "Q8_0", "output.weight": "Q8_0"}),
    "tied": ("llama", {"tie_word_embeddings": True}, {"": "Q8_0"}),
    "k": ("llama", WIDE, {"": "Q4_K", "token_embd": "Q6_K", "ffn_up": "Q5_K"}),
    "qwen2": ("qwen2", {}, {"": "Q4_1", "output.weight": "F32", "token_embd": "F32"}),
    "qwen3": ("qwen3", {"head_dim": 32}, {"": "Q5_0", "attn_output": "F16"}),
    "floats": ("llama", {}, {"": "F16"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_networks_hold_the_numbers_of_the_file(case: str, tmp_path: Path) -> None:
    kind, more, types = CASES[case]
    made = make_network(kind, initializer_range=0.1, **more)
    state = write_gguf(tmp_path / "m.gguf", made, types)
    network = load_network(read_folder(tmp_path / "m.gguf"), "AutoModelForCausalLM")
    assert next(network.parameters()).dtype == (torch.float16 if case == "floats" else torch.float32)
    for layer in network.modules():
        if hasattr(layer, "floats"):
            layer.dtype = torch.float64
    made = made.double()
    made.load_state_dict(state)
    with torch.no_grad():
        found, expected = network.double()(IDS).logits, made(IDS).logits
    most = (2e-3 if case == "floats" else 2e-6) * float(expected.abs().max())  # norms in float16
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=most, rtol=0)


def test_a_file_becomes_a_package_with_its_tokenizer(tmp_path: Path) -> None:
    made = make_network("llama", initializer_range=0.1, tie_word_embeddings=True)
    state = write_gguf(tmp_path / "m.gguf", made, {"": "Q4_0", "token_embd": "Q8_0"}, TOKENS)
    path = mycc.compile_generation(tmp_path / "m.gguf", out=tmp_path / "m.pkg", max_length=32, chunk=8)
    made = made.double()
    made.load_state_dict(state)
    model = mycc.load(path)
    found = list(model.generate_tokens([5, 6, 7, 8, 9], max_new_tokens=12, ignore_eos=True))
    assert found == greedy(made, [5, 6, 7, 8, 9], 12)
    prompt = model.chat([{"role": "user", "content": "the"}], max_new_tokens=1).prompt_tokens
    assert prompt[-1] == TOKENS.index("the")


def test_what_is_not_taken_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, make_network("llama", **WIDE), {"": "Q4_0", "ffn_up": "TQ1_0"})
    with pytest.raises(mycc.CompileError, match=r"blk.0.ffn_up.weight.*its type TQ1_0 is not taken"):
        read_folder(path)
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(mycc.CompileError, match="of the architecture mamba are not taken"):
        read_folder(path)
    path.write_bytes(b"GGUF, it says")
    with pytest.raises(mycc.CompileError, match=r"cannot read .* as GGUF"):
        read_folder(path)
