"""Eight real architectures with random weights, for figures: full sizes, nothing is downloaded.

Transformers builds all but the first from their configurations. A zoo model takes one tensor and gives one tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from torch.export import Dim

__all__ = ["BATCHES", "MODELS", "SEQUENCES", "ZOO", "ZooModel", "decode_step", "grid"]

BATCHES = (1, 2, 7, 16)
SEQUENCES = (1, 17, 128, 300)
VOCABULARY = 1000  # token ids of the inputs; the models' own vocabularies are larger


class FirstOutput(nn.Module):
    """A transformers model with one of its outputs only."""

    def __init__(self, network: nn.Module, output: str, **options: Any) -> None:
        super().__init__()
        self.network, self.output, self.options = network, output, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.network(x, **self.options), self.output)  # type: ignore[no-any-return]


class MLP(nn.Sequential):
    """x f32[batch, width] -> f32[batch, 10]: `depth` layers with GELU and a last one without."""

    def __init__(self, width: int = 512, depth: int = 4) -> None:
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
        super().__init__(*layers, nn.Linear(width, 10))


def _mlp() -> nn.Module:
    return MLP()


def _resnet50() -> nn.Module:
    config = transformers.ResNetConfig(num_labels=1000)
    return FirstOutput(transformers.ResNetForImageClassification(config), "logits")


def _mobilenetv2() -> nn.Module:
    config = transformers.MobileNetV2Config(num_labels=1000)
    return FirstOutput(transformers.MobileNetV2ForImageClassification(config), "logits")


def _vit() -> nn.Module:
    config = transformers.ViTConfig(num_labels=1000, attn_implementation="sdpa")
    return FirstOutput(transformers.ViTForImageClassification(config), "logits")


def _bert() -> nn.Module:
    config = transformers.BertConfig(attn_implementation="sdpa")
    return FirstOutput(transformers.BertModel(config), "last_hidden_state")


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(attn_implementation="sdpa")
    return FirstOutput(transformers.GPT2LMHeadModel(config), "logits", use_cache=False)


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4,
        vocab_size=32000, attn_implementation="sdpa",
    )  # fmt: skip
    return FirstOutput(transformers.LlamaForCausalLM(config), "logits", use_cache=False)


def _whisper_encoder() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
        encoder_ffn_dim=1536, decoder_ffn_dim=1536, attn_implementation="sdpa",
    )  # fmt: skip
    return FirstOutput(transformers.WhisperModel(config).encoder, "last_hidden_state")


class DecodeStep(nn.Module):
    """GPT-2 on one token: ids i64[1, 1], past [layers, 2, 1, heads, positions, size] -> logits [1, 1, vocabulary]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        cache = transformers.DynamicCache()
        for layer, (keys, values) in enumerate(past):
            cache.update(keys, values, layer)
        position = torch.full_like(ids, past.shape[4])
        result = self.network(ids, past_key_values=cache, use_cache=True, position_ids=position)
        return result.logits  # type: ignore[no-any-return]


def decode_step(positions: int = 128) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """GPT-2's step with so many cached positions, and its example inputs."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(attn_implementation="sdpa")
    model = DecodeStep(transformers.GPT2LMHeadModel(config)).eval()
    size = config.n_embd // config.n_head
    past = torch.randn(config.n_layer, 2, 1, config.n_head, positions, size)
    return model, (torch.randint(0, VOCABULARY, (1, 1)), past)


@dataclass(frozen=True)
class ZooModel:
    """One architecture.

    Attributes:
        name: as users of the figures name it.
        create: makes the module.
        features: shape of one input of the batch; () for token ids, whose shape is [batch, sequence].
    """

    name: str
    create: Callable[[], nn.Module]
    features: tuple[int, ...] = ()

    @property
    def text(self) -> bool:
        """Whether it takes token ids, and so has a sequence length."""
        return not self.features

    def build(self) -> nn.Module:
        """The module in eval mode; the same weights at every call."""
        torch.manual_seed(0)
        return _with_statistics(self.create().eval(), self.features)

    def inputs(self, batch: int = 1, sequence: int = 128, seed: int = 1) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        if self.text:
            return (torch.randint(0, VOCABULARY, (batch, sequence), generator=generator),)
        return (torch.randn(batch, *self.features, generator=generator),)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """The batch is dynamic, for text the sequence too."""
        sizes = {0: Dim("batch", min=1, max=64)}
        return ({**sizes, 1: Dim("seq", min=1, max=512)} if self.text else sizes,)


def _with_statistics(module: nn.Module, features: tuple[int, ...]) -> nn.Module:
    """Gives batch norms the statistics of random inputs, or else random weights take the signal down to nothing."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return module
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        module(torch.randn(4, *features))
    for norm in norms:
        norm.eval()
    return module


ZOO = {
    model.name: model
    for model in (
        ZooModel("mlp", _mlp, (512,)),
        ZooModel("resnet50", _resnet50, (3, 224, 224)),
        ZooModel("bert", _bert),
        ZooModel("vit", _vit, (3, 224, 224)),
        ZooModel("gpt2", _gpt2),
        ZooModel("llama", _llama),
        ZooModel("mobilenetv2", _mobilenetv2, (3, 224, 224)),
        ZooModel("whisper_enc", _whisper_encoder, (80, 3000)),
    )
}
MODELS = tuple(ZOO)


def grid(text: bool, full: bool = False) -> list[tuple[int, int]]:
    """(batch, sequence) of the dynamic package: for text every batch and every sequence twice, `full` all pairs."""
    if not text:
        return [(batch, 0) for batch in BATCHES]
    if full:
        return [(batch, sequence) for batch in BATCHES for sequence in SEQUENCES]
    turned = (*SEQUENCES[2:], *SEQUENCES[:2])
    return [*zip(BATCHES, SEQUENCES, strict=True), *zip(BATCHES, turned, strict=True)]
