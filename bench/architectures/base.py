"""What the rows of architectures are made of: makers of inputs and small configurations that many share.

A row names a configuration and a model class of transformers, the options of the configuration, and the inputs by
parameter. `batch` is the first dimension of every input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

VOCABULARY = 99
Make = Callable[[int], torch.Tensor]


class Wrapped(torch.nn.Module):
    """A model as a function of tensors that returns tensors; names: parameters, or none for positions."""

    def __init__(self, network: torch.nn.Module, names: Sequence[str] | None, call: Mapping[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.names, self.call = tuple(names) if names is not None else None, dict(call)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.names is None:
            output = self.network(*tensors, **self.call)
        else:
            output = self.network(**dict(zip(self.names, tensors, strict=True)), **self.call)
        fields = output.to_tuple() if hasattr(output, "to_tuple") else output
        return tuple(leaf for leaf in pytree.tree_leaves(fields) if isinstance(leaf, torch.Tensor))


@dataclass(frozen=True)
class Row:
    """One architecture; `inputs` are functions of the batch, `call` are arguments that stay the same."""

    name: str
    kind: str
    config: str
    model: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Make]
    call: Mapping[str, Any] = field(default_factory=dict)

    def module(self) -> Wrapped:
        """The model with random weights."""
        import transformers

        config = getattr(transformers, self.config)(**self.options)
        for part in (config, *(v for v in vars(config).values() if isinstance(v, transformers.PretrainedConfig))):
            part.use_cache = False
        return Wrapped(getattr(transformers, self.model)(config).eval(), tuple(self.inputs), self.call)

    def tensors(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Inputs for a batch."""
        return tuple(make(batch) for make in self.inputs.values())

    def dynamic_shapes(self) -> Any:
        """The batch is dynamic."""
        batch = Dim("batch", min=1, max=64)
        return (tuple({0: batch} for _ in self.inputs),)


def tokens(length: int = 12, high: int = VOCABULARY) -> Make:
    """Whole numbers from 3 to high - 1."""
    return lambda batch: torch.randint(3, high, (batch, length))


def image_tokens(images: int, words: int = 8, token: int = VOCABULARY - 1) -> Make:
    """The places of an image's features, then words."""
    places = lambda batch: torch.full((batch, images), token)  # noqa: E731
    return lambda batch: torch.cat((places(batch), tokens(words, token)(batch)), 1)


def zeros(*shape: int) -> Make:
    return lambda batch: torch.zeros(batch, *shape, dtype=torch.int64)


def ones(*shape: int) -> Make:
    return lambda batch: torch.ones(batch, *shape, dtype=torch.int64)


def floats(*shape: int) -> Make:
    return lambda batch: torch.randn(batch, *shape)


def boxes(length: int) -> Make:
    """Boxes of words on a page of 1000 x 1000: the first corner before the second."""

    def make(batch: int) -> torch.Tensor:
        corner = torch.randint(0, 400, (batch, length, 2))
        return torch.cat((corner, corner + torch.randint(1, 500, (batch, length, 2))), -1)

    return make


TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SEQ2SEQ = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": VOCABULARY,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}  # fmt: skip
PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
STAGES = {"depths": [1, 2], "hidden_sizes": [16, 24], "num_stages": 2}
WAVE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "conv_dim": [16, 16, 16], "conv_stride": [4, 4, 2], "conv_kernel": [8, 4, 4], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "vocab_size": VOCABULARY,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 12, "hidden_sizes": [12, 16, 20, 24], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage4"],
}  # fmt: skip
DETR = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": RESNET,
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_queries": 6,
}  # fmt: skip
CLIP = {"text_config": TEXT, "vision_config": PATCHES, "projection_dim": 16}

IDS = {"input_ids": tokens()}
MASKED = {"input_ids": tokens(), "attention_mask": ones(12)}
PAIR = {"input_ids": tokens(), "decoder_input_ids": tokens(7)}
MASKED_PAIR = {**PAIR, "attention_mask": ones(12), "decoder_attention_mask": ones(7)}
IMAGE = {"pixel_values": floats(3, 32, 32)}
PICTURE = {"pixel_values": floats(3, 64, 64)}
BOTH = {"input_ids": tokens(), "pixel_values": floats(3, 32, 32)}
SOUND = {"input_values": floats(1600)}


def without(options: Mapping[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {**{k: v for k, v in options.items() if k not in names}, **more}


def rows(kind: str, *given: tuple[Any, ...]) -> list[Row]:
    """Rows of one kind: name, the class of the configuration without "Config", model, options, inputs, call."""
    return [Row(name, kind, f"{stem}Config", model, *rest) for name, stem, model, *rest in given]
