"""Plans of GPU kernels: the schedule makes them, code generation spells them, and nothing of it decides again."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mycc.compiler.codegen.cuda.emit import FLOAT_FORMS
from mycc.compiler.codegen.cuda.generate import generate_device
from mycc.compiler.codegen.cuda.module import module_text
from mycc.compiler.ir.ops import OPS, of_a_library
from mycc.compiler.ir.plans.gpu import ProductPlan, RoutinePlan
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.ir.plans.text import plan_row
from mycc.compiler.ir.plans.tiles import AttentionTile, GemmTile
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.tune.choices.keys import kernel_key

from ..helpers.device_programs import DEVICE, DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

CODEGEN = Path(__file__).parents[2] / "compiler/codegen/cuda"
Function = Callable[..., torch.Tensor]


def changed(program: DeviceProgram, **values: Any) -> DeviceProgram:
    """The program with other decisions in the plan of the first kernel that has them, and its code made anew."""
    kernels = list(program.schedule.kernels)
    index = next(i for i, k in enumerate(kernels) if all(hasattr(k.plan, name) for name in values))
    plan = kernels[index].plan
    assert plan is not None
    kernels[index] = Kernel(kernels[index].node, replace(plan, **values))
    planned = replace(program.schedule, kernels=tuple(kernels))
    return replace(program, schedule=planned, code=generate_device([program.graph], [planned], DEVICE))


def texts(program: DeviceProgram) -> list[tuple[str, int, int]]:
    return [(k.source, k.num_warps, k.num_stages) for k in program.code.kernels]


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


CHANGES: dict[str, tuple[Function, tuple[torch.Tensor, ...], dict[str, Any]]] = {
    "flat map": (lambda a: torch.relu(a) + 1, (x(33, 70),), {"block": (32,)}),
    "warps of a map": (lambda a: torch.relu(a) + 1, (x(33, 70),), {"warps": 2}),
    "transposed map": (lambda a: a.t().contiguous() * 2, (x(100, 70),), {"block": (16, 32)}),
    "rows that are held": (lambda a: a.softmax(-1), (x(37, 60),), {"rows": 4}),
    "rows that are walked through": (
        lambda a: a.sum(-1), (x(37, 60),), {"form": "walked", "rows": 2, "blocks": (16,)},
    ),
    "lanes": (lambda a: a.sum(0), (x(9, 300),), {"form": "lanes", "rows": 32, "blocks": (1,), "unrolled": (True,)}),
    "scan of rows": (lambda a: a.cumsum(-1), (x(6, 100),), {"block": 16, "rows": 2}),
    "product": (
        lambda a, b: torch.relu(a @ b.t()), (x(64, 96), x(48, 96)),
        {"tile": GemmTile(32, 16, 32, 4, 2), "warps": 4, "stages": 2, "order": "groups", "form": "tile"},
    ),
    "product split": (
        lambda a, b: a @ b.t(), (x(64, 96), x(48, 96)),
        {"tile": GemmTile(32, 32, 16, 4, 3, 3), "order": "groups", "form": "tile"},
    ),
    "vector": (lambda a, b: a @ b.t(), (x(1, 96), x(48, 96)), {"tile": GemmTile(16, 16, 32), "form": "tile"}),
    "convolution": (
        lambda a, b: torch.conv2d(a, b, padding=1), (x(1, 32, 9, 9), x(16, 32, 3, 3)),
        {"tile": GemmTile(16, 16, 32, 4, 2), "order": "groups", "form": "flat"},
    ),
    "attention": (
        torch.nn.functional.scaled_dot_product_attention, (x(1, 2, 40, 16), x(1, 2, 50, 16), x(1, 2, 50, 16)),
        {"tile": AttentionTile(16, 32, 4, 2, 2), "single": False},
    ),
    "scan in steps": (
        lambda a: a.cumsum(-1), (x(6, 100),), {"combination": None, "form": "steps", "rows": 4, "warps": 1},
    ),
    "wide indices": (lambda a: a.softmax(-1), (x(37, 60),), {"wide": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_plan_changes_the_code_and_not_the_values(name: str, interpreter: TritonInterpreter) -> None:
    function, inputs, values = CHANGES[name]
    program = device_program(Call1(function).eval(), inputs)
    other = changed(program, **values)
    assert texts(program) != texts(other)
    for one, two in zip(
        run_interpreted(program, interpreter, inputs), run_interpreted(other, interpreter, inputs), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_a_changed_part_of_a_routine_changes_the_code_and_not_the_values(interpreter: TritonInterpreter) -> None:
    inputs = (x(1, 1100),)
    program = device_program(Call1(lambda a: a.sort(-1)).eval(), inputs)
    (plan,) = program.schedule.plans
    assert isinstance(plan, RoutinePlan)
    assert [(part.form, part.run) for part in plan.parts] == [("runs", 1024), ("merge", 1024)]
    runs, merge = plan.parts
    parts = (replace(runs, block=64, step=32), replace(merge, block=64, warps=2))
    other = changed(program, parts=parts)
    assert texts(program) != texts(other)
    wanted = torch.sort(inputs[0], -1)
    for result in (run_interpreted(program, interpreter, inputs), run_interpreted(other, interpreter, inputs)):
        assert torch.equal(result[0], wanted.values)
        assert torch.equal(result[1], wanted.indices)


def test_a_tile_of_a_lock_is_in_the_plan_of_its_kernel() -> None:
    program = device_program(Call1(lambda a, b: a @ b.t()).eval(), (x(64, 96), x(48, 96)))
    (kernel,) = program.schedule.kernels
    key, tile = kernel_key(kernel.node), GemmTile(32, 16, 32, 8, 2, group=4)
    assert key is not None
    code = generate_device([program.graph], [program.schedule], DEVICE, {key: tile})
    (plan,) = code.entries[0].schedule.plans
    assert isinstance(plan, ProductPlan)
    assert (plan.tile, plan.warps, plan.stages) == (tile, 8, 2)
    assert [k.num_warps for k in code.kernels] == [8]


def test_the_dump_tells_the_plan() -> None:
    program = device_program(Call1(lambda a: a.softmax(-1)).eval(), (x(37, 60),), device=DEVICES[90])
    (plan,) = program.schedule.plans
    assert plan_row(plan) | {"rows": 4, "warps": 1} == plan_row(plan) | {"rows": 4, "warps": 1, "form": "held"}
    assert "form held" in str(program.schedule)


#: files of codegen/cuda that ask the row of a chip yet, and why
ASK_THE_CHIP = {"generate.py": "a tile that a lock chooses takes the place of the schedule's, with all that follows"}


def test_code_generation_does_not_ask_the_chip() -> None:
    """Decisions need the row of a chip, or the helpers that size a program by it: only the listed files import them."""
    wanted = {"Device", "DEVICES", "device_of", "share", "warps_for", "MANY"}
    asking = {
        path.name
        for path in CODEGEN.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and wanted & {alias.name for alias in node.names}
    }
    assert asking == set(ASK_THE_CHIP)


def test_operators_of_a_library_are_those_whose_functions_call_it() -> None:
    """What flush asks of operators is what the templates write."""

    def calls(pattern: str) -> bool:
        return "libdevice." in module_text(re.sub(r"\{\w+\}", "x", pattern))

    found = {name: calls(FLOAT_FORMS[name].pattern if name in FLOAT_FORMS else op.triton) for name, op in OPS.items()}
    assert {name for name, called in found.items() if called} == {n for n in OPS if of_a_library(n, "f32")}


def test_exponentials_of_a_softmax_flush_and_others_do_not() -> None:
    """As long as no function of a library is in the kernel, which would lose subnormal numbers, too."""

    def flushes(function: Function) -> list[bool]:
        program = device_program(Call1(function).eval(), (x(37, 60),))
        assert [k.flush for k in program.code.kernels] == [p.flush for p in program.schedule.plans if p is not None]
        return [k.flush for k in program.code.kernels]

    assert flushes(lambda a: a.softmax(-1)) == [True]
    assert flushes(lambda a: a.exp().sum(-1)) == [False]
    assert flushes(lambda a: torch.expm1(a).softmax(-1)) == [False]
