"""Every form of the kernels of loops through Triton's interpreter, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from mycc.compiler.machine.gpu import Device
from mycc.compiler.verify.compare import error
from mycc.runtime.errors import CompileError
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from ..helpers.device_programs import DEVICE, DeviceProgram, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import IndexOutOfRange, TritonInterpreter

#: of the norm of the result; half types round once, when they are stored
TOLERANCE = {torch.float32: 1e-6, torch.float16: 6e-4}
SMALL_DEVICE = replace(DEVICE, sms=4)
Make = Callable[[torch.dtype], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A function, its inputs in a dtype, the templates its kernels come from, and sizes that change.

    device: where few multiprocessors make a small input a large one.
    """

    name: str
    function: Callable[..., Any]
    make: Make
    forms: tuple[str, ...]
    dynamic: Any = None
    other: Make | None = None  # inputs of other sizes
    device: Device = DEVICE

    def __str__(self) -> str:
        return self.name


def floats(*shapes: tuple[int, ...], seed: int = 0) -> Make:
    def make(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randn(*shape, generator=generator).to(dtype) for shape in shapes)

    return make


def far(*shape: int) -> Make:
    """Large numbers, and a row of the least of float16, as masks have it."""

    def make(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        x = torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 8000
        x[0] = -65504
        return (x.to(dtype),)

    return make


def tokens(table: tuple[int, int], *shape: int) -> Make:
    def make(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(-table[0], table[0], shape, generator=generator)
        return ids, torch.randn(*table, generator=generator).to(dtype)

    return make


def integers(low: int, high: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.int64) -> Make:
    def make(_: torch.dtype) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(2)
        return tuple(torch.randint(low, high, shape, generator=generator).to(dtype) for shape in shapes)

    return make


def with_ties(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x = torch.randint(-3, 4, (7, 50), generator=torch.Generator().manual_seed(3)).to(dtype)
    x[2, 30], x[2, 40], x[5] = float("nan"), float("nan"), float("-inf")
    return (x,)


def with_many_ties(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Long rows of an odd number of elements: some values again and again, two NaN, infinities alone."""
    x = torch.randint(-3, 4, (5, 20001), generator=torch.Generator().manual_seed(3)).to(dtype)
    x[1, 19000], x[1, 20000], x[2], x[3] = float("nan"), float("nan"), float("-inf"), float("inf")
    x[4, 9000], x[4, 16000], x[4, 18000] = float("nan"), float("nan"), float("nan")
    return (x,)


def norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


ROWS = {0: torch.export.Dim("rows", min=1, max=64)}
LENGTH = {1: torch.export.Dim("length", min=1, max=200)}

CASES = [
    Case("flat", lambda x: F.gelu(x) * 2 + 1, floats((3, 350)), ("map_flat",)),
    Case("flat_broadcast", lambda x, b: torch.tanh(x + b), floats((9, 96), (96,)), ("map_flat",)),
    Case("flat_scalar", lambda x: x.sum().exp(), floats((3,)), ("rows",)),
    Case(
        "flat_dynamic", lambda x, b: F.silu(x + b), floats((6, 96), (96,)), ("map_flat",), (ROWS, None),
        floats((11, 96), (96,), seed=4),
    ),
    Case("tile", lambda x: x.transpose(1, 2).contiguous() * 3, floats((2, 37, 75)), ("map_tile",)),
    Case("tile_4d", lambda x: x.permute(0, 3, 1, 2).contiguous(), floats((2, 5, 9, 33)), ("map_tile",)),
    Case(
        "tile_dynamic", lambda x: x.transpose(0, 1).contiguous(), floats((20, 33)), ("map_tile",), (ROWS,),
        floats((45, 33), seed=5),
    ),
    Case("tile_of_rows", lambda i, t: F.embedding(i % 30, t) * 2, tokens((30, 70), 3, 5), ("map_tile",)),
    Case("gather", lambda i, t: t[i], tokens((30, 70), 3, 5), ("map_tile",)),
    Case("gather_elements", lambda i, t: t.gather(1, i % 70), tokens((8, 70), 8, 20), ("map_flat",)),
    Case(
        "dynamic_inner", lambda x, b: (x * b).abs(), floats((3, 60), (3, 1)), ("map_tile",), (LENGTH, None),
        floats((3, 131), (3, 1), seed=6),
    ),
    Case("concatenation", lambda x, y: torch.cat((x, y * 2, x), 1), floats((4, 30), (4, 7)), ("map_flat",)),
    Case("rotation", rotate, floats((2, 3, 5, 16), (5, 16), (5, 16)), ("map_flat",)),
    Case("padding", lambda x: F.pad(x, (1, 2, 3, 0)), floats((2, 5, 9)), ("map_flat",)),
    Case("flip_roll", lambda x: x.flip(1).roll(3, 0), floats((6, 10)), ("map_flat",)),
    Case("triangle", lambda x: x.masked_fill(torch.ones(9, 9).triu(1).bool(), -1), floats((2, 9, 9)), ("map_flat",)),
    Case("norm", norm, floats((10, 768), (768,), (768,)), ("rows",)),
    Case("norm_short", norm, floats((50, 40), (40,), (40,)), ("rows",)),
    Case(
        "norm_dynamic", norm, floats((5, 100), (100,), (100,)), ("rows",), (ROWS, None, None),
        floats((23, 100), (100,), (100,)),
    ),
    Case("norm_of_sum", lambda x, r, w: F.rms_norm(x + r, (96,), w) * r, floats((14, 96), (14, 96), (96,)), ("rows",)),
    Case("softmax", lambda x: F.softmax(x * 0.5, -1), floats((2, 3, 50)), ("rows",)),
    Case("softmax_dynamic", lambda x: F.softmax(x, -1), floats((3, 50)), ("rows",), (LENGTH,), floats((3, 150))),
    Case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, -1), floats((6, 50), (6, 50)), ("rows",)),
    Case("softmax_far", lambda x: F.softmax(x, -1), far(6, 50), ("rows",)),
    Case("softmax_long", lambda x: F.log_softmax(x, -1), floats((2, 20000)), ("row_pieces",)),
    Case("sum_short", lambda x: x.sum(-1), floats((65, 8)), ("rows",)),
    Case("sum_long", lambda x: x.double().sum(-1).float(), floats((70, 17024)), ("rows_walked",)),
    Case("sum_long_anywhere", lambda x: x.double().sum(-1).float(), floats((7, 17001)), ("row_pieces",)),
    Case("sum_of_all", lambda x: x.sum(), floats((64, 1024)), ("rows",)),
    Case("mean_across", lambda x: x.mean(1), floats((3, 40, 50)), ("rows",)),
    Case("sum_across_in_parts", lambda x: x.sum(0), floats((4096, 40)), ("rows",)),
    Case("norm_long", lambda x: F.layer_norm(x, (17001,)), floats((2, 17001)), ("row_pieces",)),
    Case("mean_across_long", lambda x: x.mean(0), floats((300, 40)), ("rows_walked",)),
    Case(
        "pooling", lambda x: F.max_pool2d(x.permute(0, 3, 1, 2) + 1, 3, 2, 1), floats((2, 12, 10, 20)),
        ("rows_walked",), device=SMALL_DEVICE,
    ),
    Case(
        "mean_of_windows", lambda x: F.avg_pool2d(x, 5, 2), floats((2, 1, 51, 67)), ("rows_walked",),
        device=SMALL_DEVICE,
    ),
    Case("two_results", lambda x: torch.var_mean(x, -1), floats((6, 70)), ("rows",)),
    Case("maximum_with_nan", lambda x: x.amax(-1), with_ties, ("rows",)),
    Case("minimum_with_nan", lambda x: x.amin(0), with_ties, ("rows",)),
    Case("argmax", lambda x: x.argmax(-1), with_ties, ("rows",)),
    Case("argmin_across", lambda x: x.argmin(0), with_ties, ("rows",)),
    Case("argmax_long", lambda x: x.argmax(-1), floats((2, 20480)), ("rows_walked",)),
    Case("argmax_of_ties", lambda x: x.argmax(-1), with_many_ties, ("row_pieces",)),
    Case("argmin_of_ties", lambda x: x.argmin(-1), with_many_ties, ("row_pieces",)),
    Case("softmax_odd", lambda x: F.softmax(x, -1), floats((5, 20001)), ("row_pieces",)),
    Case("norm_odd", norm, floats((3, 17003), (17003,), (17003,)), ("row_pieces",)),
    Case("sum_odd", lambda x: x[1:].float().sum(-1), floats((4, 16387)), ("row_pieces",)),
    Case(
        "softmax_dynamic_odd", lambda x: F.softmax(x, -1), floats((2, 16391)), ("row_pieces",), (ROWS,),
        floats((9, 16391)),
    ),
    Case("softmax_of_two", lambda x, y: F.softmax(x * y, -1), floats((2, 17003), (2, 17003)), ("row_pieces",)),
    Case("norm_of_too_many", lambda x: F.layer_norm(x, (61001,)), floats((2, 61001)), ("row_pieces",)),
    Case("variance_in_whole_pieces", lambda x: x.var(-1), floats((2, 20480)), ("row_pieces",)),
    Case("largest_and_any", lambda x: (x.max(-1), (x > 4).any(-1)), floats((3, 20001)), ("row_pieces",)),
    Case("max_and_index", lambda x: x.max(-1), with_ties, ("rows",)),
    Case("product", lambda x: (1 + 0.1 * x).prod(-1), floats((5, 33)), ("rows",)),
    Case("any_all", lambda x: ((x > 1).any(-1), (x > -3).all(0)), floats((9, 21)), ("rows",)),
    Case("integer_sums", lambda x: (x.sum(-1), x.amax(0), x.prod(-1)), integers(-3, 4, (6, 10)), ("rows",)),
    Case("integer_division", lambda x, y: (x // y, x % y), integers(1, 50, (5, 9), (5, 9)), ("map_flat",)),
    Case("integer_places", lambda x: torch.arange(9) * 2 + x, integers(-50, 50, (5, 9)), ("map_flat",)),
    Case(
        "float_division", lambda x, y: (x // y, torch.remainder(x, y), torch.fmod(x, y)), floats((5, 9), (5, 9)),
        ("map_flat",),
    ),
    Case("truth", lambda x, y: (x > y) & ~(x < 0) | (y == 0), floats((5, 9), (5, 9)), ("map_flat",)),
    Case("where", lambda x, y: torch.where(x > 0, x, y).clamp(-1, 1), floats((5, 9), (5, 9)), ("map_flat",)),
    Case("narrow_integers", lambda x: (x + x, x // 3), integers(0, 100, (5, 9), dtype=torch.uint8), ("map_flat",)),
    Case("running_sum", lambda x: x.cumsum(-1), floats((5, 33)), ("scan_rows",)),
    Case("running_sum_long", lambda x: x.cumsum(-1), floats((2, 2500)), ("scan_rows",)),
    Case("running_sum_short", lambda x: x.cumsum(-1), floats((5, 7)), ("scan",)),
    Case("running_sum_across", lambda x: x.cumsum(0), integers(-9, 9, (40, 7)), ("scan_rows",)),
    Case(
        "running_sum_dynamic", lambda x: x.cumsum(-1), floats((3, 60)), ("scan_rows",), (LENGTH,),
        floats((3, 131), seed=6),
    ),
    Case("running_product", lambda x: (1 + 0.1 * x).cumprod(-1), floats((5, 33)), ("scan_rows",)),
    Case("running_maximum", lambda x: x.cummax(1), with_ties, ("scan_rows",)),
    Case("running_minimum_across", lambda x: x.cummin(0), with_ties, ("scan",)),
    Case("running_sum_of_logs", lambda x: x.logcumsumexp(-1), floats((3, 40)), ("scan_rows",)),
    Case("running_sum_of_one", lambda x: x.cumsum(-1), floats((1,)), ("scan",)),
    Case(
        "scatter", lambda x, i: x.scatter(1, i, -x), lambda d: (*floats((6, 20))(d), *integers(0, 20, (6, 9))(d)),
        ("scatter", "map_flat"),
    ),
    Case(
        "scatter_sum", lambda x, i, y: x.index_add(0, i, y),
        lambda d: (*floats((9, 40))(d), *integers(0, 9, (25,))(d), *floats((25, 40), seed=8)(d)),
        ("scatter_first", "map_flat"),
    ),
    Case("casts", lambda x: x + x.to(torch.int32) + (x * 50).to(torch.uint8), floats((5, 9)), ("map_flat",)),
]  # fmt: skip


def compiled(case: Case, dtype: torch.dtype) -> DeviceProgram:
    dynamic = (case.dynamic,) if case.dynamic else None
    return device_program(Call1(case.function).eval(), case.make(dtype), dynamic, device=case.device)


def forms(program: DeviceProgram) -> set[str]:
    """The templates that the kernels of a program were rendered from, told by their first lines."""
    return {_form(kernel.source) for kernel in program.code.kernels}


def _form(source: str) -> str:
    body = source.rpartition("@triton.jit")[2]
    if "    lane = tl.arange(" in body:
        return "row_pieces"
    if "carry0" in body:
        return "scan_rows"
    if "this = program //" in body:
        return "scatter_first"
    if "for step in range" in body or "for late in range" in body:
        return "scan" if "for step in range" in body else "scatter"
    if "    i = tl.program_id(0)" in body:
        return "map_flat"
    if "    tile = tl.program_id(0)" in body:
        return "map_tile"
    return "rows_walked" if "for begin in range" in body or "for j in" in body else "rows"


def reference(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    return list(pytree.tree_leaves(function(*wide)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_against_float64(case: Case, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    program = compiled(case, dtype)
    assert set(case.forms) <= forms(program)
    for make in filter(None, (case.make, case.other)):
        inputs = make(dtype)
        found = run_interpreted(program, interpreter, inputs)
        for y, wanted in zip(found, reference(case.function, inputs), strict=True):
            assert error(y, wanted) <= TOLERANCE[dtype]


@pytest.mark.parametrize("shape", [(3, 768), (45, 96), (40, 64)], ids=str)
def test_indices_by_units(shape: tuple[int, int], interpreter: TritonInterpreter) -> None:
    """Of many rows of 16-bit elements; units with ties, with several NaN, of infinities alone."""
    device = replace(DEVICE, sms=2, many=1, rows=replace(DEVICE.rows, short=0))
    x = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(3)).half()
    x[0, 30], x[0, 40], x[0, 41], x[1], x[2] = (*[float("nan")] * 3, float("-inf"), float("inf"))
    for function in (lambda x: x.argmax(-1), lambda x: x.argmin(-1)):
        program = device_program(Call1(function).eval(), (x,), device=device)
        assert "acc0_units" in program.code.kernels[0].source
        (found,) = run_interpreted(program, interpreter, (x,))
        assert torch.equal(found, function(x.double()))


def test_gelu_for_results_of_16_bits(interpreter: TritonInterpreter) -> None:
    """As near as the rounding allows, everywhere: in the tail relative to the result."""
    x = torch.cat([torch.linspace(-5.4, 8.0, 2000), torch.tensor([0.0, 65504.0, float("inf"), float("nan")])]).half()
    program = device_program(Call1(F.gelu).eval(), (x,))
    assert "gelu_half" in program.code.kernels[0].source
    (found,) = run_interpreted(program, interpreter, (x,))
    wanted = F.gelu(x.double())
    assert torch.equal(found[-2:].isnan(), torch.tensor([False, True]))
    torch.testing.assert_close(found[:-1].double(), wanted[:-1], rtol=6e-4, atol=6e-8)


def test_a_wrong_result_is_seen(interpreter: TritonInterpreter) -> None:
    case = CASES[0]
    inputs = case.make(torch.float32)
    (found,) = run_interpreted(compiled(case, torch.float32), interpreter, inputs)
    assert error(found, reference(lambda x: F.gelu(x) * 2 + 1.001, inputs)[0]) > TOLERANCE[torch.float32]


def test_what_has_no_kernel_is_refused_with_its_line() -> None:
    size = {1: torch.export.Dim("n", min=1)}
    with pytest.raises(CompileError, match="on a GPU the size of a Fourier transform needs an upper bound") as refused:
        device_program(Call1(lambda x: torch.fft.rfft(x)).eval(), (torch.randn(2, 9),), dynamic_shapes=((size,),))
    assert any("test_loop_kernels.py" in line for line in refused.value.details)


@pytest.mark.parametrize("bad", [30, -31])
def test_an_index_out_of_range_is_reported(bad: int, interpreter: TritonInterpreter) -> None:
    table = torch.randn(30, 70)
    program = device_program(Call1(lambda i, t: t[i]).eval(), (torch.tensor([1, 2, 3]), table))
    with pytest.raises(IndexOutOfRange, match="in launch 1"):
        run_interpreted(program, interpreter, (torch.tensor([1, bad, 3]), table))


def test_a_nest_that_reads_other_places_becomes_kernels_of_its_stages(interpreter: TritonInterpreter) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        h = x - x.mean(-1, keepdim=True)
        return F.softmax(h.flip(-1) + h, -1)

    inputs = floats((4, 33))(torch.float32)
    program = device_program(nn.Module.eval(Call1(function)), inputs)
    (found,) = run_interpreted(program, interpreter, inputs)
    assert error(found, reference(function, inputs)[0]) <= 1e-6
