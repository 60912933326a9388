"""Products of a dynamic number of rows have a kernel for each range of rows, and a call launches one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from mycc.compiler.build.images import KernelImage
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.probe import Probe, float8_probe, gemm_probe, pair_probe, quantised_probe
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.index import Size, of
from mycc.compiler.ir.plans.gpu import ProductPlan, SizeRange
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.machine.gpu import DEVICES, H200, Device
from mycc.compiler.machine.gpu_programs import PRODUCTS
from mycc.compiler.package.launches import FACTS, launch_rows
from mycc.compiler.schedule.gpu.dequantised import dequantised
from mycc.compiler.schedule.gpu.product_plans import product_tile
from mycc.compiler.schedule.passes import Context
from mycc.compiler.schedule.planning import plan_kernel
from mycc.compiler.schedule.remarks import Remarks
from mycc.runtime.formula import evaluate
from mycc.runtime.launches import programs

from ..helpers.device_programs import device_program
from ..helpers.triton_interpreter import TritonInterpreter

ROWS = of(Size("rows", 1, 2048))
#: the interpreter knows no griddepcontrol and is slow; few multiprocessors have large tiles early
SMALL = replace(DEVICES[90], pdl=False, sms=2, products=replace(PRODUCTS, ranges=((24, 40), (64, 200))))


def plan_of(probe: Probe, device: Device = H200) -> ProductPlan:
    plan = plan_kernel(probe.node, Context(Remarks(), device)).plan
    assert isinstance(plan, ProductPlan)
    return plan


def test_a_prompts_product_has_the_tiles_of_fixed_sizes() -> None:
    """256 to 1023 rows have the tile of 512, more the tile of 2048; fewer that of all sizes."""
    plan = plan_of(gemm_probe(ROWS, 2048, 8192, "bf16"))
    assert plan.range == SizeRange(ROWS, below=256)
    assert [p.range for p in plan.variants] == [SizeRange(ROWS, 256, 1024), SizeRange(ROWS, 1024)]
    fixed = [product_tile(gemm_probe(m, 2048, 8192, "bf16").node, H200) for m in (512, 2048)]
    assert [p.tile for p in plan.variants] == fixed
    assert len({plan.tile, *fixed}) == 3


@pytest.mark.parametrize("most", [64, 255])
def test_few_rows_have_one_kernel(most: int) -> None:
    plan = plan_of(gemm_probe(of(Size("rows", 1, most)), 2048, 8192, "bf16"))
    assert plan.range is None
    assert not plan.variants


def test_the_ranges_are_facts_of_the_machine() -> None:
    device = replace(H200, products=replace(PRODUCTS, ranges=((100, 2048),)))
    (variant,) = plan_of(gemm_probe(ROWS, 2048, 8192, "bf16"), device).variants
    assert variant.range == SizeRange(ROWS, 100)


def test_quantised_weights_have_ranges_too() -> None:
    """Prompts of many tokens are multiplied in large tiles, whatever the weights are."""
    plan = plan_of(quantised_probe(ROWS, 4096, 4096, "bf16", 8))
    assert max(p.cut.m for p in plan.variants) == 128
    assert plan.cut.m < 128


def test_a_size_lies_in_one_range() -> None:
    plan = plan_of(gemm_probe(ROWS, 2048, 8192, "bf16"))
    plans = (plan, *plan.variants)
    for rows in (1, 255, 256, 257, 1023, 1024, 2048):
        holding = [p.range.holds.evaluate({"rows": rows}) for p in plans if p.range is not None]
        assert sorted(holding) == [0, 0, 1], rows


def of_float8(probe: Probe) -> Probe:
    """The same product, whose bytes are float8."""
    assert isinstance(probe.node, Gemm)
    assert probe.node.quantised is not None
    bytes_ = replace(probe.buffers["b"], dtype="u8")
    how = replace(probe.node.quantised, float8=True)
    node = replace(probe.node, b=replace(probe.node.b, buffer=bytes_), quantised=how)

    def reference(t: Mapping[str, torch.Tensor]) -> torch.Tensor:
        weights = t["b"].to(torch.uint8).view(torch.float8_e4m3fn).double()
        return t["a"] @ (weights * t["scales"].t()).t()

    return Probe(node, {**probe.buffers, "b": bytes_}, probe.shapes, reference)


#: name -> the product, and its largest error; f16 products of quantised weights take these as floats from 24 rows on
PRODUCTS_OF_ROWS: dict[str, tuple[Callable[[], Probe], float]] = {
    "product": (lambda: gemm_probe(ROWS, 96, 320, "f32", bias=True, residual=True), 2e-6),
    "pair": (lambda: pair_probe(ROWS, 96, 64, "f32"), 2e-6),
    "bytes": (lambda: quantised_probe(ROWS, 96, 128, "f32", 8), 2e-6),
    "bytes, f16": (lambda: quantised_probe(ROWS, 96, 128, "f16", 8), 1e-3),
    "float8, f16": (lambda: of_float8(quantised_probe(ROWS, 96, 128, "f16", 8)), 1e-3),
    "bytes by groups, f16": (lambda: quantised_probe(ROWS, 40, 128, "f16", 8, 64), 1e-3),
    "4 bits, f16": (lambda: quantised_probe(ROWS, 48, 640, "f16", 4, 64, 64), 1e-3),
    "4 bits, runs of 32, f16": (lambda: quantised_probe(ROWS, 40, 160, "f16", 4, 32, 32), 1e-3),
}


@pytest.mark.parametrize("rows", [1, 23, 24, 63, 64, 65, 130])
@pytest.mark.parametrize("kind", PRODUCTS_OF_ROWS)
def test_values(kind: str, rows: int, interpreter: TritonInterpreter) -> None:
    """The launches of one range have programs, and the result is torch's."""
    make, error = PRODUCTS_OF_ROWS[kind]
    probe = make()
    launches = launches_of(probe.node, SMALL, "kernel")
    assert len(launches) > 1
    sizes = {"rows": rows}
    running = [launch for launch in launches if launch.grid[0].evaluate(sizes) > 0]
    assert len({launch.when for launch in running}) == 1
    assert len(running) == (2 if "f16" in kind and rows >= 24 else 1)
    draw = torch.Generator().manual_seed(rows)
    tensors = {}
    for name, shape in probe.shapes.items():
        values = torch.randn([s.evaluate(sizes) for s in shape], generator=draw)
        dtype = to_torch(probe.buffers[name].dtype)
        if dtype == torch.uint8:
            whole = torch.randint(0, 256, values.shape, generator=draw)
            whole[whole % 128 == 127] = 0  # NaN of float8
            tensors[name] = whole.to(dtype)
        else:
            tensors[name] = (values * 30).to(dtype) if dtype == torch.int8 else values.to(dtype)
    tensors["a"] /= 64
    tensors["y"] = torch.full_like(tensors["y"], torch.nan)
    after = interpreter.run(launches, {probe.buffers[n]: t.reshape(-1) for n, t in tensors.items()}, sizes)
    wanted = probe.reference({n: t.double() for n, t in tensors.items() if n != "y"})
    found = after[probe.buffers["y"]].reshape(wanted.shape).double()
    assert (found - wanted).norm() <= error * wanted.norm()


def test_integers_stay_integers() -> None:
    """Rows of bytes are multiplied by tensor cores as they are, and float32 rows have no tiles of halves."""
    assert dequantised(float8_probe(ROWS, 64, 64).node) is None  # type: ignore[arg-type]
    assert dequantised(quantised_probe(ROWS, 64, 64, "f32", 8).node) is None  # type: ignore[arg-type]


def test_the_work_of_a_call_belongs_to_the_launch_that_runs() -> None:
    """Rows of the manifest: 2 * 300 * 512 * 64 operations are those of one launch, the same as of a fixed size."""
    shapes = ({0: torch.export.Dim("rows", min=1, max=2048)},)
    code = device_program(torch.nn.Linear(64, 512), (torch.randn(300, 64),), shapes, "bf16").code
    facts = dict.fromkeys(FACTS, 0)
    images = [KernelImage(k.symbol, b"", facts) for k in code.kernels]
    rows = launch_rows(code, 0, images)
    assert len(rows) > 1
    for size in (3, 300, 2000):
        sizes = {"rows": size}
        work = [evaluate(row["flops"], sizes) for row in rows]
        running = [programs(row, sizes) > 0 for row in rows]
        assert sum(work) == 2 * size * 512 * 64
        assert [w > 0 for w in work] == running
