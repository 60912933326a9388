"""Small models of the zoo's eight architectures, with odd sizes: a factory each gives (module, example inputs).

`mycc compile small_zoo.py:bert ...` compiles them. Batch and, for text, sequence are to be made dynamic.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers as T
from torch import nn

VOCABULARY = 101
Example = tuple[nn.Module, tuple[torch.Tensor, ...]]


class First(nn.Module):
    """A transformers model with its first output only."""

    def __init__(self, network: nn.Module, **options: Any) -> None:
        super().__init__()
        self.network, self.options = network, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x, **self.options)[0]  # type: ignore[no-any-return]


def _tokens(batch: int = 2, sequence: int = 9) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, VOCABULARY, (batch, sequence)),)


def _settled(module: nn.Module, *features: int) -> Example:
    """In eval mode, batch norms with the statistics of random inputs."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0
    with torch.no_grad():
        module(torch.randn(4, *features))
    return module.eval(), (torch.randn(2, *features),)


def mlp() -> Example:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(37, 53), nn.GELU(), nn.Linear(53, 41), nn.GELU(), nn.Linear(41, 7)).eval(), (
        torch.randn(2, 37),
    )


def resnet50() -> Example:
    torch.manual_seed(0)
    config = T.ResNetConfig(embedding_size=12, hidden_sizes=[20, 36], depths=[2, 2], num_labels=7)
    return _settled(First(T.ResNetForImageClassification(config)), 3, 37, 45)


def mobilenetv2() -> Example:
    torch.manual_seed(0)
    config = T.MobileNetV2Config(num_labels=7, depth_multiplier=0.25, depth_divisible_by=4, min_depth=4)
    return _settled(First(T.MobileNetV2ForImageClassification(config)), 3, 41, 35)


def vit() -> Example:
    torch.manual_seed(0)
    config = T.ViTConfig(
        hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=52, image_size=24, patch_size=8,
        num_labels=7, attn_implementation="sdpa",
    )  # fmt: skip
    return First(T.ViTForImageClassification(config)).eval(), (torch.randn(2, 3, 24, 24),)


def bert() -> Example:
    torch.manual_seed(0)
    config = T.BertConfig(
        hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=52, vocab_size=VOCABULARY,
        max_position_embeddings=48, attn_implementation="sdpa",
    )  # fmt: skip
    return First(T.BertModel(config)).eval(), _tokens()


def gpt2() -> Example:
    torch.manual_seed(0)
    config = T.GPT2Config(
        n_embd=36, n_layer=2, n_head=3, vocab_size=VOCABULARY, n_positions=48, attn_implementation="sdpa"
    )
    return First(T.GPT2LMHeadModel(config), use_cache=False).eval(), _tokens()


def llama() -> Example:
    torch.manual_seed(0)
    config = T.LlamaConfig(
        hidden_size=48, intermediate_size=76, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=48, attn_implementation="sdpa",
    )  # fmt: skip
    return First(T.LlamaForCausalLM(config), use_cache=False).eval(), _tokens()


def whisper_enc() -> Example:
    torch.manual_seed(0)
    config = T.WhisperConfig(
        d_model=36, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=52, decoder_ffn_dim=52, num_mel_bins=10, max_source_positions=21, vocab_size=VOCABULARY,
        pad_token_id=1, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, attn_implementation="sdpa",
    )  # fmt: skip
    return First(T.WhisperModel(config).encoder).eval(), (torch.randn(2, 10, 42),)


NAMES = ("mlp", "resnet50", "bert", "vit", "gpt2", "llama", "mobilenetv2", "whisper_enc")
TEXT = ("bert", "gpt2", "llama")
