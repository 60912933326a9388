"""Language models of random weights: GPT-2 and a small Llama.

Needs the transformers library; nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

__all__ = ["CONFIGS", "make_network"]

#: full size, and small ones that compile in seconds; with the usual scale of random weights a text repeats a few words
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"kind": "gpt2", "initializer_range": 0.1},
    "llama": {
        "kind": "llama", "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 1024, "initializer_range": 0.1,
    },
    "gpt2-small": {
        "kind": "gpt2", "vocab_size": 501, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256,
        "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None,
    },
    "llama-small": {
        "kind": "llama", "vocab_size": 501, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
        "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None,
    },
}  # fmt: skip


def make_network(name: str) -> Any:
    """The model of this name in eval mode; the same weights each time."""
    settings = dict(CONFIGS[name])
    config = CONFIG_MAPPING[settings.pop("kind")](**settings)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()
