"""Greedy tokens of small random models of many architectures: those that transformers' generate chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch

from .equality import compare_tokens, compare_wrapped
from .folders import greedy, make_folder, make_network

#: tokens of the prompt and of the answer: past the windows of 24, in pieces of 16
READ, COUNT = 36, 40

_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
#: model_type -> what it needs beside the usual sizes
KINDS: dict[str, dict[str, Any]] = {
    "bamba": {
        "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_d_state": 16, "mamba_n_groups": 1,
    },
    "deepseek_v3": {
        **_EXPERTS, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
    },
    "llama": {},
    "llama4_text": {
        "head_dim": 16, "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2, "num_hidden_layers": 4, "attention_chunk_size": 24, "floor_scale": 8,
    },
    "falcon": {"alibi": False, "multi_query": True, "new_decoder_architecture": False},
    "falcon_h1": {
        "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16, "mamba_n_groups": 1,
    },
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16, "tie_word_embeddings": False},
    "gemma3_text": {
        "head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16, "num_hidden_layers": 6,
        "tie_word_embeddings": False,
    },
    "gpt2": _GPT,
    "gpt_neox": {},
    "gpt_oss": {
        "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "granite": {},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_state": 16, "num_local_experts": 2,
        "num_experts_per_tok": 1, "shared_intermediate_size": 48,
    },
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "num_experts": 2, "num_experts_per_tok": 1,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"hidden_size": 32, "num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 1},
    "mamba": {"state_size": 8},
    "mistral": {"sliding_window": 24},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "nemotron_h": {
        "hybrid_override_pattern": "M*-", "num_hidden_layers": 3, "mamba_num_heads": 8, "mamba_head_dim": 16,
        "ssm_state_size": 16, "n_groups": 1,
    },
    "olmo": {},
    "olmo2": {},
    "phi": {},
    "phi3": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {**_EXPERTS, "num_experts": 4, "head_dim": 16, "decoder_sparse_step": 1},
    "qwen3_next": {
        **_EXPERTS, "layer_types": ["linear_attention", "full_attention"], "head_dim": 16, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "num_experts": 4,
        "shared_expert_intermediate_size": 48,
    },
    "smollm3": {"num_hidden_layers": 4},
}  # fmt: skip
#: those that the fast tests try: windows and a softcap, experts and sinks, learned positions
_FAST = ("gemma2", "gpt2", "gpt_oss")
#: those whose cache is in blocks: sinks and windows, a softcap, keys and values of two sizes
_BLOCKS = ("deepseek_v3", "gemma3_text", "gpt_oss")


@pytest.mark.parametrize("kind", [k if k in _FAST else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_greedy_tokens(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, **KINDS[kind])
    prompt = [(7 * i * i + 3 * i + 11) % 390 + 4 for i in range(READ)]
    wanted = greedy(network, prompt, COUNT)
    assert len(set(wanted)) > 3
    package = mycc.compile_generation(
        network, out=tmp_path / "text.pkg", chunk=16, max_batch=1 + (kind in _BLOCKS), verify=False
    )
    model = mycc.load(package)
    window = getattr(network.config, "sliding_window", None)
    kept = {row["shape"][2] for row in model.manifest["state"] if row["name"].startswith(("keys", "model.keys"))}
    if kind in _BLOCKS:
        assert kept == {16}  # the tokens of a block
    elif window and kind != "phi3":
        assert window + 15 in kept  # the window, and a piece of 16 that is read at once
        assert kept <= {window + 15, 128}
    for _ in range(2):  # a text that begins finds nothing of the one before it
        assert list(model.generate_tokens(prompt, max_new_tokens=COUNT, ignore_eos=True)) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrapped_model_by_torch(kind: str) -> None:
    """The cache, the masks and the places of texts, without a compile."""
    for in_blocks in (False, True):
        assert compare_wrapped(kind, KINDS[kind], 12, in_blocks) == 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_200_tokens_alone_and_in_ragged_batches(kind: str, tmp_path: Path) -> None:
    assert compare_tokens(kind, KINDS[kind], 200, tmp_path).least == 200


def test_bfloat16_rounds_as_eager_does(tmp_path: Path) -> None:
    make_folder(tmp_path / "model", "qwen3", head_dim=16)
    package = mycc.compile_generation(tmp_path / "model", out=tmp_path / "text.pkg", dtype=torch.bfloat16)
    model = mycc.load(package)
    assert {row["dtype"] for row in model.manifest["state"]} == {"bf16"}
    check = model.manifest["check"]
    assert all(own <= 2 * eager for own, eager in zip(check["error"], check["eager"], strict=True))
    assert model.generate("the quick", max_new_tokens=8).text()
