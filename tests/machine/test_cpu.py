"""Facts of CPUs stand in compiler/machine/cpu.py alone, and the plans of loops follow them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.ir.plans.loop import LoopPlan
from mycc.compiler.ir.plans.text import plan_row
from mycc.compiler.machine.cpu import CPUS
from mycc.compiler.machine.targets import TARGETS
from mycc.compiler.schedule.loops import column_walks, horizontal_reductions, prefetch, store_policy, tiles
from mycc.compiler.schedule.matrix.register_tiles import TILE_SETS
from mycc.compiler.schedule.matrix.run_tiles import RUN_TILE_SETS
from mycc.compiler.schedule.passes import Context
from mycc.compiler.schedule.planning import CPU_PLANNING
from mycc.compiler.schedule.remarks import Remarks

from ..helpers.programs import scheduled

COMPILER = Path(__file__).parents[2] / "compiler"
#: names by which facts of the memory of a machine go
FACTS = {"LINE", "PAGE", "L1", "L2", "L3", "SET_BYTES", "SET_STRIDE", "STREAMED_BYTES", "CACHE", "SMS", "WARP"}


def is_a_fact(name: str) -> bool:
    return name in FACTS or name.endswith("_AHEAD")


def test_no_other_file_has_a_fact_of_memory() -> None:
    files = [p for room in ("lower", "schedule", "codegen") for p in (COMPILER / room).rglob("*.py")]
    found = [
        f"{path.relative_to(COMPILER)}:{node.lineno} {target.id}"
        for path in files
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Constant) for n in ast.walk(node.value))
        for part in node.targets
        for target in ast.walk(part)
        if isinstance(target, ast.Name) and is_a_fact(target.id)
    ]
    assert len(files) > 200
    assert not found


def test_every_level_has_one_row() -> None:
    assert {t.tiles for t in TARGETS} == set(CPUS) == set(TILE_SETS) == set(RUN_TILE_SETS)
    assert all(t.lanes == CPUS[t.tiles].lanes == TILE_SETS[t.tiles].cpu.lanes for t in TARGETS)


def plan_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> LoopPlan:
    (node,) = scheduled(function, *inputs).program.nodes
    kernel = Kernel(node, LoopPlan())
    for row in CPU_PLANNING:
        if row.plan in (None, LoopPlan):
            kernel = row.run(kernel, Context(Remarks()))
    assert isinstance(kernel.plan, LoopPlan)
    return kernel.plan


LARGE, COLUMNS = torch.zeros(1).expand(4100, 1024), torch.zeros(1).expand(32, 300, 800)
#: the fact, where it is read, what it is changed to, the kernel, and the field of its plan that has to change
CHANGES: dict[str, tuple[ModuleType, str, int, Callable[..., torch.Tensor], tuple[torch.Tensor, ...], str]] = {
    "nontemporal": (store_policy, "NONTEMPORAL", 1 << 40, lambda a: a + 1, (LARGE,), "nontemporal"),
    "stream ahead": (prefetch, "STREAM_PREFETCH", 512, lambda a: a.sum(1), (COLUMNS,), "walk"),
    "sets of the cache": (tiles, "SET_STRIDE", 1 << 40, lambda a: a.t() + 1, (torch.zeros(512, 1024),), "tile"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_fact_changes_the_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, fact, value, function, inputs, field = CHANGES[name]
    before = plan_row(plan_of(function, *inputs))  # by names: buffers are others in each plan
    assert plan_row(plan_of(function, *inputs)) == before
    monkeypatch.setattr(module, fact, value)
    assert plan_row(plan_of(function, *inputs)).get(field) != before.get(field)


#: likewise of rows of cpu_loops.py: the row's name where it is read, and what is changed in it
ROWS: dict[str, tuple[ModuleType, str, dict[str, Any], Callable[..., torch.Tensor], tuple[torch.Tensor, ...], str]] = {
    "piece of a row": (
        horizontal_reductions, "ROW_LOOPS", {"piece": 512}, lambda a: a.sum(-1), (torch.zeros(9, 4000),), "horizontal",
    ),
    "block of columns": (
        column_walks, "COLUMN_LOOPS", {"block": 256, "in_order": 256}, lambda a: a.amax(1), (COLUMNS,), "walk",
    ),
    "block of a transpose": (
        tiles, "TRANSPOSES", {"row_bytes": 512, "whole_bytes": 0}, lambda a: a.t() + 1, (torch.zeros(500, 99),), "tile",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_changed_row_of_loops_changes_the_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, row, changed, function, inputs, field = ROWS[name]
    before = plan_row(plan_of(function, *inputs))
    assert plan_row(plan_of(function, *inputs)) == before
    monkeypatch.setattr(module, row, replace(getattr(module, row), **changed))
    assert plan_row(plan_of(function, *inputs)).get(field) != before.get(field)


@pytest.mark.parametrize(
    ("level", "changed"),
    [
        ("x86-64-v4", {"hidden_sums": 1000}),
        ("x86-64-v4", {"row_sums": 1}),
        ("x86-64-v4", {"weight_registers": 30}),
        ("x86-64-v4", {"registers": 16}),
        ("x86-64-v3", {"streamed_panels": ()}),
        ("x86-64-v2", {"fused": True, "registers": 32}),
    ],
)
def test_a_changed_row_changes_the_register_tiles(level: str, changed: dict[str, Any]) -> None:
    own = TILE_SETS[level]
    other = replace(own, cpu=replace(own.cpu, **changed))
    assert (other.tiles, other.value_panels) != (own.tiles, own.value_panels)


@pytest.mark.parametrize("changed", [{"run_turn": 1}, {"least_halved": 0}, {"long_every": 2}])
def test_a_changed_row_changes_the_tiles_of_convolutions(changed: dict[str, Any]) -> None:
    own = RUN_TILE_SETS["x86-64-v4"]
    assert replace(own, cpu=replace(own.cpu, **changed)).tiles != own.tiles
