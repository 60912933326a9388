"""Convolutions of runtime/include/mycc/conv.h against torch in float64, for every ISA level that this CPU runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from .gemm_support import Conv, aligned, call, cpu_levels, pack_panels

LEVELS = cpu_levels()
torch.set_num_threads(1)  # spinning threads are slow on a busy machine
SLOW = settings(
    max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@dataclass(frozen=True)
class Case:
    """A convolution; pairs are (height, width). `gap` floats lie between the pixels of the input."""

    batch: int
    size: tuple[int, int]
    channels: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    gap: int = 0

    @property
    def out_size(self) -> tuple[int, int]:
        height, width = (
            (self.size[i] + 2 * self.pad[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            for i in (0, 1)
        )
        return height, width


def run(isa: str, case: Case, depthwise: bool = False, threads: tuple[int, ...] = (1, 2)) -> None:
    rng = np.random.default_rng(1)
    (in_h, in_w), (in_c, out_c), (kernel_h, kernel_w) = case.size, case.channels, case.kernel
    out_h, out_w = case.out_size
    x = rng.standard_normal((case.batch, in_h, in_w, in_c + case.gap), np.float32)
    w = rng.standard_normal((out_c, in_c // case.groups, kernel_h, kernel_w), np.float32)
    taps_last = w.reshape(case.groups, out_c // case.groups, in_c // case.groups, kernel_h * kernel_w)
    if depthwise:
        packed = aligned(w.reshape(out_c, -1).T)
    else:  # [groups][taps * channels][outputs]
        packed = pack_panels(taps_last.transpose(0, 3, 2, 1).reshape(case.groups, -1, out_c // case.groups))
    args = Conv(
        case.batch, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, *case.stride, *case.pad, *case.dilation,
        case.groups, x, x.strides[0] // 4, x.strides[1] // 4, x.strides[2] // 4, packed,
    )  # fmt: skip
    shape = (case.batch, out_h, out_w, out_c)
    function = "test_conv_depthwise" if depthwise else "test_conv"
    results = [call(isa, function, args, shape, n) for n in threads]
    image = torch.from_numpy(x[..., :in_c].astype(np.float64)).permute(0, 3, 1, 2)
    options = {"stride": case.stride, "padding": case.pad, "dilation": case.dilation, "groups": case.groups}
    weight = torch.from_numpy(w.astype(np.float64))
    expected, bound = (
        torch.conv2d(i, v, **options).permute(0, 2, 3, 1).numpy()
        for i, v in ((image, weight), (image.abs(), weight.abs()))
    )
    assert (np.abs(results[0] - expected) <= 2e-6 * bound + 1e-30).all()
    assert all(r.tobytes() == results[0].tobytes() for r in results)


PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def cases(draw: st.DrawFn, depthwise: bool = False) -> Case:
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    in_c, out_c = (groups * draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 400]))) for _ in range(2))
    if depthwise:
        groups = in_c = out_c = draw(st.one_of(st.integers(1, 70), st.sampled_from([96, 512, 700])))
    case = Case(
        batch=draw(st.integers(1, 3)),
        size=(draw(st.integers(1, 14)), draw(st.integers(1, 14))),
        channels=(in_c, out_c),
        kernel=draw(st.one_of(PAIR, st.sampled_from([(1, 1), (3, 3), (5, 5), (7, 7), (1, 7)]))),
        stride=draw(PAIR),
        pad=draw(st.tuples(st.integers(0, 4), st.integers(0, 4))),
        dilation=draw(PAIR),
        groups=groups,
        gap=draw(st.sampled_from([0, 0, 3])),
    )
    assume(min(case.out_size) >= 1)
    return case


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=cases())
def test_conv(isa: str, case: Case) -> None:
    run(isa, case)


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=cases(depthwise=True))
def test_conv_depthwise(isa: str, case: Case) -> None:
    run(isa, case, depthwise=True)


MODEL_CASES = {
    "resnet first": Case(1, (64, 64), (3, 64), (7, 7), (2, 2), (3, 3)),
    "patches": Case(2, (64, 48), (3, 70), (16, 16), (16, 16)),
    "audio": Case(1, (1, 600), (80, 96), (1, 3), (1, 1), (0, 1)),
    "wide audio": Case(2, (1, 1700), (1, 20), (1, 10), (1, 5), (0, 4)),
    "3x3": Case(1, (14, 14), (256, 64), (3, 3), (1, 1), (1, 1)),
    "3x3 strided": Case(1, (14, 14), (64, 96), (3, 3), (2, 2), (1, 1)),
    "1x1": Case(2, (7, 7), (512, 128), (1, 1)),
    "1x1 strided": Case(2, (14, 14), (128, 96), (1, 1), (2, 2)),
    "grouped": Case(1, (14, 14), (128, 128), (3, 3), (1, 1), (1, 1), groups=32),
    "padding beyond the input": Case(1, (2, 2), (3, 5), (3, 3), (1, 1), (6, 6)),
    "one pixel": Case(1, (7, 7), (64, 33), (7, 7)),
}


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("name", MODEL_CASES)
def test_conv_of_models(isa: str, name: str) -> None:
    run(isa, MODEL_CASES[name], threads=(1, 2, 3))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_conv_depthwise_of_models(isa: str, stride: int, kernel: int) -> None:
    run(isa, Case(1, (28, 28), (96, 96), (kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, groups=96), depthwise=True)


@pytest.mark.parametrize("isa", LEVELS)
def test_no_scratch_memory_touches_nothing(isa: str) -> None:
    x, w = np.ones((1, 8, 8, 16), np.float32), aligned(np.ones((1, 1, 9, 16, 16), np.float32))
    args = Conv(1, 8, 8, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, x, 1024, 128, 16, w)
    call(isa, "test_conv", args, (1, 8, 8, 16), threads=-1)
    args.groups = 16
    call(isa, "test_conv_depthwise", args, (1, 8, 8, 16), threads=-1)
