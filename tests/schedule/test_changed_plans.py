"""Plans that are changed by hand: the code changes as the plan says, and the values stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler import pipeline
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.ir.plans.loop import Form, LoopPlan, UpdatesPlan
from mycc.compiler.schedule import Schedule
from mycc.compiler.schedule.planning import OPTIONAL
from mycc.runtime.inspect import inspect_package

from ..helpers.programs import Call1

Change = Callable[[Kernel, Any], Kernel]


def planned(kernel: Kernel, plan: LoopPlan, **fields: object) -> Kernel:
    return replace(kernel, plan=replace(plan, **fields))  # type: ignore[arg-type]


def other_vector(kernel: Kernel, plan: LoopPlan) -> Kernel:
    """The lanes run along the outer loop, and the inner one is shared out."""
    outer, inner = kernel.node.dims
    assert plan.vector == (inner,)
    return planned(kernel, plan, vector=(outer,), parallel=(inner,))


def interchanged(kernel: Kernel, plan: LoopPlan) -> Kernel:
    """The loop that was inside is shared out, and the one around it runs inside."""
    first, second, lanes = kernel.node.dims
    assert (plan.parallel, plan.vector) == ((first, second), (lanes,))
    return planned(kernel, plan, parallel=(second,))


def non_temporal(kernel: Kernel, plan: LoopPlan) -> Kernel:
    assert plan.nontemporal == ()
    return planned(kernel, plan, nontemporal=kernel.node.writes())


def no_tiles(kernel: Kernel, plan: LoopPlan) -> Kernel:
    assert plan.form is Form.TILES
    assert plan.tile is not None
    return planned(kernel, plan, form=Form.ROWS, tile=None, parallel=(plan.tile.cross,), prefetch=(None,))


def smaller_tile(kernel: Kernel, plan: LoopPlan) -> Kernel:
    assert plan.tile is not None
    return planned(kernel, plan, tile=replace(plan.tile, rows=32, columns=16))


def further_prefetch(kernel: Kernel, plan: LoopPlan) -> Kernel:
    assert plan.row_prefetch is not None
    assert plan.row_prefetch.distance != 5
    return planned(kernel, plan, row_prefetch=replace(plan.row_prefetch, distance=5))


def not_prefetched(kernel: Kernel, plan: LoopPlan) -> Kernel:
    return planned(kernel, plan, row_prefetch=None)


def one_by_one(kernel: Kernel, plan: UpdatesPlan) -> Kernel:
    """Neighbours of the updates are no vector."""
    assert plan.lanes
    return replace(kernel, plan=replace(plan, lanes=False, prefetch=()))


def not_unrolled(kernel: Kernel, plan: LoopPlan) -> Kernel:
    (vertical,) = plan.vertical
    assert vertical is not None
    assert vertical.unroll == (3,)
    return planned(kernel, plan, vertical=(replace(vertical, unroll=(0,)),))


A, B = torch.randn(37, 64), torch.randn(64)
CUBE, PLANE = torch.randn(6, 40, 64), torch.randn(40, 1)
ROWS = torch.randint(0, 37, (9,))
TABLE, IDS = torch.randn(5000, 64), torch.randint(0, 5000, (300,))
Function = Callable[..., torch.Tensor]


@pytest.mark.parametrize(
    ("change", "function", "inputs", "new", "gone"),
    [
        (other_vector, lambda a, b: a + b, (A, B), "scatter(", "store(y0"),
        (interchanged, lambda a, b: a * b, (CUBE, PLANE), "for (int64_t j = 0; j < 6; ++j)", ""),
        (non_temporal, lambda a: torch.relu(a), (A,), ", streams)", ""),
        (no_tiles, lambda a, b: a.t() + b.view(64, 1), (A, B), "gather(x0", "transpose_tile("),
        (smaller_tile, lambda a, b: a.t() + b.view(64, 1), (A, B), "float tile0[256]", "float tile0[512]"),
        (not_unrolled, lambda a: a.amax(1), (torch.randn(8, 3, 80),), "for (int64_t", ""),
        (further_prefetch, lambda t, i: t[i], (TABLE, IDS), "+ 5", ""),
        (one_by_one, lambda t, i, r: t.index_add(0, i, r), (A, ROWS, A[:9] + 1), "", ""),
        (not_prefetched, lambda t, i: t[i], (TABLE, IDS), "", "next0"),
    ],
)
def test_a_changed_plan_changes_the_code_and_keeps_the_values(
    change: Change,
    function: Function,
    inputs: tuple[torch.Tensor, ...],
    new: str,
    gone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = pipeline.schedule
    texts, results = [], []

    def changed(*args: object, **how: object) -> Schedule:
        plans: Schedule = own(*args, **how)  # type: ignore[arg-type]
        (kernel,) = plans.kernels
        assert isinstance(kernel.plan, LoopPlan | UpdatesPlan)
        return replace(plans, kernels=(change(kernel, kernel.plan),))

    for name, schedule in (("own", own), ("changed", changed)):
        monkeypatch.setattr(pipeline, "schedule", schedule)
        package, dump = tmp_path / f"{name}.pkg", tmp_path / name
        mycc.compile(Call1(function).eval(), inputs, out=package, dump=dump)
        texts.append((dump / "05-codegen.txt").read_text())
        results.append(np.asarray(mycc.load(package)(*(x.numpy() for x in inputs))))
    before, after = texts
    assert new in after
    assert gone not in after or not gone
    assert before != after
    assert gone in before
    np.testing.assert_array_equal(results[0], results[1])


def test_planning_passes_can_be_switched_off(tmp_path: Path) -> None:
    """All of them at once: the package is verified, and its plans have the defaults of their fields."""

    def function(a: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pooled = torch.nn.functional.max_pool2d(a, 3, 1)
        return pooled, torch.stack((t, t + 1), -1), t[i], t[:, :10].sum(-1), torch.softmax(t, -1)

    inputs, package = (torch.randn(2, 4, 20, 40), TABLE, IDS), tmp_path / "off.pkg"
    mycc.compile(Call1(function).eval(), inputs, out=package, options={"schedule.off": ",".join(sorted(OPTIONAL))})
    rows = inspect_package(package)["entry_points"][0]["kernels"]
    fields = {"transposed", "windows", "interleaved", "nontemporal", "combined", "row_prefetch", "peel", "prefetch"}
    assert [fields & set(row["plan"]) for row in rows] == [set()] * len(rows)
