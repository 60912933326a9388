"""Models whose training steps are measured: small ones of each kind, and those of zoo.py."""

from __future__ import annotations

import torch
import zoo
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two convolutions of 3x3 with norms around a skip connection."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inner, outer, 3, stride, 1), nn.Conv2d(outer, outer, 3, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)])
        self.skip = nn.Conv2d(inner, outer, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(h)) + self.skip(x))


def resnet(batch: int) -> tuple[nn.Module, torch.Tensor]:
    stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    body = [Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2)]
    model = nn.Sequential(stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model, torch.randn(batch, 3, 112, 112)


def mlp(batch: int) -> tuple[nn.Module, torch.Tensor]:
    layers = (nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return nn.Sequential(*layers), torch.randn(8 * batch, 784)


class Logits(nn.Module):
    """A transformers model with its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids).logits


def bert(batch: int) -> tuple[nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024, vocab_size=2000,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return Logits(BertForMaskedLM(config)), torch.randint(0, 2000, (max(batch // 2, 1), 128))


def gpt2(batch: int) -> tuple[nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=256, n_layer=2, n_head=4, vocab_size=2000, n_positions=256, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return Logits(GPT2LMHeadModel(config)), torch.randint(0, 2000, (max(batch // 2, 1), 128))


class Tagger(nn.Module):
    """Tokens -> a class for each: embedding, two layers of LSTM, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm, self.head = (
            nn.Embedding(2000, 128),
            nn.LSTM(128, 256, 2, batch_first=True),
            nn.Linear(256, 50),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.table(ids))[0])


def lstm(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return Tagger(), torch.randint(0, 2000, (batch, 32))


def _twice(inner: int, outer: int) -> nn.Sequential:
    convolutions = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
    return nn.Sequential(convolutions[0], nn.GroupNorm(8, outer), nn.SiLU(), convolutions[1], nn.SiLU())


class UNet(nn.Module):
    """x f32[batch, 3, height, width] -> f32[batch, height, width, 8]: three levels, joined by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(3, 32), _twice(32, 64), _twice(64, 128)])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
        self.up, self.head = nn.ModuleList([_twice(128, 64), _twice(64, 32)]), nn.Conv2d(32, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        h = self.down[2](F.max_pool2d(second, 2))
        for grow, up, skip in zip(self.grow, self.up, (second, first), strict=True):
            h = up(torch.cat([grow(h), skip], 1))
        return self.head(h).permute(0, 2, 3, 1)


def unet(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return UNet(), torch.randn(batch, 3, 64, 64)


class GraphNetwork(nn.Module):
    """Messages over the edges of a fixed graph, summed at its nodes: f32[nodes, 64] -> f32[nodes, 7]; three rounds."""

    def __init__(self, nodes: int, edges: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.randint(0, nodes, (2, edges)))
        self.messages = nn.ModuleList([nn.Sequential(nn.Linear(128, 64), nn.ReLU()) for _ in range(3)])
        self.states, self.head = nn.ModuleList([nn.Linear(128, 64) for _ in range(3)]), nn.Linear(64, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source, target = self.edges
        for message, state in zip(self.messages, self.states, strict=True):
            sent = message(torch.cat([x[source], x[target]], 1))
            x = F.relu(state(torch.cat([x, torch.zeros_like(x).index_add(0, target, sent)], 1)))
        return self.head(x)


def graph_network(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return GraphNetwork(256 * batch, 1024 * batch), torch.randn(256 * batch, 64)


SMALL = {
    "mlp": mlp, "resnet": resnet, "bert": bert, "gpt2": gpt2, "lstm": lstm, "unet": unet, "graph": graph_network,
}  # fmt: skip


def built(name: str, batch: int) -> tuple[nn.Module, torch.Tensor]:
    """The model in training mode and its one input; text has half as many rows, of 128 tokens.

    name: of SMALL, or `zoo.` and a name of zoo.py; what gives the output of those no gradient is frozen.
    """
    torch.manual_seed(0)
    if name in SMALL:
        model, x = SMALL[name](batch)
        return model.train(), x
    entry = zoo.ZOO[name.removeprefix("zoo.")]
    model, (x,) = entry.build(), entry.inputs(max(batch // 2, 1) if entry.text else batch)
    for parameter, values in model.named_parameters():
        values.requires_grad_("pooler" not in parameter)
    return model.train(), x
