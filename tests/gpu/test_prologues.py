"""Products that compute their left operand: which maps they take in, and that the results are right."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mycc.compiler.codegen.cuda.probe import computed_probe, gemm_probe
from mycc.compiler.ir.expr import Call, Load, rewrite
from mycc.compiler.ir.index import of
from mycc.compiler.ir.nodes import Map, Origin, Store
from mycc.compiler.ir.program import Program
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule.fusion.prologue import fuse_prologues
from mycc.compiler.schedule.gpu.tiles import gemm_tile
from mycc.compiler.schedule.graph import NodeGraph
from mycc.compiler.schedule.remarks import Remarks
from mycc.compiler.tune.choices.keys import kernel_key
from mycc.compiler.tune.search.gpu_candidates import tile_candidates
from torch import nn
from torch.nn import functional as F

from ..conftest import Golden
from ..helpers.device_programs import DeviceProgram, device_program, run_interpreted
from ..helpers.programs import plain
from ..helpers.triton_interpreter import TritonInterpreter

Tensor = torch.Tensor


class Before(nn.Module):
    """A linear layer behind a function of the inputs."""

    def __init__(self, k: int, n: int, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(k, n), function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.linear(self.function(*inputs))


class Batched(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * 0.125) @ y.transpose(-1, -2)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(64, 80), nn.Linear(64, 80)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        return F.silu(self.gate(x)) * self.up(x)


class Residual(nn.Module):
    """What is multiplied is added too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        return self.linear(x) + x


def relu_linear(k: int, n: int) -> nn.Module:
    return Before(k, n, F.relu)


r = torch.randn
INTO_ONE_KERNEL: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "relu": (lambda: relu_linear(64, 48), (r(2, 20, 64),)),
    "relu_vector": (lambda: relu_linear(300, 48), (r(1, 300),)),
    "gelu_vector": (lambda: Before(96, 48, F.gelu), (r(1, 96),)),
    "scaled": (lambda: Before(64, 48, lambda x, s: x * s[:, None]), (r(20, 64), r(20))),
    "sum": (lambda: Before(64, 48, lambda x, y: F.relu(x + y)), (r(20, 64), r(20, 64))),
    "dequantised": (
        lambda: Before(64, 48, lambda x, s: x.to(s.dtype) * s),
        (torch.randint(-128, 127, (20, 64), dtype=torch.int8), r(64)),
    ),
    "heads": (lambda: Before(96, 48, lambda x: F.relu(x.reshape(2, 10, 96))), (r(20, 96),)),
    "batched": (Batched, (r(2, 3, 20, 32), r(2, 3, 24, 32))),
    "gated": (Gated, (r(40, 64),)),
}


def products(program: DeviceProgram) -> list[Gemm]:
    return [node for node in program.schedule.program.nodes if isinstance(node, Gemm)]


@pytest.mark.parametrize(("case", "dtype"), [*zip(INTO_ONE_KERNEL, itertools.cycle(["f16", "f32"]), strict=False)])
def test_one_kernel_against_float64(case: str, dtype: str, interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    make, inputs = INTO_ONE_KERNEL[case]
    model = make().eval()
    program = device_program(model, inputs, dtype=dtype)
    assert [node.prologue is not None for node in products(program)] == [True]
    assert len(program.schedule.program.nodes) == 1
    own = [x.to(torch.float16) if dtype == "f16" and x.is_floating_point() else x for x in inputs]
    model = model.half() if dtype == "f16" else model
    (y,) = run_interpreted(program, interpreter, own)
    reference = model.double()(*(x.double() if x.is_floating_point() else x for x in own)).detach()
    assert float((y.double() - reference).norm() / reference.norm()) < (2e-3 if dtype == "f16" else 2e-6)


def test_rows_that_the_call_knows(interpreter: TritonInterpreter) -> None:
    model = relu_linear(45, 40).eval()
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    program = device_program(model, (r(20, 45),), dynamic_shapes=(shapes,))
    assert products(program)[0].prologue is not None
    x = r(37, 45)
    (y,) = run_interpreted(program, interpreter, (x,))
    assert torch.allclose(y.double(), model.double()(x.double()), atol=1e-5)


def test_schedule(golden: Golden) -> None:
    program = device_program(relu_linear(64, 48).eval(), (r(20, 64),), dtype="bf16")
    golden(plain(str(program.schedule)))


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, int], str]] = {
    "read_twice": (Residual, (40, 64), "read by others"),
    "many_columns": (lambda: relu_linear(768, 3072), (512, 768), "us longer"),
    "side_by_side": (lambda: relu_linear(768, 768), (16, 768), "us longer"),
    "long_to_compute": (lambda: Before(768, 768, F.gelu), (128, 768), "us longer"),
    "turned": (lambda: Before(64, 48, lambda x: F.relu(x).t()), (64, 40), "row by row"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_stays_a_kernel(case: str) -> None:
    make, shape, reason = REFUSED[case]
    program = device_program(make().eval(), (r(*shape),), dtype="bf16")
    assert [type(node) for node in program.schedule.program.nodes] == [Map, Gemm]
    assert any(reason in remark.reason for remark in program.schedule.remarks if not remark.done)


#: a line for each: microseconds of a map and a bfloat16 product on an H200, apart and in one kernel
TIMES = json.loads(Path(__file__).with_name("prologues_sm90.json").read_text())["rows"]


def map_and_product(name: str, m: int, n: int, k: int) -> Program:
    """A map over [m, k] and the product that reads it."""
    plain = gemm_probe(m, n, k, "bf16", bias=True)
    fused = computed_probe({"scaled": "scaled_columns"}.get(name, name), plain, "f32" if name == "cast" else "")
    assert isinstance(fused.node, Gemm)
    made, rows = fused.node.prologue, fused.node.dims[0]
    assert made is not None
    place = of(rows) * k + of(made.depth)
    x = Load(fused.buffers["a"], place)
    value = rewrite(made.value, lambda e: x if e == made.acc else None)
    store = Store(plain.buffers["a"], place, Call("cast", (value,), "bf16"))
    nodes = (Map((rows, made.depth), (store,), Origin((), ())), plain.node)
    return Program("forward", (fused.buffers["a"],), (plain.buffers["y"],), (), nodes)


def slower(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of which the slower form is taken, by more than 3 %."""
    found = []
    for row in rows:
        graph = NodeGraph(map_and_product(row["map"], row["m"], row["n"], row["k"]))
        fuse_prologues(graph, Remarks(), DEVICES[90])
        chosen = row["fused_us" if len(graph.nodes) == 1 else "apart_us"]
        if chosen > 1.03 * min(row["fused_us"], row["apart_us"]):
            found.append(row)
    return found


def test_the_faster_form_is_chosen() -> None:
    """Of 44 rows, which the constants were fitted to, and of 52 others."""
    fitted, others = TIMES[:44], TIMES[44:]
    assert len(others) == 52
    assert len(slower(fitted)) <= 2, slower(fitted)
    assert len(slower(others)) <= 8, slower(others)


def test_stages_have_room() -> None:
    """A float32 operand of a product of half precision takes twice the shared memory."""
    node, device = computed_probe("sum", gemm_probe(4096, 768, 768, "bf16"), "f32").node, DEVICES[90]
    assert isinstance(node, Gemm)
    tiles = [gemm_tile(node, device), *tile_candidates(node, device)]
    assert all((t.m * 6 + t.n * 2) * t.k * t.stages <= device.shared or t.stages == 2 for t in tiles)
    assert kernel_key(node) != kernel_key(replace(node, prologue=None))


def test_norms_stay_kernels() -> None:
    """docs/decisions/0020: their last stage is no prologue."""
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 48)).eval()
    assert [n.prologue for n in products(device_program(model, (r(20, 64),), dtype="bf16"))] == [None]


def test_switched_off() -> None:
    options = ScheduleOptions(prologues=False)
    program = device_program(relu_linear(64, 48).eval(), (r(20, 64),), dtype="bf16", options=options)
    assert [type(node) for node in program.schedule.program.nodes] == [Map, Gemm]
