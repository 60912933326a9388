"""GGUF files of small networks, written by the gguf library as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf")

Types = gguf.GGMLQuantizationType
#: of K-quants, for which gguf has no quantisation of its own: where a block's float16 scales lie
_SCALES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def block_bytes(kind: str, w: np.ndarray[Any, Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """Rows of floats [N, K] in blocks; K-quants get random numbers instead, about as large."""
    if kind not in _SCALES:
        return gguf.quants.quantize(w, Types[kind])
    size = gguf.GGML_QUANT_SIZES[Types[kind]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (w.size // size[0], size[1]), np.uint8)
    for at in _SCALES[kind]:
        scale = (random.uniform(0.5, 1, len(blocks)) * w.std() / (400 if kind != "Q6_K" else 1200)).astype("<f2")
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(w.shape[0], -1)


def turned(w: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The rows of q and k as the architecture "llama" has them in a file."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def turned_back(w: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path: Path, network: Any, kinds: dict[str, str], tokens: list[str] | None = None) -> dict[str, Any]:
    """Writes a network.

    kinds: the type of matrices whose name in the file holds a text; "" of all others. Returns what the file's tensors
    stand for, as the network's state dict in float64.
    """
    config = network.config
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if t.startswith("<") and len(t) > 1 else 1 for t in tokens])
        writer.add_token_merges(["t h", "th e"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_chat_template("{{ messages[0].content }}")
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], config.num_hidden_layers)
    state = {}
    for i, (name, tensor) in enumerate(network.state_dict().items()):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        w, heads = tensor.float().numpy(), 0
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            w = turned(w, heads)
        kind = next((k for text, k in kinds.items() if text and text in own), kinds.get("", "F32"))
        if w.ndim == 1:
            kind = "F32"
        if kind in ("F32", "F16"):
            w = w.astype(np.float16 if kind == "F16" else np.float32)
            writer.add_tensor(own, w)
        else:
            blocks = block_bytes(kind, w, i)
            writer.add_tensor(own, blocks, raw_dtype=Types[kind])
            w = gguf.quants.dequantize(blocks, Types[kind])
        state[name] = torch.from_numpy(np.ascontiguousarray(turned_back(w, heads) if heads else w)).double()
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return state
