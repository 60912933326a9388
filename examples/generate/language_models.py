"""GPT-2 and a small Llama that generate text: `prefill` reads a prompt, `decode` takes one token after the other.

Both work on one static cache of keys and values, which are buffers of the module: the package keeps them from call to
call. Needs the transformers library; nothing is downloaded. For trained weights replace the network by
GPT2LMHeadModel.from_pretrained("gpt2", attn_implementation="sdpa").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PretrainedConfig, StaticCache

__all__ = ["CONFIGS", "Generator", "entry_points"]

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


class Generator(nn.Module):
    """A language model with its cache: the keys and values of `length` positions, and how many of them are filled."""

    def __init__(self, name: str, length: int) -> None:
        super().__init__()
        settings = dict(CONFIGS[name])
        kind = settings.pop("kind")
        config: PretrainedConfig = (GPT2Config if kind == "gpt2" else LlamaConfig)(
            **settings, attn_implementation="sdpa"
        )
        torch.manual_seed(0)
        self.network = (GPT2LMHeadModel if kind == "gpt2" else LlamaForCausalLM)(config).eval()
        self.length = length
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        shape = (config.num_hidden_layers, 1, heads, length, config.hidden_size // config.num_attention_heads)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))
        self.register_buffer("filled", torch.zeros(1, dtype=torch.int64))

    def next_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens i64[1, count], behind those that are in the cache -> logits f32[1, vocabulary] of what follows."""
        cache = StaticCache(self.network.config, max_cache_len=self.length)
        positions = self.filled + torch.arange(tokens.shape[1])
        for i, layer in enumerate(cache.layers):
            layer.keys, layer.values, layer.is_initialized = self.keys[i], self.values[i], True
            layer.update = _update(layer, positions)
            layer.get_seq_length = lambda: self.filled
        out = self.network(
            input_ids=tokens, position_ids=positions[None], past_key_values=cache, use_cache=True, logits_to_keep=1,
            attention_mask=self.mask(positions),
        )  # fmt: skip
        self.filled += tokens.shape[1]
        return out.logits[:, -1]

    def mask(self, positions: torch.Tensor) -> torch.Tensor:
        """bool[1, 1, count, length]: which cached positions each token sees: those up to its own."""
        return (torch.arange(self.length) <= positions[:, None])[None, None]


def _update(layer: Any, positions: torch.Tensor) -> Any:
    """What the attention calls: writes the new keys and values to their positions, and gives the whole cache."""

    def update(keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        layer.keys.index_copy_(2, positions, keys)
        layer.values.index_copy_(2, positions, values)
        return layer.keys, layer.values

    return update


class Prefill(nn.Module):
    """Forgets what was generated, and reads a prompt."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, prompt: torch.Tensor) -> torch.Tensor:
        self.generator.filled.zero_()
        return self.generator.next_logits(prompt)


class Decode(nn.Module):
    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        return self.generator.next_logits(token)


def entry_points(generator: Generator) -> dict[str, Any]:
    """What mycc.compile takes: two functions of one package that share weights and state."""
    count = torch.export.Dim("count", min=2, max=generator.length)
    return {
        "prefill": (Prefill(generator), (torch.randint(0, 500, (1, 16)),), None, {"prompt": {1: count}}),
        "decode": (Decode(generator), (torch.zeros(1, 1, dtype=torch.int64),)),
    }
