"""Small programs of the loop IR, written by hand or lowered from modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.expr import Call, Expr, Load
from mycc.compiler.ir.index import Index, Var, as_index, of, product
from mycc.compiler.ir.nodes import Map, Origin, Store
from mycc.compiler.ir.plans.laws import verify_plans
from mycc.compiler.ir.program import AnyNode, Program
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.machine.targets import Family
from mycc.compiler.model.operators.kept import kept_for
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.memory.laws import verify_memory
from torch import nn
from torch.export import Dim

BATCH = Dim("batch", min=1, max=64)


class Call1(nn.Module):
    """A function of tensors as a module, with modules that it uses."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def lowered(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    parts: Sequence[nn.Module] = (),
    dynamic: bool = False,
    passes: bool = True,
    family: Family = "cpu",
) -> Lowered:
    """The function's program, verified. dynamic: the first dimension of every input is the batch."""
    shapes = (tuple({0: BATCH} if x.dim() else {} for x in inputs),) if dynamic else None
    graph = capture(Call1(function, *parts).eval(), inputs, None, shapes)
    result = lower(run_graph_passes(graph, kept=kept_for((family,))) if passes else graph, family=family)
    verify_program(result.program, "lowering")
    return result


def scheduled(function: Callable[..., Any], *inputs: torch.Tensor, **how: Any) -> Schedule:
    """The function's schedule, verified."""
    result = schedule(lowered(function, *inputs, **how).program)
    verify_program(result.program, "scheduling")
    verify_memory(result.program, result.memory)
    verify_plans(result.kernels)
    return result


def plain(text: str) -> str:
    """The text without the source lines, which tell where a test stands."""
    return re.sub(r"(\S*\.py:\d+ ?)+", "", re.sub(r" +\(\S*\.py:\d+\)| +\S*\.py:\d+", "", text)).rstrip() + "\n"


@dataclass
class Writer:
    """Writes programs by hand: every method returns what it made."""

    nodes: list[AnyNode]
    inputs: list[Buffer]
    outputs: list[Buffer]

    @classmethod
    def new(cls) -> Writer:
        return cls([], [], [])

    def input(self, name: str, size: int | Index, dtype: str = "f32") -> Buffer:
        self.inputs.append(Buffer(name, dtype, as_index(size), "input", len(self.inputs)))
        return self.inputs[-1]

    def output(self, name: str, size: int | Index, dtype: str = "f32") -> Buffer:
        self.outputs.append(Buffer(name, dtype, as_index(size), "output", len(self.outputs)))
        return self.outputs[-1]

    def map(self, buffer: Buffer, index: Index, value: Expr, *dims: Var) -> Map:
        self.nodes.append(Map(dims, (Store(buffer, index, value),), Origin((f"aten.{buffer.name}",))))
        return self.nodes[-1]

    def program(self) -> Program:
        return Program("test", tuple(self.inputs), tuple(self.outputs), (), tuple(self.nodes))


def temp(name: str, size: int | Index, dtype: str = "f32") -> Buffer:
    return Buffer(name, dtype, as_index(size), "temp")


def loops(**extents: int | Index) -> tuple[Var, ...]:
    return tuple(Var(name, as_index(n)) for name, n in extents.items())


def flat(*dims: Var) -> Index:
    """The row-major place of loops."""
    total = as_index(0)
    for i, v in enumerate(dims):
        total = total + of(v) * product(w.extent for w in dims[i + 1 :])
    return total


def call(op: str, *args: Expr, dtype: str = "f32") -> Call:
    return Call(op, args, dtype)


def load(buffer: Buffer, index: Index) -> Load:
    return Load(buffer, index)
