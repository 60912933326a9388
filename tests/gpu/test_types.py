"""Every operator of the table in every element type as a GPU kernel: it compiles, numbers beside float64 keep all their
bits, and float64, integers and casts have torch's values, through Triton's interpreter. tests/gpu_runtime/
test_eager_values.py compares the same with torch on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.kernel import PLACEHOLDER, TritonKernel
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.dtypes import DTYPES
from mycc.compiler.ir.expr import Call, Const, Expr, Load, cast
from mycc.compiler.ir.index import Var, as_index, of
from mycc.compiler.ir.nodes import Map, Origin, Store
from mycc.compiler.ir.ops import OPS, ScalarOp
from mycc.compiler.machine.targets import parse_targets

from ..helpers.device_programs import DEVICE, device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

S = 1.7
ROW = Var("i", as_index(128))
#: types in memory by kind of operand
TYPES = {"f": ("f32", "f64"), "i": ("i64", "i8"), "b": ("bool",)}
NUMBERS = {"f": S, "i": 3, "b": True}
Function = Callable[[torch.Tensor], torch.Tensor]


def operand_types(op: ScalarOp, dtype: str) -> list[str]:
    return ["bool", dtype, dtype] if op.name == "where" else [dtype] * op.arity


def applied(op: ScalarOp, dtype: str, numbers: tuple[int, ...] = ()) -> Expr:
    """The operator of elements of tensors in memory of `dtype`; of a number at the places `numbers`."""
    args: list[Expr] = []
    for place, kind in enumerate(operand_types(op, dtype)):
        compute = DTYPES[kind].compute
        if place in numbers:
            args.append(Const(NUMBERS[DTYPES[kind].kind], compute))
        else:
            args.append(cast(Load(Buffer(f"x{place}", kind, ROW.extent, "input", place), of(ROW)), compute))
    if op.name.startswith("to_"):
        return Call("cast", tuple(args), op.to)
    compute = DTYPES[dtype].compute
    return Call(op.name, tuple(args), {"same": compute, "bool": "bool", "cast": op.to}[op.result])


def kernel_of(name: str, expressions: list[Expr]) -> TritonKernel:
    """A kernel that stores each of them."""
    stores = tuple(
        Store(Buffer(f"y{n}", e.dtype, ROW.extent, "output", n), of(ROW), e) for n, e in enumerate(expressions)
    )
    (launch,) = launches_of(Map((ROW,), stores, Origin()), DEVICE, name)
    kernel = launch.kernel
    return replace(kernel, source=kernel.source.replace(PLACEHOLDER, name))


def compiled(kernels: list[TritonKernel], target: str) -> list[str]:
    """The images for a target, as texts."""
    built = compile_kernels(kernels, parse_targets(target)[0], BuildOptions())
    return [image.image.decode(errors="replace") for image in built.images]


def of_type(op: ScalarOp, dtype: str) -> bool:
    return DTYPES[dtype].kind in op.accepts and DTYPES[dtype].compute in (op.types or (DTYPES[dtype].compute,))


@pytest.mark.parametrize("dtype", [t for types in TYPES.values() for t in types])
def test_operators_of_a_type_compile(dtype: str) -> None:
    """In one kernel, each of elements alone and with a number at each place. Special functions: test_each_operator."""
    own = [op for op in OPS.values() if of_type(op, dtype) and not op.header]
    forms = [(op, places) for op in own for places in ((), *(((n,) for n in range(op.arity)) if op.arity == 2 else ()))]
    assert compiled([kernel_of(f"all_{dtype}", [applied(op, dtype, n) for op, n in forms])], "cuda:ptx")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [t for types in TYPES.values() for t in types])
def test_each_operator_compiles(dtype: str) -> None:
    kernels = [
        kernel_of(f"{op.name}_{'_'.join(map(str, places))}", [applied(op, dtype, places)])
        for op in OPS.values()
        if of_type(op, dtype)
        for places in ((), *(((n,) for n in range(op.arity)) if op.arity > 1 else ()))
        if not (op.name == "where" and places == (0,))
    ]
    assert len(compiled(kernels, "cuda:sm_90")) == len(kernels)


def test_numbers_beside_float64_keep_all_bits() -> None:
    """Each place of each operator: the code has the number as a float64, and nothing of float32."""
    names = "add sub mul div fma maximum minimum fmax fmin copysign eq lt ge where".split()
    forms = [(OPS[name], n) for name in names for n in range(OPS[name].arity) if (name, n) != ("where", 0)]
    expressions = [applied(op, "f64", (n,)) for op, n in forms]
    expressions += [applied(OPS["where"], "f64", (1, 2))]
    kernels = [kernel_of(f"k{n}", [e]) for n, e in enumerate(expressions)]
    for (op, place), text in zip([*forms, (OPS["where"], 12)], compiled(kernels, "cuda:ptx"), strict=True):
        exact = "0d3FFB333333333333" in text or "0dBFFB333333333333" in text or str(0x3FFB333333333333) in text
        assert exact, (op.name, place)
        assert "f32" not in text, (op.name, place)


#: of a tensor of float64, for which the steps of torch's kernels are the same on every device
FLOAT64: dict[str, Function] = {
    "eq": lambda x: x == S,
    "gt": lambda x: x > S,
    "remainder": lambda x: x % S,
    "floor": lambda x: x // S,
    "floor 0": lambda x: x // 0.0,
    "rfloor": lambda x: S // x,
    "add alpha": lambda x: torch.add(x, x.flip(0), alpha=S),
    "rsub alpha": lambda x: torch.rsub(x, x.flip(0), alpha=S),
    "threshold": lambda x: F.threshold(x, S, 3.3),
    "hardshrink": lambda x: F.hardshrink(x, S),
    "softshrink": lambda x: F.softshrink(x, S),
    "hardtanh": lambda x: F.hardtanh(x, -S, 3.3),
    "clamp": lambda x: x.clamp(-S, 3.3),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "elu": lambda x: F.elu(x, 0.3),
    "softplus": lambda x: F.softplus(x, 0.7),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sqrt": lambda x: x.abs() ** 0.5,
    "pow": lambda x: x.abs() ** 2.3,
    "rpow": lambda x: 1.3**x,
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x.roll(7), value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x.roll(7), value=0.3),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "where": lambda x: torch.where(x > 0, torch.full_like(x, 0.1), torch.full_like(x, 0.3)) / 3.0,
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.1),
    "nan_to_num": lambda x: torch.nan_to_num(x, 0.1),
    "round": lambda x: torch.round(x, decimals=2),
    "logit": lambda x: torch.logit(x.abs() / 40, 0.01),
    "layer_norm": lambda x: F.layer_norm(x.view(-1, 31), (31,)).flatten(),
    "softmax": lambda x: torch.softmax(x * 0.1, 0),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "cumsum": lambda x: x.cumsum(0),
    "logsumexp": lambda x: x.logsumexp(0),
}


def test_float64_is_computed_in_float64(interpreter: TritonInterpreter) -> None:
    x = torch.randn(31 * 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7
    x[:4] = torch.tensor([S, -S, 0.0, 1.7000000476837158], dtype=torch.float64)
    program = device_program(Call1(lambda x: [f(x) for f in FLOAT64.values()]), (x,))
    found = run_interpreted(program, interpreter, [x])
    for (name, f), got in zip(FLOAT64.items(), found, strict=True):
        want = f(x)
        scale = float(want.abs().nan_to_num(0, 0, 0).max()) if want.dtype.is_floating_point else 0.0
        near = torch.allclose(got, want, rtol=1e-13, atol=1e-15 * scale, equal_nan=True)
        assert near, name


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_powers_of_integers(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    """They wrap; negative ones are whole for 1 and -1 alone."""
    low = 0 if dtype == torch.uint8 else -6
    bases, powers = zip(*itertools.product(range(low, 12), range(0 if low == 0 else -3, 40)), strict=True)
    x, y = (torch.tensor(v).to(dtype) for v in (bases, powers))
    program = device_program(Call1(lambda x, y: [x**y, x**3, 3 ** y.abs(), (x**y) // 5]), (x, y))
    found = run_interpreted(program, interpreter, [x, y])
    for got, want in zip(found, [x**y, x**3, 3 ** y.abs(), (x**y) // 5], strict=True):
        assert torch.equal(got, want)


def test_two_wide_numbers_are_wide(interpreter: TritonInterpreter) -> None:
    """Of int64, whose products do not fit in 32 bits, and beside a number of 32 bits without a sign."""
    x = torch.arange(-5, 6)
    f = Call1(lambda x: [torch.where(x > 0, 100000, 200000) * 100000, torch.where(x > 0, 3000000000, -5)])
    for got, want in zip(run_interpreted(device_program(f, (x,)), interpreter, [x]), f(x), strict=True):
        assert torch.equal(got, want)


def test_sizes_are_wide(interpreter: TritonInterpreter) -> None:
    """Their products, and of two of them the one that is chosen; 32 bits hold the sizes themselves."""
    n = torch.export.Dim("n", min=2, max=100000)

    def model(x: torch.Tensor) -> list[torch.Tensor]:
        size = x.shape[0]
        chosen = torch.where(x > 0, size, 5) * 100000
        return [x.double() + size * size, chosen, x + (size * size - 3), torch.arange(0, size * 100000, 100000)]

    x = torch.arange(65537)
    program = device_program(Call1(model), (x,), (({0: n},),))
    for got, want in zip(run_interpreted(program, interpreter, [x]), model(x), strict=True):
        assert torch.equal(got, want)


def test_numbers_below_the_normal_ones_of_float32(interpreter: TritonInterpreter, tmp_path: Path) -> None:
    x = torch.tensor([0.0, 1e-40, -1e-40, 3.0, float("nan")])
    f = Call1(lambda x: [x == 1e-40, x.clamp(min=1e-40), torch.where(x > 0, x, 1e-40), 1e-40 / x, x.fmod(1e-40)])
    program = device_program(f, (x,))
    assert compiled(list(program.code.kernels), "cuda:ptx")
    found = run_interpreted(program, interpreter, [x])
    for got, want in zip(found[:3], f(x)[:3], strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_casts_to_bytes_go_by_way_of_int64(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    x = torch.tensor([3e9, 2147483648.0, 4294967295.0, 4294967552.0, -1.5, 300.0, 255.5, -0.5]).to(dtype)
    program = device_program(Call1(lambda x: [x.to(torch.uint8), x.to(torch.uint8) + 1]), (x,))
    found = run_interpreted(program, interpreter, [x])
    want = x.double().trunc().to(torch.int64).to(torch.uint8)
    assert torch.equal(found[0], want)
    assert torch.equal(found[1], want + 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_rounding_to_decimals(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    """The scaled number has the type of the tensor, as in torch's CUDA kernels."""
    x = torch.arange(0, 1 << 16, 7, dtype=torch.int32).to(torch.int16).view(torch.float16).to(dtype)
    x = torch.where(x.isnan(), torch.zeros_like(x), x)
    ten = torch.tensor(10.0)
    f = Call1(lambda x: [torch.round(x, decimals=2), torch.round(x, decimals=-1)])
    found = run_interpreted(device_program(f, (x,)), interpreter, [x])
    a = x.float()
    wanted = [((a * (ten * ten)).to(dtype).float().round() / (ten * ten)), ((a / ten).to(dtype).float().round() * ten)]
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want.to(dtype), rtol=0, atol=0, equal_nan=True)
