"""Products of quantised weights against exact integers and float64, for every format, odd sizes and row counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.machine.local_cpu import machine
from mycc.compiler.machine.targets import TARGETS, runs_here
from mycc.compiler.model.operators import quantised
from torch import Tensor, nn

from .conv_support import names_in

ops = torch.ops.mycc
ROWS = (1, 2, 7, 16, 65)


@dataclass(frozen=True)
class Weight:
    """A format and a shape. zeros: the dtype of the zeros; None: there are none."""

    n: int
    k: int
    bits: int = 8
    group: int = 0
    scale: torch.dtype = torch.float32
    zeros: torch.dtype | None = None
    x: torch.dtype = torch.float32


WEIGHTS = (
    Weight(33, 40), Weight(16, 129), Weight(5, 3), Weight(150, 516), Weight(48, 320, x=torch.bfloat16),
    Weight(40, 96, 8, 32), Weight(32, 128, 8, 64, torch.bfloat16, torch.int8), Weight(17, 75, 8, 75),
    Weight(40, 96, 4, 32, torch.float16), Weight(19, 256, 4, 128, torch.float16),
    Weight(33, 128, 4, 64, torch.float32, torch.int8), Weight(21, 35, 4, 35, torch.float32, torch.float32),
    Weight(64, 1056, 4, 32, torch.float16, x=torch.bfloat16), Weight(34, 60, 4, 20, torch.float32, torch.int8),
)  # fmt: skip


class Products(nn.Module):
    """Every operator with every weight of the table that it takes; x holds the columns of all of them."""

    def __init__(self) -> None:
        super().__init__()
        for i, w in enumerate(WEIGHTS):
            low, high = (-128, 128) if w.bits == 8 else (-8, 8)
            values = torch.randint(low, high, (w.n, w.k), dtype=torch.int8)
            values[0] = low
            self.register_buffer(f"w{i}", values if w.bits == 8 or i % 2 else quantised.packed(values))
            if w.group:
                groups = (w.n, w.k // w.group)
                self.register_buffer(f"scales{i}", (0.01 + torch.rand(groups)).to(w.scale))
                zeros = (torch.randn(groups) * 3).to(w.zeros) if w.zeros else None
                self.register_buffer(f"zeros{i}", zeros)

    def forward(self, x: Tensor, a: Tensor, a_zeros: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for i, w in enumerate(WEIGHTS):
            weight, own, ints = getattr(self, f"w{i}"), x[:, : w.k].to(w.x), a[:, : w.k]
            if not w.group:
                found += (torch._int_mm(ints, weight.t()), ops.mixed_mm(own, weight))
                continue
            rest = weight, getattr(self, f"scales{i}"), getattr(self, f"zeros{i}"), w.bits, w.group
            found += (ops.grouped_mm(own, *rest), ops.grouped_int_mm(ints, a_zeros if i % 2 else None, *rest))
        return tuple(found)


def operands(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(rows)
    k = max(w.k for w in WEIGHTS)
    a = torch.randint(-128, 128, (rows, k), dtype=torch.int8)
    a[0] = -128
    return torch.randn(rows, k), a, torch.randint(-128, 128, (rows, 1), dtype=torch.int32)


def exact(model: Products, x: Tensor, a: Tensor, a_zeros: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What each result is, and what the sum of its terms without their signs is, in float64."""
    found: list[tuple[Tensor, Tensor]] = []
    for i, w in enumerate(WEIGHTS):
        weight, own, ints = getattr(model, f"w{i}"), x[:, : w.k].to(w.x).double(), a[:, : w.k].double()
        values = quantised.unpacked(weight, w.bits, w.k).double()
        if not w.group:
            found += ((ints @ values.t(), None), (own @ values.t(), own.abs() @ values.abs().t()))  # type: ignore[arg-type]
            continue
        scales, zeros = getattr(model, f"scales{i}"), getattr(model, f"zeros{i}")
        real = quantised.dequantised(weight, scales, zeros, w.bits, w.group, w.k, torch.float64)
        moved = ints - a_zeros.double() if i % 2 else ints
        found += ((own @ real.t(), own.abs() @ real.abs().t()), (moved @ real.t(), ints.abs() @ real.abs().t() * 2))
    return found


#: of this machine; the best and x86-64-v3 have a kernel of each kind
LEVELS = [t.name for t in TARGETS if t.arch == machine() and runs_here(t)]
FAST = {LEVELS[-1], "cpu:x86-64-v3"}


@pytest.mark.parametrize("target", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in LEVELS])
def test_products(target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Products().eval()
    rows = torch.export.Dim("rows", min=1, max=4096)
    shapes = {name: {0: rows} for name in ("x", "a", "a_zeros")}
    path = mycc.compile(model, operands(17), out=tmp_path / "m.pkg", target=target, dynamic_shapes=shapes, verify=False)
    package = mycc.load(path)
    for count in ROWS:
        given = operands(count)
        for i, (got, (want, size)) in enumerate(zip(package(*given), exact(model, *given), strict=True)):
            if size is None:
                assert got.dtype == torch.int32
                assert torch.equal(got.double(), want), (WEIGHTS[i // 2], count)
            else:
                assert got.dtype == torch.float32
                assert ((got.double() - want).abs() <= 2e-6 * size + 1e-6).all(), (WEIGHTS[i // 2], count)


class Float8(nn.Module):
    """A weight with every byte of float8 but NaN, times floats, times float8, and by groups; one that holds NaN."""

    def __init__(self) -> None:
        super().__init__()
        every = torch.tensor([b for b in range(256) if b & 127 != 127], dtype=torch.uint8)
        self.register_buffer("w", every.repeat(9)[: 33 * 68].reshape(33, 68).view(torch.float8_e4m3fn))
        self.register_buffer("scales", 0.1 + torch.rand(33, 17))
        odd = torch.tensor([[1.0, torch.nan], [-2.0, 0.0]]).to(torch.float8_e4m3fn)
        self.register_buffer("odd", odd)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        small = x.to(torch.float8_e4m3fn)
        grouped = ops.grouped_mm(x, self.w, self.scales, None, 8, 4)
        return ops.float8_mm(x, self.w), ops.float8_mm(small, self.w), grouped, ops.float8_mm(x[:, :2], self.odd)


@pytest.mark.parametrize("target", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in LEVELS])
def test_products_of_float8(target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = Float8(), torch.export.Dim("rows", min=1, max=64)
    path = mycc.compile(
        model,
        (torch.randn(5, 68),),
        out=tmp_path / "m.pkg",
        target=target,
        verify=False,
        dynamic_shapes={"x": {0: rows}},
    )
    package = mycc.load(path)
    assert str(package.manifest).count("f8") >= 3
    weight = model.w.double()
    scaled = weight * model.scales.double().repeat_interleave(4, 1)
    for count in (1, 7, 40):
        x = torch.randn(count, 68)
        *found, odd = package(x)
        lefts = x.double(), x.to(torch.float8_e4m3fn).double(), x.double()
        for got, left, right in zip(found, lefts, (weight, weight, scaled), strict=True):
            assert got.dtype == torch.float32
            assert ((got.double() - left @ right.t()).abs() <= 2e-6 * (left.abs() @ right.abs().t())).all()
        assert odd[:, 0].isnan().all()
        assert not odd[:, 1].isnan().any()


@dataclass(frozen=True)
class Window:
    """A convolution of an image of 6 channels (5 of signals), or of as many channels as `channels`."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    zero: int = 0
    groups: int = 1


WINDOWS = (
    Window((18, 6, 3, 3), (2, 1), (1, 2), (1, 2), 5), Window((6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3, 6),
    Window((33, 6, 1, 1), (1, 1), (0, 0), (1, 1)), Window((16, 6, 1, 1), (2, 2), (0, 0), (1, 1), -7),
    Window((20, 8, 3, 3), (1, 1), (1, 1), (1, 1), 100), Window((9, 3, 7, 7), (2, 2), (3, 3), (1, 1), 2),
    Window((12, 6, 5), (2,), (2,), (1,), 1), Window((4, 3, 2, 2), (1, 1), (0, 1), (1, 1), 0, 2),
    Window((8, 1, 5, 3), (2, 2), (2, 0), (1, 2), 9, 8), Window((6, 1, 3), (1,), (1,), (1,), 4, 6),
    # groups, some of which make a product together; two outputs of each channel; sides that differ
    Window((64, 2, 3, 3), (2, 1), (1, 1), (1, 1), 11, 4), Window((8, 4, 3, 3), (1, 1), (1, 1), (1, 1), 2, 2),
    Window((16, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3, 8), Window((12, 2, 3), (1,), (1,), (2,), 4, 3),
    Window((6, 1, 3, 3), (2, 2), (0, 1, 0, 1), (1, 1), 3, 6), Window((9, 8, 3, 2), (2, 1), (1, 0, 0, 2), (1, 1), 7),
    # planes of few channels
    Window((9, 3, 3, 3), (2, 2), (0, 1, 0, 1), (1, 1), 2), Window((5, 4, 3, 2), (1, 2), (0, 0), (2, 1), 7),
    # maps of three dimensions
    Window((18, 6, 3, 3, 3), (2, 1, 1), (1, 1, 2), (1, 2, 1), 5),
    Window((5, 8, 2, 1, 3), (1, 1, 2), (1, 0, 1), (1, 1, 1)),
    Window((8, 2, 2, 2, 2), (1, 1, 1), (0, 1, 1, 1, 0, 0), (1, 1, 1), 4, 4),
    Window((6, 1, 3, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), 4, 6),
)  # fmt: skip


class Convolutions(nn.Module):
    """Every window of the table; of a group's channels, the weight's second size says how many."""

    def __init__(self) -> None:
        super().__init__()
        for i, w in enumerate(WINDOWS):
            self.register_buffer(f"w{i}", torch.randint(-128, 128, w.shape, dtype=torch.int8))

    def image(self, x: Tensor, w: Window) -> Tensor:
        own = x[:, : w.shape[1] * w.groups]
        return own[..., 0] if len(w.shape) == 3 else own.unflatten(2, (3, 3)) if len(w.shape) == 5 else own

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            ops.int_conv(self.image(x, w), getattr(self, f"w{i}"), w.zero, w.stride, w.padding, w.dilation, w.groups)
            for i, w in enumerate(WINDOWS)
        )


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_convolutions(dtype: torch.dtype, order: torch.memory_format, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Convolutions()
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max + 1, (2, 8, 9, 11), dtype=dtype).contiguous(memory_format=order)
    package = mycc.load(mycc.compile(model, (x,), out=tmp_path / "m.pkg"))
    for i, (got, w) in enumerate(zip(package(x), WINDOWS, strict=True)):
        dims = len(w.stride)
        convolve = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[dims - 1]
        each = len(w.padding) // dims  # a number for both sides, or one for each
        sides = [w.padding[d * each + side * (each - 1)] for d in reversed(range(dims)) for side in range(2)]
        own = nn.functional.pad(model.image(x, w).double() - w.zero, sides)
        want = convolve(own, model.get_buffer(f"w{i}").double(), None, w.stride, 0, w.dilation, w.groups)
        assert torch.equal(got.double(), want), w


class Depthwise(nn.Module):
    """A window for each channel, by tiles: borders of all kinds, and vectors that are not full."""

    WINDOWS = (
        Window((16, 1, 3, 3), (1, 1), (1, 1), (1, 1), 5, 16), Window((20, 1, 3, 3), (2, 2), (1, 1), (1, 1), -128, 20),
        Window((37, 1, 5, 5), (1, 1), (2, 2), (1, 1), 127, 37), Window((19, 1, 5, 5), (2, 2), (2, 2), (1, 1), 0, 19),
        Window((24, 1, 3, 3), (1, 2), (0, 1, 2, 0), (1, 1), 7, 24),
        Window((40, 1, 5, 5), (3, 1), (0, 0), (1, 1), 3, 40),
        Window((17, 1, 3, 3), (2, 1), (3, 3), (1, 1), 9, 17), Window((33, 1, 3, 3), (1, 1), (0, 0), (1, 1), 1, 33),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        for i, w in enumerate(self.WINDOWS):
            weight = torch.randint(-128, 128, w.shape, dtype=torch.int8)
            weight[0] = -128
            self.register_buffer(f"w{i}", weight)

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            ops.int_conv(x[:, : w.groups], self.get_buffer(f"w{i}"), w.zero, w.stride, w.padding, w.dilation, w.groups)
            for x in maps
            for i, w in enumerate(self.WINDOWS)
        )


@pytest.mark.parametrize("target", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in LEVELS])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_depthwise_tiles(dtype: torch.dtype, target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, info = Depthwise(), torch.iinfo(dtype)
    maps = [torch.randint(info.min, info.max + 1, (2, 40, h, w), dtype=dtype) for h, w in ((12, 15), (5, 5), (6, 9))]
    for x in maps:
        x[:, 0] = info.min
    maps = [x.contiguous(memory_format=torch.channels_last) for x in maps]
    path = mycc.compile(model, tuple(maps), out=tmp_path / "m.pkg", target=target)
    assert any(name.startswith("depthwise") for name in names_in(path))
    for threads in (1, 3):
        found = iter(mycc.load(path, threads=threads)(*maps))
        for x in maps:
            for i, w in enumerate(model.WINDOWS):
                each = len(w.padding) // 2
                sides = [w.padding[d * each + side * (each - 1)] for d in (1, 0) for side in range(2)]
                own = nn.functional.pad(x[:, : w.groups].double() - w.zero, sides)
                want = nn.functional.conv2d(own, model.get_buffer(f"w{i}").double(), None, w.stride, 0, 1, w.groups)
                assert torch.equal(next(found).double(), want), (x.shape, w)


class Sized(nn.Module):
    """Convolutions of maps whose height and width the call says."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-128, 128, (24, 16, 3, 3), dtype=torch.int8))
        self.register_buffer("v", torch.randint(-128, 128, (24, 1, 3, 3), dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        y = ops.int_conv(x, self.w, 3, [1, 2], [1, 0, 0, 2], [1, 1], 1)
        return ops.int_conv((y % 256 - 128).to(torch.int8), self.v, -7, [2, 1], [1, 1], [1, 1], 24)


def test_convolutions_of_maps_of_any_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, dims = Sized(), {2: torch.export.Dim("height", min=4, max=64), 3: torch.export.Dim("width", min=4, max=64)}
    x = torch.randint(-128, 128, (2, 16, 9, 12), dtype=torch.int8)
    package = mycc.load(mycc.compile(model, (x,), out=tmp_path / "m.pkg", dynamic_shapes=(dims,)))
    for h, w in ((9, 12), (4, 5), (13, 31), (64, 7)):
        x = torch.randint(-128, 128, (2, 16, h, w), dtype=torch.int8)
        assert torch.equal(package(x), model(x)), (h, w)


def test_layers_of_one_shape_keep_their_own_weights(tmp_path: Path) -> None:
    """A tensor subclass that holds the quantised weight has no memory of its own by which two could be told apart."""
    ao = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3))).eval()
    x = torch.randn(3, 32)
    ao.quantize_(model, ao.Int8WeightOnlyConfig())
    package = mycc.load(mycc.compile(model, (x,), out=tmp_path / "m.pkg"))
    torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-5)


class Shared(nn.Module):
    """Weights that two layers read in different ways, and a buffer named as a compiler might name sums of one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-128, 128, (20, 64), dtype=torch.int8))
        self.register_buffer("halves", torch.rand(20, 2))
        self.register_buffer("quarters", torch.rand(20, 4))
        self.register_buffer("v", torch.randint(-128, 128, (8, 2, 3, 3), dtype=torch.int8))
        self.register_buffer("v_zero5", torch.arange(8, dtype=torch.int32))

    def forward(self, a: Tensor, zeros: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        added = x[:, 0, 0, :] + self.v_zero5
        maps = [ops.int_conv(x[:, : 2 * g], self.v, 5, [1, 1], [1, 1], [1, 1], g) for g in (1, 2, 4)]
        scaled = [
            ops.grouped_int_mm(a, zeros, self.w, s, None, 8, 64 // s.shape[1]) for s in (self.halves, self.quarters)
        ]
        return (added, *maps, *scaled)


def test_constants_that_follow_from_one_weight_are_told_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Shared().eval()
    given = (operands(5)[1][:, :64], operands(5)[2], torch.randint(-128, 128, (2, 8, 5, 8), dtype=torch.int8))
    package = mycc.load(mycc.compile(model, given, out=tmp_path / "m.pkg", verify=False))
    for got, want in zip(package(*given), model(*given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)
