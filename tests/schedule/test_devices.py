"""Every GPU is scheduled as itself: by its own multiprocessors, bandwidth and arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mycc.compiler.codegen.cuda.probe import gemm_probe
from mycc.compiler.ir.plans.text import plan_row
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.machine.gpu import A100, CHIPS, DEVICES, H100, H200, Device, device_for
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.options import CompileOptions
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.gpu.measured import measured_time
from mycc.compiler.schedule.gpu.quantised_tiles import row_tile
from mycc.compiler.schedule.gpu.tiles import Shape, estimate, expected_time, gemm_shape, gemm_tile
from mycc.runtime.errors import CompileError
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import lowered

COMPILER = Path(__file__).parents[2] / "compiler"


def parts_of_k(device: Device) -> int | None:
    """Into how many parts the k of a product of 128 rows is cut, whose sums a norm adds up."""
    up, norm = nn.Linear(3072, 768).bfloat16(), nn.LayerNorm(768).bfloat16()
    x = torch.zeros(128, 3072, dtype=torch.bfloat16)
    program = lowered(lambda up, norm, a: norm(up(a) + 1), x, parts=(up, norm), family="cuda").program
    (product,) = (n for n in schedule(program, device=device).program.nodes if isinstance(n, Gemm))
    return product.dims[0].extent.constant if len(product.dims) == 3 else 1


def test_each_device_has_its_own_split() -> None:
    assert {capability: parts_of_k(device) for capability, device in DEVICES.items()} == {80: 8, 90: 4, 100: 6}


def test_a_changed_row_changes_the_schedule() -> None:
    """A chip of few multiprocessors has enough tiles for all of them."""
    assert parts_of_k(replace(DEVICES[80], sms=4)) == 1


def test_each_target_has_its_own_row() -> None:
    found = {t.name: device_for(t).name for t in parse_targets("cuda:sm_80,cuda:sm_90,cuda:sm_100,cuda:ptx")}
    assert found == {"cuda:sm_80": "a100", "cuda:sm_90": "h200", "cuda:sm_100": "b200", "cuda:ptx": "a100"}


def test_h100_and_h200_are_two_rows_that_differ_in_memory() -> None:
    assert replace(H100, name=H200.name, bandwidth=H200.bandwidth) == H200
    assert H100.bandwidth < H200.bandwidth
    few = gemm_shape(gemm_probe(16, 4096, 16384, "bf16").node)
    tile = gemm_tile(gemm_probe(16, 4096, 16384, "bf16").node, H200)
    assert estimate(few, "bf16", tile, H100) > 1.2 * estimate(few, "bf16", tile, H200)  # what reads a weight once


def test_times_are_of_the_chip_that_was_measured() -> None:
    shape = gemm_shape(gemm_probe(1, 4096, 4096, "bf16").node)
    assert measured_time(shape, "bf16", H200) == 10.79
    assert measured_time(shape, "bf16", H100) is None
    assert expected_time(shape, "bf16", H100) > 4096 * 4096 * 2 / 3.0e6
    assert gemm_tile(gemm_probe(1, 4096, 4096, "bf16").node, H100) == gemm_tile(
        gemm_probe(1, 4096, 4096, "bf16").node, H200
    )


def test_the_user_names_the_chip_of_a_target() -> None:
    options = CompileOptions.of(target="cuda:sm_80,cuda:sm_90", options=["codegen.gpu=h100"])
    assert [options.device(t).name for t in options.targets] == ["a100", "h100"]
    assert not options.ineffective()
    plain = CompileOptions.of(target="cuda:sm_80,cuda:sm_90")
    assert [plain.device(t).name for t in plain.targets] == ["a100", "h200"]
    assert options.fingerprint() != plain.fingerprint()


def test_a_chip_of_no_target_has_no_effect_and_an_unknown_one_is_an_error() -> None:
    (told,) = CompileOptions.of(target="cuda:sm_80", options=["codegen.gpu=h100"]).ineffective()
    assert told == "codegen.gpu=h100 has no effect: there is no target cuda:sm_90"
    with pytest.raises(CompileError, match="names no GPU that mycc knows: 'h20'") as error:
        CompileOptions.of(target="cuda:sm_90", options=["codegen.gpu=h20"])
    assert "h200" in str(error.value)


def gpu_files() -> Iterator[Path]:
    """The files that decide about kernels of GPUs, and those that print them."""
    for folder in ("codegen/cuda", "schedule/gpu"):
        yield from (COMPILER / folder).glob("*.py")
    yield from (COMPILER / "schedule/algebra").glob("*_gpu.py")
    yield from (COMPILER / name for name in ("schedule/fusion/prologue.py", "tune/search/gpu_candidates.py"))


def test_no_number_of_a_chip_stands_outside_of_machine() -> None:
    """SM counts, sizes of shared memory, registers and caches, bandwidths and roofs."""
    facts = {n for c in CHIPS for n in (c.sms, c.shared, c.l2, c.tflops, c.bandwidth, c.additions)} | {65536}
    facts |= {round(size / 1024) for size in (c.shared for c in CHIPS)}
    facts = {n for n in facts if n > 8 or n != round(n)}  # small whole numbers are everywhere
    allowed = {("rows.py", 65536)}  # 16 bits of a key
    found = {
        (path.name, node.value)
        for path in gpu_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value in facts
    }
    assert found <= allowed


def test_lines_and_accesses_of_memory_have_one_name() -> None:
    """No constant of another file is called a line, a sector, a warp's lanes or an access."""
    names = {"LINE", "SECTOR", "ACCESS", "WARP", "LANES_OF_WARP", "REGISTERS", "SHARED", "SMS"}
    found = {
        f"{path.name}: {target.id}"
        for path in gpu_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }
    assert not found


def test_a_tile_that_a_chip_lacks_is_not_taken() -> None:
    """The tiles of products and what they reach are facts of a chip's row."""
    node = gemm_probe(4096, 4096, 4096, "bf16").node
    own = gemm_tile(node, DEVICES[80])
    others = tuple(row for row in DEVICES[80].half_tiles if row[0] != (own.m, own.n))
    tile = gemm_tile(node, replace(DEVICES[80], half_tiles=others))
    assert (tile.m, tile.n) in dict(others)


def device_plans(function: Callable[..., Any], *inputs: torch.Tensor, device: Device) -> list[dict[str, Any]]:
    """The plans of a function's kernels, as rows."""
    program = lowered(function, *inputs, family="cuda").program
    return [plan_row(plan) for plan in schedule(program, device=device).plans]


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(1, dtype=dtype).expand(*shape)


Function = Callable[..., Any]
#: what is changed of the rows of a chip -> the kernel whose plan has to change
FACTS: dict[str, tuple[dict[str, Any], Function, tuple[torch.Tensor, ...]]] = {
    "many": ({"many": 1 << 60}, lambda a: a + 1, (tensor(4096, 4096),)),
    "maps": ({"maps": replace(A100.maps, most=256)}, lambda a: a + 1, (tensor(4096, 512),)),
    "rows held": ({"rows": replace(A100.rows, held=1024)}, lambda a: a.softmax(-1), (tensor(64, 4096),)),
    "rows": ({"rows": replace(A100.rows, piece=512)}, lambda a: a.sum(-1), (tensor(64, 40000),)),
    "pieces": (
        {"pieces": replace(A100.pieces, most_held=1)}, lambda a: a.softmax(-1),
        (tensor(64, 50257, dtype=torch.bfloat16),),
    ),
    "lanes": ({"lanes": replace(A100.lanes, lanes=32)}, lambda a: a.cumsum(0), (tensor(9, 300),)),
    "products": ({"products": replace(A100.products, splits=(1,))}, torch.matmul, (tensor(32, 8192), tensor(8192, 64))),
    "routines": ({"routines": replace(A100.routines, run=512)}, lambda a: a.sort(-1).values, (tensor(4, 2000),)),
    "splits": ({"splits": replace(A100.splits, parts=16)}, lambda a: a.sum(-1), (tensor(4, 1 << 17),)),
    "attention": (
        {"attention": replace(A100.attention, splits=1)}, F.scaled_dot_product_attention,
        (tensor(1, 2, 64, 40), tensor(1, 2, 4000, 40), tensor(1, 2, 4000, 40)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
def test_a_changed_fact_of_programs_changes_the_plan(name: str) -> None:
    changed, function, inputs = FACTS[name]
    before = device_plans(function, *inputs, device=A100)
    assert device_plans(function, *inputs, device=replace(A100, **changed)) != before


def test_a_changed_fact_of_quantised_products_changes_the_tile() -> None:
    shape = Shape(1, 4096, 16384, 1, 1)
    other = replace(H200, quantised=replace(H200.quantised, stages=5))
    assert row_tile(shape, H200) != row_tile(shape, other)
