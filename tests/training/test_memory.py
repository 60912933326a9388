"""A budget of memory: a step keeps less for its backward, computes more again, and trains as eager torch does."""

from __future__ import annotations

import copy
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture.state import share_state
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.nodes import Nest
from mycc.compiler.lower import lower
from mycc.compiler.schedule import schedule
from mycc.compiler.training.request import capture_training, training_request
from mycc.runtime.inspect import describe, inspect_package
from torch import nn


def model_of(layers: int, size: int = 32, p: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    parts = [[nn.Linear(size, size), nn.LayerNorm(size), nn.GELU(), nn.Dropout(p)] for _ in range(layers)]
    return nn.Sequential(*(part for layer in parts for part in layer))


@pytest.mark.slow  # tests/backend/test_memory.py
def test_a_smaller_budget_takes_less_memory_and_trains_the_same(tmp_path: Path) -> None:
    model, x, y = model_of(4), torch.randn(512, 32), torch.randn(512, 32)
    arena = []
    for budget in (1.0, 0.4):
        path = tmp_path / f"{budget}.pkg"
        mycc.compile_training(
            model, (x,), targets=y, loss=nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), out=path,
            memory_budget=budget, entries=["step"], options={"build.flags": "-O0"},
        )  # fmt: skip
        facts = inspect_package(path)
        (row,) = facts["entry_points"]
        assert facts["training"]["memory_budget"] == budget
        assert ("memory budget 0.4" in describe(facts)) == (budget < 1)
        arena.append(row["memory"]["arena"])
    assert arena[1] < 0.75 * arena[0]
    twin = copy.deepcopy(model)
    optimizer, package = torch.optim.SGD(twin.parameters(), lr=0.1), mycc.load(path)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(twin(x), y)
        loss.backward()
        optimizer.step()
        assert float(package.step(x.numpy(), y.numpy())) == pytest.approx(loss.item(), rel=1e-5)
    for name, value in package.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(value), twin.state_dict()[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("budget", [0.0, 0.4])
def test_random_numbers_are_drawn_once(budget: float) -> None:
    model, x = model_of(2, 8, 0.5), torch.randn(4, 8)
    request = training_request(
        model, (x,), {}, targets=(x,), loss=nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters()),
        memory_budget=budget, entries=["step"],
    )  # fmt: skip
    assert request.manifest["memory_budget"] == budget
    (graph,) = capture_training(request)
    targets = [str(node.target) for node in graph.module.graph.nodes]
    assert targets.count("aten.native_dropout.default") == 2
    assert "mycc.recomputed.default" in targets


class Classes(nn.Module):
    """A layer with GELU's other form, written with operators, and one for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 256), nn.Linear(256, 700)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.second(h * 0.5 * (1 + torch.tanh(0.8 * (h + 0.04 * h**3))))


def test_what_a_step_keeps() -> None:
    """The loss has no matrix beside the logarithms, over which its gradient lies; of GELU the operand and the tangent
    are kept, and no element-wise value that is made of them."""
    model, x, y = Classes(), torch.randn(512, 32), torch.randint(0, 700, (512,))
    request = training_request(
        model, (x,), {}, targets=(y,), loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters()),
        entries=["step"],
    )  # fmt: skip
    (graph,) = map(run_graph_passes, share_state(capture_training(request)))
    made = schedule(lower(graph).program)
    logits, hidden = 512 * 700 * 4, 512 * 256 * 4
    sizes = [t.bytes.constant for t in made.memory.lifetimes]
    assert sizes.count(logits) == 3  # the logits, their logarithms, the transposed gradient
    assert made.memory.live < 2 * logits + 4 * hidden
    serial = [n for n in made.program.nodes if isinstance(n, Nest) and not n.dims]
    assert not serial


@pytest.mark.parametrize("budget", [-0.1, 1.5, True])
def test_a_budget_is_a_share(budget: float, tmp_path: Path) -> None:
    model, x = nn.Linear(2, 2), torch.randn(1, 2)
    with pytest.raises(mycc.CompileError, match="memory_budget is a number from 0 to 1"):
        mycc.compile_training(
            model, (x,), targets=x, loss=nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters()),
            out=tmp_path / "m.pkg", memory_budget=budget,
        )  # fmt: skip
