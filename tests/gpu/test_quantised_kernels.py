"""Products of quantised weights on GPUs, through Triton's interpreter, against exact integers and float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.model.operators import dequantize, quantised  # noqa: F401  # defines the operators
from mycc.runtime.errors import CompileError
from torch import Tensor, nn

from ..helpers.device_programs import DEVICE, DeviceProgram, device_program, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter

ops = torch.ops.mycc


@dataclass(frozen=True)
class Weight:
    """A format and a shape. group: 0: no scales. zeros: the dtype of the zeros; None: there are none."""

    n: int
    k: int
    bits: int = 8
    group: int = 0
    scale: torch.dtype = torch.float16
    zeros: torch.dtype | None = None

    def __str__(self) -> str:
        zeros = "" if self.zeros is None else f"-{str(self.zeros)[6:]}"
        return f"{self.n}x{self.k}-w{self.bits}" + (f"g{self.group}{zeros}" if self.group else "")


#: whole rows; groups of one, two and four planes of a chunk, and of more; odd sizes; planes that k ends within
WEIGHTS = (
    Weight(40, 256), Weight(33, 75), Weight(48, 512, 8, 64), Weight(20, 96, 8, 32, zeros=torch.int8),
    Weight(33, 256, 4, 32, zeros=torch.int8), Weight(40, 512, 4, 128), Weight(65, 192, 4, 64, torch.bfloat16),
    Weight(24, 288, 4, 96, zeros=torch.float32), Weight(17, 75, 4, 75, torch.float32), Weight(16, 1024, 4, 256),
    Weight(16, 48, 4, 16),
)  # fmt: skip


class Products(nn.Module):
    """The operators of every weight of the table, of floats and of int8; x and a hold the columns of all of them."""

    def __init__(self) -> None:
        super().__init__()
        for i, w in enumerate(WEIGHTS):
            low, high = (-128, 128) if w.bits == 8 else (-8, 8)
            values = torch.randint(low, high, (w.n, w.k), dtype=torch.int8)
            self.register_buffer(f"w{i}", values if w.bits == 8 else quantised.packed(values))
            groups = (w.n, w.k // (w.group or w.k))
            self.register_buffer(f"scales{i}", (0.01 + torch.rand(groups)).to(w.scale))
            self.register_buffer(f"zeros{i}", (torch.randn(groups) * 3).to(w.zeros) if w.zeros else None)

    def tensors(self, i: int) -> tuple[Tensor, Tensor, Tensor | None]:
        return getattr(self, f"w{i}"), getattr(self, f"scales{i}"), getattr(self, f"zeros{i}")

    def forward(self, x: Tensor, a: Tensor, a_zeros: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for i, w in enumerate(WEIGHTS):
            (weight, scales, zeros), own, ints = self.tensors(i), x[:, : w.k], a[:, : w.k]
            if w.group:
                rest = weight, scales, zeros, w.bits, w.group
                found += (ops.grouped_mm(own, *rest).to(x.dtype), ops.grouped_int_mm(ints, a_zeros, *rest))
            else:
                floats = ops.mixed_mm(own, weight) * scales[:, 0]
                found += (floats.to(x.dtype), torch._int_mm(ints, weight.t()))
        return tuple(found)

    def exact(self, i: int, x: Tensor, a: Tensor, a_zeros: Tensor) -> tuple[Tensor, Tensor]:
        """Both results of a weight in float64."""
        w, (weight, scales, zeros) = WEIGHTS[i], self.tensors(i)
        own, ints = x[:, : w.k].double(), a[:, : w.k].double()
        if not w.group:
            return (own @ weight.double().t()) * scales[:, 0].double(), ints @ weight.double().t()
        real = quantised.dequantised(weight, scales, zeros, w.bits, w.group, w.k, torch.float64)
        return own @ real.t(), (ints - a_zeros.double()) @ real.t()


def operands(rows: int, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    a = torch.randint(-128, 128, (rows, k), dtype=torch.int8)
    a[0] = -128
    return torch.randn(rows, k).to(dtype), a, torch.randint(-8, 8, (rows, 1), dtype=torch.int32)


def reads_integers(program: DeviceProgram) -> bool:
    """Whether every kernel that multiplies reads a weight of bytes (integers by groups of 16 are loops),
    and no constant of floats is as large."""
    constants = program.lowered.constants
    products = [n for n in program.schedule.program.nodes if isinstance(n, Gemm)]
    floats = [c for c in constants if c.tensor.is_floating_point() and c.tensor.numel() > 1000]
    return (
        len(products) == 2 * len(WEIGHTS) - 1 and all(n.b.buffer.dtype in ("i8", "u8") for n in products) and not floats
    )


#: of a result; the interpreter cuts digits off where a GPU rounds to bfloat16
ROUNDING = {torch.bfloat16: 2**-7, torch.float16: 2**-11, torch.float32: 2e-6}
#: rows and the type of activations: a kernel for one row, one for few, tiles of many
FORMS = ((1, torch.bfloat16), (7, torch.float16), (40, torch.bfloat16), (1, torch.float32))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}-{str(form[1])[6:]}")
def test_products(form: tuple[int, torch.dtype], interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    (rows, dtype), model = form, Products().eval()
    given = operands(rows, max(w.k for w in WEIGHTS), dtype)
    program = device_program(model, given, device=DEVICE)
    assert reads_integers(program)
    results = run_interpreted(program, interpreter, given)
    for i, weight in enumerate(WEIGHTS):
        (floats, integers), (want, exact) = results[2 * i : 2 * i + 2], model.exact(i, *given)
        near = ROUNDING[dtype] * want.abs() + 1e-5 * want.norm()
        assert ((floats.double() - want).abs() <= near).all(), str(weight)
        if weight.group:
            assert float((integers.double() - exact).norm() / exact.norm()) < 2e-6, str(weight)
        else:
            assert integers.dtype == torch.int32
            assert torch.equal(integers.double(), exact), str(weight)


class Gated(nn.Module):
    """Float8 rows times float8 weights, in `fast` sums or not, whose halves meet: silu(gate) * up; and float rows."""

    def __init__(self, fast: bool) -> None:
        super().__init__()
        self.fast = fast
        self.register_buffer("w", torch.randn(96, 80).to(torch.float8_e4m3fn))
        self.register_buffer("scale", 0.01 + torch.rand(96, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 448
        q = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = torch._scaled_mm(q, self.w.t(), scale, self.scale.t(), out_dtype=torch.float32, use_fast_accum=self.fast)
        gate, up = y.chunk(2, -1)
        return nn.functional.silu(gate) * up, nn.functional.linear(x, self.w.to(x.dtype) * self.scale)

    def exact(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 448
        q = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).double()
        real = self.w.double() * self.scale.double()
        gate, up = (q @ real.t() * scale.double()).chunk(2, -1)
        return nn.functional.silu(gate) * up, x.double() @ real.t()


@pytest.mark.parametrize("rows", [1, 48])
def test_float8(rows: int, interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    model, x = Gated(fast=rows == 1).eval(), torch.randn(rows, 80)
    program = device_program(model, (x,), device=DEVICE)
    products = [n for n in program.schedule.program.nodes if isinstance(n, Gemm)]
    assert len(products) == 2
    assert all(n.b.buffer.dtype == "u8" for n in products)
    assert bool(products[0].also) == (rows > 1), "one kernel computes both halves of many rows"
    for got, want in zip(run_interpreted(program, interpreter, (x,)), model.exact(x), strict=True):
        assert float((got.double() - want).norm() / want.norm()) < 5e-6


def test_float8_is_refused_where_tensor_cores_have_none() -> None:
    with pytest.raises(CompileError, match=r"float8 need tensor cores of sm_90 (.|\n)*Quantise to int8"):
        device_program(Gated(fast=True).eval(), (torch.randn(4, 80),), device=replace(DEVICES[80], pdl=False))


def test_layers_of_one_input_are_one_product() -> None:
    """What was quantised apart is multiplied together, and a table that an embedding reads too stays alone."""
    torch.manual_seed(0)
    model = Attention().eval()
    program = device_program(model, (torch.tensor([[1, 2, 3]]),), device=DEVICE)
    columns = sorted(n.dims[-1].extent.constant or 0 for n in program.schedule.program.nodes if isinstance(n, Gemm))
    assert columns == [40, 64 + 16 + 16]
    assert not [c for c in program.lowered.constants if c.tensor.is_floating_point() and c.tensor.numel() > 200]


class Attention(nn.Module):
    """Three layers of the rows of a table, which is the last layer's weight as well; all int8."""

    def __init__(self) -> None:
        super().__init__()
        for name, rows in (("q", 64), ("k", 16), ("v", 16), ("table", 40)):
            self.register_buffer(name, torch.randint(-128, 128, (rows, 64), dtype=torch.int8))
            self.register_buffer(f"{name}_scale", 0.01 + torch.rand(rows, 1))

    def weight(self, name: str) -> Tensor:
        return ops.dequantize(getattr(self, name), getattr(self, f"{name}_scale"), None, 8, 64, torch.float32)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x = nn.functional.embedding(ids, self.weight("table"))
        parts = [nn.functional.linear(x, self.weight(name)) for name in "qkv"]
        return *parts, nn.functional.linear(x.relu(), self.weight("table"))
