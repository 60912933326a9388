"""The eight zoo models, two layers each and small, with random weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers as T
from mycc.compiler.capture import ModelGraph, capture
from torch import nn

Dim = torch.export.Dim
NAMES = ("mlp", "resnet50", "bert", "vit", "gpt2", "llama", "mobilenetv2", "whisper_enc")
TEXT = ("bert", "gpt2", "llama")
_SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


class Output(nn.Module):
    """One output of a transformers model."""

    def __init__(self, model: nn.Module, key: str, **options: Any) -> None:
        super().__init__()
        self.model, self.key, self.options = model, key, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(x, **self.options), self.key)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10))


def _text_model(name: str, attention: str) -> nn.Module:
    options: dict[str, Any] = {"attn_implementation": attention}
    if name == "bert":
        config = T.BertConfig(**_SIZES, vocab_size=100, max_position_embeddings=64, **options)
        return Output(T.BertModel(config), "last_hidden_state")
    if name == "gpt2":
        config = T.GPT2Config(
            n_layer=2, n_embd=32, n_head=4, vocab_size=100, n_positions=64, bos_token_id=1, eos_token_id=2, **options
        )
        return Output(T.GPT2LMHeadModel(config), "logits", use_cache=False)
    config = T.LlamaConfig(**_SIZES, num_key_value_heads=2, vocab_size=100, **options)
    return Output(T.LlamaForCausalLM(config), "logits", use_cache=False)


def _image_model(name: str, attention: str) -> nn.Module:
    if name == "resnet50":
        config = T.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], num_labels=10)
        return Output(T.ResNetForImageClassification(config), "logits")
    if name == "mobilenetv2":
        config = T.MobileNetV2Config(num_labels=10, depth_multiplier=0.25, image_size=32)
        return Output(T.MobileNetV2ForImageClassification(config), "logits")
    config = T.ViTConfig(**_SIZES, num_labels=10, image_size=32, patch_size=8, attn_implementation=attention)
    return Output(T.ViTForImageClassification(config), "logits")


def _whisper(attention: str) -> nn.Module:
    config = T.WhisperConfig(
        d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=100, max_source_positions=50, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, attn_implementation=attention,
    )  # fmt: skip
    return Output(T.WhisperModel(config).encoder, "last_hidden_state")


def build(name: str, attention: str = "sdpa") -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model in evaluation mode and its example inputs, of batch 2 and 17 tokens."""
    torch.manual_seed(0)
    if name == "mlp":
        return _mlp().eval(), (torch.randn(2, 32),)
    if name in TEXT:
        return _text_model(name, attention).eval(), (torch.randint(3, 100, (2, 17)),)
    if name == "whisper_enc":
        return _whisper(attention).eval(), (torch.randn(2, 80, 100),)
    inputs = (torch.randn(2, 3, 32, 32),)
    return _settled(_image_model(name, attention), inputs), inputs


def _settled(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> nn.Module:
    """Gives batch norms the statistics of the inputs, so that the signal does not vanish."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    model.train()
    with torch.no_grad():
        model(*inputs)
    return model.eval()


@cache
def captured(name: str, dynamic: bool = False, attention: str = "sdpa") -> ModelGraph:
    """A model's graph, the same one each time: passes leave it as it is."""
    model, inputs = build(name, attention)
    return capture(model, inputs, dynamic_shapes=dynamic_shapes(name) if dynamic else None)


def dynamic_shapes(name: str) -> Any:
    """A dynamic batch, and for text a dynamic sequence."""
    dims = {0: Dim("batch", min=1, max=16)}
    if name in TEXT:
        dims[1] = Dim("seq", min=1, max=60)
    return (dims,)
