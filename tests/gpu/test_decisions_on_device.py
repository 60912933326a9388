"""Sizes that the run finds, branches, loops and Triton kernels of models, as packages on a GPU beside torch."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.utils import _pytree as pytree

from ..helpers.programs import Call1
from ..models.control_models import MODELS as CONTROL
from ..models.control_models import entries, make
from ..models.test_control_flow import other_inputs
from ..ops.test_data_sizes import CASES
from .triton_models import MODELS as KERNELS

pytestmark = pytest.mark.gpu
DETERMINED = [name for name in CONTROL if name != "noisy"]


def on_device(values: Any) -> Any:
    return [v.cuda() if isinstance(v, torch.Tensor) else v for v in values]


def compare(found: Any, wanted: Any) -> None:
    left, right = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    assert len(left) == len(right)
    for y, r in zip(left, right, strict=True):
        if isinstance(r, torch.Tensor):
            torch.testing.assert_close(y.cpu(), r.cpu(), rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert y == pytest.approx(r)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decisions")


def test_sizes_that_the_run_finds(folder: Path) -> None:
    path = mycc.compile(
        {f"case{i}": case for i, case in enumerate(CASES.values())}, out=folder / "sizes.pkg", target="cuda"
    )
    model = mycc.load(path)
    for i, (name, (function, arguments)) in enumerate(CASES.items()):
        entry, wanted = model.entry(f"case{i}"), function(*arguments)
        for _ in range(2):
            print(name)
            compare(entry(*arguments), wanted)
            compare(entry(*on_device(arguments)), wanted)


def test_branches_and_loops(folder: Path) -> None:
    model = mycc.load(mycc.compile(entries(), out=folder / "control.pkg", target="cuda"))
    states = {name: make(name) for name in DETERMINED}
    for turn in range(4):
        for name in DETERMINED:
            inputs = other_inputs(name, turn)
            with torch.no_grad():
                wanted = states[name](*[t.clone() for t in inputs])
            compare(model.entry(name)(*on_device(inputs)), wanted)
    entry, inputs = model.entry("noisy"), on_device(CONTROL["noisy"][1])
    compare(entry(*inputs, seed=5), entry(*inputs, seed=5))


def test_random_numbers_of_bodies_are_torchs(folder: Path) -> None:
    """Eager on the device: branches and loops as Python's."""
    model = mycc.load(mycc.compile(make("noisy"), CONTROL["noisy"][1], out=folder / "noisy.pkg", target="cuda"))
    for turn in range(3):
        x, n = torch.randn(4, 8) + turn - 1, turn
        found = model(x.cuda(), torch.tensor(n).cuda(), seed=turn)
        torch.cuda.manual_seed(turn)
        with torch.device("cuda"):
            y = x.cuda() + torch.rand(8)
            y = y + torch.randn(8) if y.sum() > 4 else y * torch.rand(3).sum()
            carried, rows = y[0], []
            for row in y:
                rows.append(carried)
                carried = carried + row * torch.rand(8)
            for _ in range(n):
                y = y + torch.randn_like(y)
            compare(found, (carried, torch.stack(rows), y, torch.rand(3)))


def test_triton_kernels_of_the_model(folder: Path) -> None:
    x, y = torch.randn(4, 100), torch.randn(4, 100)
    path = mycc.compile({n: (Call1(m), (x, y)) for n, (m, _) in KERNELS.items()}, out=folder / "k.pkg", target="cuda")
    model = mycc.load(path)
    for name, (function, meaning) in KERNELS.items():
        a, b, c, d = x.cuda(), y.cuda(), x.cuda(), y.cuda()
        result, *changed = meaning(x, y)
        with torch.device("cuda"):
            compare(model.entry(name)(a, b), result)
            if name != "in_branch":
                compare(function(c, d), result)
        for wanted in changed:
            compare((a, c), (wanted, wanted))


def test_what_a_decision_costs(folder: Path) -> None:
    """A call whose size the device finds waits for it once; a call without such keeps its graph: under 8 us where
    torch.empty takes 2.1, as long as that takes more on a slower host."""

    class Tiny(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    x = torch.randn(1 << 20)
    nonzero = mycc.load(mycc.compile(Call1(lambda x: x[x > 1]), (x,), out=folder / "nonzero.pkg", target="cuda"))
    tiny = mycc.load(mycc.compile(Tiny(), (torch.randn(64),), out=folder / "tiny.pkg", target="cuda"))
    x, small = x.cuda(), torch.randn(64).cuda()
    calls = {
        "mask": lambda: nonzero(x), "mask, eager": lambda: x[x > 1], "tiny": lambda: tiny(small),
        "empty": lambda: torch.empty(64, device="cuda"),
    }  # fmt: skip
    times = dict.fromkeys(calls, math.inf)
    for _ in range(12):  # in turns, as the clock of a host changes
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            times[name] = min(times[name], 1e4 * (time.perf_counter() - start))
    print({name: round(us, 1) for name, us in times.items()}, "us of the caller")
    assert times["tiny"] < 8 / 2.1 * max(times["empty"], 2.1)
