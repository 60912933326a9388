"""Attention in a training step on a real GPU: gradients against float64, and the same bits in every run."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ..gpu.test_attention_gradient import CASES, Case, Model, inputs_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

LARGE = {
    "GPT-2's": Case(heads=(12, 12), queries=128, keys=128, size=(64, 64), causal=True, dropout=0.1, parts=1),
    "long": Case(heads=(4, 2), queries=1000, keys=1000, size=(128, 128), causal=True, parts=2),
    "a mask": Case(heads=(4, 4), queries=300, keys=500, size=(80, 80), mask="bools", parts=2),
    "long heads": Case(heads=(2, 2), queries=100, keys=130, size=(256, 256), dropout=0.2, parts=2),
    "longest heads": Case(heads=(2, 2), queries=50, keys=60, size=(512, 512), parts=2),
}
SMALL = {name: CASES[name] for name in ("heads of 24 and 40", "a window", "rows that the smallest number hides")}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", [*LARGE, *SMALL])
def test_gradients(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    given = {**LARGE, **SMALL}[name]
    case = Case(**{**given.__dict__, "dtype": dtype})
    inputs = inputs_of(case)
    path = mycc.compile(Model(case), tuple(inputs), out=tmp_path / "m.pkg", target="cuda", verify=False)
    run, own = mycc.load(path), [t.cuda() for t in inputs]
    wanted = Model(case, True)(*(t if t.dtype == torch.bool else t.double() for t in inputs))
    found, again = ([t.cpu() for t in run(*own)] for _ in range(2))
    limit = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}[dtype]
    for f, a, w in zip(found, again, wanted, strict=True):
        assert torch.equal(f, a)
        assert ((f.double() - w).norm() / w.norm()).item() < limit


class Layer(nn.Module):
    """Attention with dropout between two linear layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer, self.dropout = nn.Linear(64, 192), nn.Linear(64, 5), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.inner(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.outer(y.transpose(1, 2).flatten(2))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [None, "bf16"])
def test_a_training_package(dtype: str | None, dropout: float, tmp_path: Path) -> None:
    """Without dropout the gradients of eager torch on the GPU; with it a mean of many draws comes near to those."""
    torch.manual_seed(0)
    model = Layer(dropout)
    x, y = torch.randn(3, 70, 64), torch.randint(0, 5, (3, 70))
    path = tmp_path / "m.pkg"
    mycc.compile_training(
        model, (x,), targets=(y,), loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), out=path,
        entries=["gradients"], target="cuda", dtype=dtype, verify=False,
    )  # fmt: skip
    package = mycc.load(path)
    parameters = dict(model.double().eval().named_parameters())
    wanted = torch.autograd.grad(loss(model(x.double()), y), list(parameters.values()))
    runs = [package.gradients(x.cuda(), y.cuda())[1] for _ in range(200 if dropout else 1)]
    for name, w in zip(parameters, wanted, strict=True):
        mean = torch.stack([torch.as_tensor(run[name]).double().cpu() for run in runs]).mean(0)
        limit = 0.1 if dropout else 1e-2 if dtype else 1e-5
        assert ((mean - w).norm() / w.norm()).item() < limit, name
