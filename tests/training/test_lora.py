"""Adapters of low rank on a frozen model: what is trained, what is kept, and how often frozen weights are read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.formula import evaluate
from torch import nn

SIZE, RANK, CLASSES = 48, 4, 5


class Adapted(nn.Module):
    """A frozen linear with an adapter: x W^T + scale * (x A^T) B^T."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, base.in_features) / RANK)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * (x @ self.lora_a.t()) @ self.lora_b.t()


class Network(nn.Module):
    """A frozen embedding, layers with adapters, a frozen norm and a frozen head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(20, SIZE), nn.LayerNorm(SIZE), nn.Linear(SIZE, CLASSES)
        self.layers = nn.ModuleList(Adapted(nn.Linear(SIZE, SIZE)) for _ in range(3))
        for part in (self.embedding, self.norm, self.head):
            part.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(self.norm(x)))
        return self.head(x).mean(1)


def compiled(model: nn.Module, tokens: torch.Tensor, labels: torch.Tensor, out: Path) -> Any:
    mycc.compile_training(
        model, (tokens,), targets=(labels,), loss=nn.CrossEntropyLoss(), optimizer=_optimizer(model), out=out,
        entries=["step"], options={"build.flags": "-O0"}, verify=False,
    )  # fmt: skip
    return mycc.load(out)


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)


def read_of_weights(t: Any) -> float:
    """Bytes of constants that the kernels of a step read."""
    (row,) = t.manifest["entry_points"]
    return sum(float(evaluate(kernel.get("weights", 0), {})) for kernel in row["kernels"])


def check(model: nn.Module, out: Path) -> Any:
    """Losses are eager's; only adapters are trained and kept; frozen weights are read once in each direction."""
    torch.manual_seed(1)
    tokens, labels = torch.randint(0, 20, (4, 7)), torch.tensor([0, 1, 2, 3])
    twin = copy.deepcopy(model)
    t = compiled(model, tokens, labels, out)
    optimizer = _optimizer(twin)
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(twin(tokens), labels)
        loss.backward()
        optimizer.step()
        assert float(t.step(tokens.numpy(), labels.numpy())) == pytest.approx(loss.item(), rel=1e-4)
    adapters = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {row["name"] for row in t.manifest["training"]["parameters"]} == adapters
    kept = {row["name"] for row in t.manifest["state"]} - adapters
    moments = {name.removeprefix("optimizer.").rpartition(".")[0] for name in kept}
    assert moments - {"", "group0"} <= adapters
    frozen = sum(p.nbytes for p in model.parameters() if not p.requires_grad)
    assert read_of_weights(t) <= 2 * frozen
    return t


def test_frozen_weights_are_read_once_forward_and_once_backward(tmp_path: Path) -> None:
    torch.manual_seed(0)
    t = check(Network(), tmp_path / "lora.pkg")
    adapters = 3 * 2 * RANK * SIZE * 4
    assert sum(np.prod(row["shape"]) * 4 for row in t.manifest["state"] if row["shape"]) == 3 * adapters  # two moments


def test_a_model_that_peft_has_wrapped(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    base = nn.Sequential(nn.Embedding(20, SIZE), nn.Linear(SIZE, SIZE), nn.GELU(), nn.Linear(SIZE, SIZE), Mean())
    config = peft.LoraConfig(r=RANK, target_modules=["1", "3"], lora_dropout=0.0, init_lora_weights=False)
    check(peft.get_peft_model(base, config), tmp_path / "peft.pkg")


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)[:, :CLASSES]
