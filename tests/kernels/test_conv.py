"""Convolutions of runtime/include/mycc/conv*.h against torch in float64, for every ISA level that this CPU runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from mycc.compiler.ir.layouts import PANEL
from mycc.compiler.ir.structured import WINOGRAD_FORMS
from mycc.compiler.lower.core.constants import (
    ConvPanels,
    GroupedTaps,
    Layout,
    NchwTaps,
    Taps,
    WinogradPanels,
)

from .gemm_support import Conv, ConvChain, ConvSums, aligned, call, levels

LEVELS, BEST = levels(2), levels(1)
torch.set_num_threads(1)  # spinning threads are slow on a busy machine
SLOW = settings(
    max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
#: error allowed, in parts of the sum of absolute products
PRECISION = {"conv": 2e-6, "conv_depthwise": 2e-6, "conv_grouped": 2e-6, "conv_nchw": 2e-6, "conv_transposing": 2e-6}
PRECISION |= {"conv_winograd2": 4e-6, "conv_winograd2s2": 4e-6, "conv_winograd4": 2e-5}
PRECISION |= dict.fromkeys(("conv_winograd3", "conv_winograd3taps"), 8e-6)


@dataclass(frozen=True)
class Case:
    """A convolution; sizes are (height, width) or (depth, height, width). `gap` floats lie between the input's pixels.

    behind: zeros behind the input beyond those in front (below 0: fewer). planes: the input has channels first.
    """

    batch: int
    size: tuple[int, ...]
    channels: tuple[int, int]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1, 1)
    pad: tuple[int, ...] = (0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1)
    groups: int = 1
    gap: int = 0
    behind: tuple[int, ...] = (0, 0, 0)
    planes: bool = False

    @property
    def out_size(self) -> tuple[int, ...]:
        return tuple(
            (n + 2 * p + more - d * (k - 1) - 1) // s + 1
            for n, p, more, d, k, s in zip(
                self.size, self.pad, self.behind, self.dilation, self.kernel, self.stride, strict=False
            )
        )


def packed(case: Case, function: str, w: np.ndarray) -> np.ndarray:
    layouts: dict[str, Layout] = {
        "conv": ConvPanels(case.groups),
        "conv_depthwise": Taps(),
        "conv_grouped": GroupedTaps(),
        "conv_nchw": NchwTaps(case.groups),
        "conv_transposing": ConvPanels(case.groups),
        **{f"conv_{name}": WinogradPanels(*form, case.groups) for name, form in WINOGRAD_FORMS.items()},
    }
    data = layouts[function].pack(torch.from_numpy(w)).numpy()
    assert data.size == layouts[function].elements(w.shape)
    return aligned(data)


def arguments(case: Case, x: np.ndarray, w: np.ndarray) -> Conv:
    in_c, out_c = case.channels
    sides = {"in": case.size, "out": case.out_size, "kernel": case.kernel, "stride": case.stride, "pad": case.pad}
    values: dict[str, int] = {}
    for name, side in {**sides, "dilation": case.dilation}.items():
        values |= {f"{name}_{a}": n for a, n in zip("dhw"[-len(case.size) :], side, strict=False)}
    batch, *steps = (s // 4 for s in (np.moveaxis(x, 1, -1) if case.planes else x).strides)
    strides = dict(zip(("x_c", "x_w", "x_h", "x_d"), reversed(steps), strict=False))
    return Conv(
        batch=case.batch, in_c=in_c, out_c=out_c, groups=case.groups, x=x, x_batch=batch, w=w, **values, **strides
    )


def run(isa: str, case: Case, function: str = "conv", threads: tuple[int, ...] = (1, 2)) -> None:
    rng = np.random.default_rng(1)
    (in_c, out_c), spatial = case.channels, len(case.size)
    x = rng.standard_normal((case.batch, *case.size, in_c + case.gap), np.float32)
    if case.planes:
        x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    w = rng.standard_normal((out_c, in_c // case.groups, *case.kernel), np.float32)
    args = arguments(case, x, packed(case, function, w))
    is_nchw = function in ("conv_nchw", "conv_transposing")
    shape = (case.batch, out_c, *case.out_size) if is_nchw else (case.batch, *case.out_size, out_c)
    results = [call(isa, f"test_{function}", args, shape, n) for n in threads]
    image = torch.from_numpy(x.astype(np.float64))
    image = (image if case.planes else image.movedim(-1, 1))[:, :in_c]
    sides = [(p, p + more) for p, more in zip(case.pad, case.behind, strict=False)][:spatial]
    image = torch.nn.functional.pad(image, [n for side in reversed(sides) for n in side])
    options = {"stride": case.stride[:spatial], "dilation": case.dilation[:spatial], "groups": case.groups}
    weight = torch.from_numpy(w.astype(np.float64))
    convolution = torch.conv2d if spatial == 2 else torch.conv3d
    expected, bound = (convolution(i, v, **options).numpy() for i, v in ((image, weight), (image.abs(), weight.abs())))
    if not is_nchw:
        expected, bound = np.moveaxis(expected, 1, -1), np.moveaxis(bound, 1, -1)
    assert (np.abs(results[0] - expected) <= PRECISION[function] * bound.max(initial=0) + 1e-30).all()
    if "winograd" not in function:
        assert (np.abs(results[0] - expected) <= PRECISION[function] * bound + 1e-30).all()
    assert all(r.tobytes() == results[0].tobytes() for r in results)


def run_winograd(isa: str, form: str, case: Case, threads: tuple[int, ...] = (1, 2)) -> None:
    kernel = (3, 3) if WINOGRAD_FORMS[form].taps else case.kernel
    run(isa, replace(case, kernel=kernel, stride=(WINOGRAD_FORMS[form].stride,) * 3), f"conv_{form}", threads)


PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
SIZE = st.tuples(st.integers(1, 14), st.integers(1, 14))
PAD = st.tuples(st.integers(0, 4), st.integers(0, 4))


@st.composite
def cases(draw: st.DrawFn, depthwise: bool = False) -> Case:
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    in_c, out_c = (groups * draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 400]))) for _ in range(2))
    if depthwise:
        groups = in_c = out_c = draw(st.one_of(st.integers(1, 70), st.sampled_from([96, 512, 700])))
    case = Case(
        batch=draw(st.integers(1, 3)),
        size=draw(SIZE),
        channels=(in_c, out_c),
        kernel=draw(st.one_of(PAIR, st.sampled_from([(1, 1), (3, 3), (5, 5), (7, 7), (1, 7)]))),
        stride=draw(PAIR),
        pad=draw(PAD),
        dilation=draw(PAIR),
        groups=groups,
        gap=draw(st.sampled_from([0, 0, 3])),
        behind=draw(st.sampled_from([(0, 0), (0, 0), (1, 1), (0, 2)])),
    )
    assume(min(case.out_size) >= 1)
    return case


@st.composite
def winograd_cases(draw: st.DrawFn) -> Case:
    channels = st.one_of(st.integers(1, 40), st.sampled_from([64, 300, 528]))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    case = Case(
        batch=draw(st.integers(1, 3)),
        size=draw(st.one_of(SIZE, st.sampled_from([(20, 31), (33, 8)]))),
        channels=(groups * draw(channels), groups * draw(channels)),
        groups=groups,
        kernel=draw(st.one_of(st.just((3, 3)), st.tuples(st.integers(3, 9), st.integers(3, 9)))),
        pad=draw(PAD),
        gap=draw(st.sampled_from([0, 0, 3])),
        behind=draw(st.sampled_from([(0, 0), (1, 0), (0, 2)])),
    )
    assume(min(case.out_size) >= 1)
    return case


@st.composite
def grouped_cases(draw: st.DrawFn) -> Case:
    channels = draw(st.sampled_from([16, 48, 64, 80, 144]))
    case = Case(
        batch=draw(st.integers(1, 2)),
        size=draw(SIZE),
        channels=(channels, channels),
        kernel=draw(st.one_of(PAIR, st.sampled_from([(3, 3), (5, 5)]))),
        stride=draw(PAIR),
        pad=draw(PAD),
        dilation=draw(PAIR),
        groups=channels // draw(st.sampled_from([2, 4, 8])),
        gap=draw(st.sampled_from([0, 3])),
    )
    assume(min(case.out_size) >= 1)
    return case


@st.composite
def deep_cases(draw: st.DrawFn) -> Case:
    triple = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2]))
    case = Case(
        batch=draw(st.integers(1, 2)),
        size=draw(
            st.one_of(
                st.tuples(st.integers(1, 6), st.integers(1, 8), st.integers(1, 9)),
                st.sampled_from([(5, 21, 26), (6, 3, 270)]),
            )
        ),
        channels=(groups * draw(st.integers(1, 36)), groups * draw(st.integers(1, 36))),
        kernel=draw(triple),
        stride=draw(triple),
        pad=draw(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))),
        dilation=draw(triple),
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
@given(case=deep_cases())
def test_conv_3d(isa: str, case: Case) -> None:
    run(isa, case)


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=cases(depthwise=True))
def test_conv_depthwise(isa: str, case: Case) -> None:
    run(isa, case, "conv_depthwise")


@pytest.mark.parametrize("isa", BEST)
@pytest.mark.parametrize("form", WINOGRAD_FORMS)
@SLOW
@given(case=winograd_cases())
def test_conv_winograd(isa: str, form: str, case: Case) -> None:
    run_winograd(isa, form, case)


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=grouped_cases())
def test_conv_grouped(isa: str, case: Case) -> None:
    run(isa, case, "conv_grouped")


@pytest.mark.parametrize("isa", LEVELS)
def test_grouped_pixels_in_one_set(isa: str) -> None:
    """The pixels of a strip lie further apart than their channels."""
    run(isa, Case(1, (5, 6), (1024, 1024), (3, 3), pad=(1, 1), groups=128), "conv_grouped")


@st.composite
def plane_cases(draw: st.DrawFn) -> Case:
    count = 2 if draw(st.booleans()) else 3
    sizes = [(1, 40), (1, 14), (1, 5)]
    groups = draw(st.sampled_from([1, 1, 2, 5]))
    small = [st.integers(1, 3)] * count
    case = Case(
        batch=draw(st.integers(1, 2)),
        size=(
            *(draw(st.integers(*side)) for side in reversed(sizes[1:count])),
            draw(st.sampled_from([7, 40, 300, 2100])),
        ),
        channels=(groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 9))),
        groups=groups,
        kernel=draw(
            st.one_of(st.tuples(*small), st.sampled_from([(3, 3, 3)[:count], (2, 1, 9)[-count:], (1, 7, 7)[-count:]]))
        ),
        stride=draw(st.tuples(*small)),
        pad=draw(st.tuples(*[st.integers(-1, 4)] * count)),
        dilation=draw(st.tuples(*small)),
        behind=draw(st.sampled_from([(0, 0, 0), (1, 0, 2)]))[:count],
        planes=draw(st.booleans()),
    )
    assume(min(case.out_size) >= 1)
    return case


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=plane_cases())
def test_conv_nchw(isa: str, case: Case) -> None:
    run(isa, case, "conv_nchw")


@pytest.mark.parametrize("isa", LEVELS)
@SLOW
@given(case=st.one_of(cases(), deep_cases()), planes=st.booleans(), channels=st.sampled_from([1, 2, 5, 9]))
def test_conv_transposing(isa: str, case: Case, planes: bool, channels: int) -> None:
    """Inputs of whole panels, whose tiles are turned, and others; channels last too."""
    if planes:
        case = replace(case, planes=True, channels=(PANEL * channels * case.groups, case.channels[1]))
    run(isa, case, "conv_transposing")


@st.composite
def chains(draw: st.DrawFn) -> tuple[Case, int, int]:
    """A depthwise convolution, channels in front of a 1x1 before it and behind one after it; 0: there is none."""
    channels = st.one_of(st.integers(1, 40), st.sampled_from([64, 300]))
    case = draw(cases(depthwise=True))
    before = draw(st.one_of(st.just(0), channels))
    behind = draw(channels if before == 0 else st.one_of(st.just(0), channels))
    return replace(case, gap=0 if before else case.gap), before, behind


def run_chain(isa: str, case: Case, before: int, behind: int, threads: tuple[int, ...] = (1, 2, 3)) -> None:
    """A chain beside torch in float64, with an activation behind each convolution but the last."""
    rng = np.random.default_rng(1)
    channels, batch = case.channels[0], case.batch
    x = rng.standard_normal((batch, *case.size, (before or channels) + case.gap), np.float32)
    shapes = ((channels, before, 1, 1), (channels, 1, *case.kernel), (behind, channels, 1, 1))
    weights = [rng.standard_normal(shape, np.float32) for shape in shapes]
    point = replace(case, kernel=(1, 1), stride=(1, 1), pad=(0, 0), dilation=(1, 1), behind=(0, 0), groups=1, gap=0)
    links = (
        (replace(point, channels=(before, channels)), "conv", x if before else np.zeros((1, 1, 1, 1), np.float32)),
        (case, "conv_depthwise", np.empty((batch, *case.size, channels), np.float32) if before else x),
        (
            replace(point, size=case.out_size, channels=(channels if behind else 0, behind)), "conv",
            np.empty((batch, *case.out_size, channels), np.float32),
        ),
    )  # fmt: skip
    nothing = aligned(np.zeros(PANEL, np.float32))
    args = [
        arguments(link, data, packed(link, function, w) if w.size else nothing)
        for (link, function, data), w in zip(links, weights, strict=True)
    ]
    shape = (batch, *case.out_size, behind or channels)
    results = [call(isa, "test_conv_chain", ConvChain(*args), shape, n) for n in threads]
    image = torch.from_numpy(x.astype(np.float64)).movedim(-1, 1)[:, : before or channels]
    found, bound = image, image.abs()
    for i, ((link, _, _), w) in enumerate((link, w) for link, w in zip(links, weights, strict=True) if w.size):
        sides = [n for p, more in reversed(list(zip(link.pad, link.behind, strict=False))[:2]) for n in (p, p + more)]
        options = {"stride": link.stride[:2], "dilation": link.dilation[:2], "groups": link.groups}
        weight = torch.from_numpy(w.astype(np.float64))
        image, bound = (torch.nn.functional.pad(v, sides) for v in (found.relu() if i else found, bound))
        found, bound = torch.conv2d(image, weight, **options), torch.conv2d(bound, weight.abs(), **options)
    assert (np.abs(results[0] - found.movedim(1, -1).numpy()) <= 4e-6 * bound.movedim(1, -1).numpy() + 1e-30).all()
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    for n in threads:  # the same, rectified by the tiles; they may keep the sign of a zero
        assert np.array_equal(call(isa, "test_conv_chain_adds", ConvChain(*args), shape, n), results[0])


@pytest.mark.parametrize("isa", LEVELS)
@settings(SLOW, max_examples=30)
@given(chain=chains())
def test_conv_chain(isa: str, chain: tuple[Case, int, int]) -> None:
    run_chain(isa, *chain)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_chain_of_models(isa: str, stride: int) -> None:
    """Rows of which the scratch memory holds few: several bands, whose last rows the next one reads again."""
    case = Case(1, (31, 40), (400, 400), (3, 3), (stride,) * 2, (1, 1), groups=400)
    run_chain(isa, case, 24, 40)
    run_chain(isa, replace(case, kernel=(5, 5), pad=(2, 2), batch=2), 16, 0)
    run_chain(isa, replace(case, kernel=(7, 7), pad=(3, 3)), 0, 24)


MODEL_CASES = {
    "resnet first": Case(1, (64, 64), (3, 64), (7, 7), (2, 2), (3, 3)),
    "nchw": Case(2, (33, 40), (3, 32), (3, 3), (2, 2), (1, 0), planes=True),
    "planes of many channels": Case(1, (12, 9), (40, 8), (2, 3), (1, 1), (1, 1), planes=True, gap=2),
    "planes of pixels": Case(1, (5, 6), (2, 8), (1, 1), planes=True),
    "patches": Case(2, (64, 48), (3, 70), (16, 16), (16, 16)),
    "audio": Case(1, (1, 600), (80, 96), (1, 3), (1, 1), (0, 1)),
    "wide audio": Case(2, (1, 1700), (1, 20), (1, 10), (1, 5), (0, 4)),
    "3x3": Case(1, (14, 14), (256, 64), (3, 3), (1, 1), (1, 1)),
    "3x3 strided": Case(1, (14, 14), (64, 96), (3, 3), (2, 2), (1, 1)),
    "zeros behind alone": Case(1, (14, 14), (32, 32), (3, 3), (2, 2), behind=(1, 1)),
    "starts inside": Case(1, (9, 9), (32, 20), (2, 2), pad=(-1, -2), behind=(2, 4)),
    "1x1": Case(2, (7, 7), (512, 128), (1, 1)),
    "1x1 strided": Case(2, (14, 14), (128, 96), (1, 1), (2, 2)),
    "1x1 strided in both directions": Case(2, (9, 11), (96, 80), (1, 1), (2, 3)),
    "1x1 of frames": Case(2, (3, 6, 7), (64, 96), (1, 1, 1), (1, 2, 1)),
    "pixels in one set of the cache": Case(1, (9, 10), (512, 24), (3, 3), (2, 2), (1, 1)),
    "pixels in one set, with a gap": Case(2, (5, 6), (1024, 20), (3, 3), pad=(1, 1), gap=4),
    "grouped": Case(1, (14, 14), (128, 128), (3, 3), (1, 1), (1, 1), groups=32),
    "padding beyond the input": Case(1, (2, 2), (3, 5), (3, 3), (1, 1), (6, 6)),
    "one pixel": Case(1, (7, 7), (64, 33), (7, 7)),
    "uneven blocks of panels": Case(3, (9, 9), (800, 800), (1, 7), (2, 1), (2, 4), (3, 1), groups=2),
    "uneven blocks of columns": Case(1, (1, 2021), (40, 24), (1, 3), (1, 1), (0, 1)),
    "video": Case(1, (4, 10, 12), (3, 40), (3, 3, 3), (1, 2, 2), (1, 1, 1)),
}


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("name", MODEL_CASES)
def test_conv_of_models(isa: str, name: str) -> None:
    run(isa, MODEL_CASES[name], threads=(1, 2, 3))


UNTOUCHED = 7777.0
ADDED_CASES = {
    **{
        name: MODEL_CASES[name]
        for name in ("resnet first", "nchw", "audio", "3x3", "3x3 strided", "1x1", "grouped", "one pixel", "video")
    },
    "odd rows": Case(2, (9, 13), (24, 48), (3, 3), pad=(1, 1)),
    "two groups of panels": Case(1, (5, 9), (300, 288), (3, 3), pad=(1, 1)),
    "depthwise": Case(1, (14, 15), (96, 96), (3, 3), pad=(1, 1), groups=96),
    "depthwise, uneven": Case(2, (9, 21), (70, 70), (5, 5), (2, 2), (2, 2), groups=70),
    "depthwise, blocks of channels": Case(1, (7, 12), (200, 200), (3, 3), pad=(1, 1), groups=200),
}


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("name", ADDED_CASES)
def test_tiles_add_as_epilogues_do(isa: str, name: str) -> None:
    """A bias, a residual and bounds, finished in registers or behind the tiles: the same bits, also of NaN."""
    case, rng = ADDED_CASES[name], np.random.default_rng(2)
    in_c, out_c = case.channels
    x = rng.standard_normal((case.batch, *case.size, in_c), np.float32)
    x[(0,) * (x.ndim - 1)] = [np.nan, *x[(0,) * (x.ndim - 1)][1:]]
    if case.planes:
        x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    w = rng.standard_normal((out_c, in_c // case.groups, *case.kernel), np.float32)
    function = "conv_depthwise" if case.groups == in_c else "conv"
    conv = arguments(case, x, packed(case, function, w))
    shape = (case.batch, *case.out_size, out_c)
    bias, residual = rng.standard_normal(out_c, np.float32), rng.standard_normal(shape, np.float32)
    for added, high in (((bias, None), -1.0), ((bias, None), 6.0), ((bias, residual), np.inf), ((None, residual), 1.0)):
        sums = ConvSums(conv, *added, float(high))
        behind = sums.run(isa, np.full(shape, UNTOUCHED, np.float32), in_tiles=False)
        assert (behind != UNTOUCHED).all()
        for threads in (1, 2):
            inside = sums.run(isa, np.full(shape, UNTOUCHED, np.float32), True, threads)
            assert inside.tobytes() == behind.tobytes()
        if added[1] is not None:  # the result lies over the residual
            over = residual.copy()
            assert replace(sums, residual=over).run(isa, over, in_tiles=True).tobytes() == behind.tobytes()


@pytest.mark.parametrize("isa", BEST)
@pytest.mark.parametrize("form", WINOGRAD_FORMS)
@pytest.mark.parametrize(("stride", "pad", "dilation"), [(1, 1, 1), (2, 0, 1), (1, 2, 2), (3, 4, 1)])
def test_conv_winograd_of_3_dimensions(isa: str, form: str, stride: int, pad: int, dilation: int) -> None:
    case = Case(2, (5, 9, 10), (33, 40), (3, 3, 3), pad=(pad, 1, 1), dilation=(dilation, 1, 1), gap=3)
    step = WINOGRAD_FORMS[form].stride
    run(isa, replace(case, stride=(stride, step, step)), f"conv_{form}", threads=(1, 2, 5))
    if not WINOGRAD_FORMS[form].taps:
        larger = replace(case, kernel=(3, 5, 4), pad=(pad, 2, 2), stride=(stride, step, step))
        run(isa, larger, f"conv_{form}", threads=(1, 2, 5))


@pytest.mark.parametrize("outputs", [8, 24])
def test_weights_of_8_outputs_are_there_twice(outputs: int) -> None:
    weight = torch.randn(2 * outputs, 5, 3, 3)
    panels = ConvPanels(2).pack(weight).reshape(2, -1, 9, 5, PANEL)
    assert panels[:, -1, ..., : PANEL // 2].equal(panels[:, -1, ..., PANEL // 2 :])
    assert panels[1, -1, 4, 3, PANEL // 2 - 1] == weight[-1, 3, 1, 1]


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("outputs", [8, 24, 40, 56])
@pytest.mark.parametrize("width", [4, 10, 14, 25])
def test_panels_of_8_channels(isa: str, outputs: int, width: int) -> None:
    for kernel, channels in ((1, 40), (3, 9), (3, 100)):  # the last one in several depth blocks
        case = Case(2, (3, width), (channels, outputs), (kernel,) * 2, pad=(kernel // 2,) * 2)
        run(isa, case, threads=(1, 2, 3))
    run(isa, Case(1, (5, width), (64, 2 * outputs), (3, 3), pad=(1, 1), groups=2))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("width", [28, 42, 43, 280])
def test_long_runs_of_one_panel(isa: str, width: int) -> None:
    """Rows that are whole runs of 14 and not, in one block and several, of weights in one depth block and several."""
    for outputs, channels, kernel in ((16, 16, 3), (11, 48, 5), (8, 3, 3), (16, 20, 1)):
        case = Case(2, (5, width), (channels, outputs), (kernel,) * 2, pad=(kernel // 2,) * 2, behind=(1, 0))
        run(isa, case, threads=(1, 3))
        run(isa, replace(case, planes=True), "conv_transposing", threads=(1, 3))
    run(isa, Case(1, (4, 6, width), (16, 16), (5, 5, 5), pad=(2, 2, 2)))
    run(isa, Case(1, (5, width), (64, 32), (3, 3), pad=(1, 1), groups=2))


@pytest.mark.parametrize("isa", BEST)
@pytest.mark.parametrize("form", WINOGRAD_FORMS)
@pytest.mark.parametrize(("size", "channels"), [((14, 14), (256, 256)), ((56, 40), (64, 64)), ((7, 7), (512, 96))])
def test_conv_winograd_of_models(isa: str, form: str, size: tuple[int, int], channels: tuple[int, int]) -> None:
    run_winograd(isa, form, Case(1, size, channels, (3, 3), pad=(1, 1)), threads=(1, 2, 3))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_conv_depthwise_of_models(isa: str, stride: int, kernel: int) -> None:
    case = Case(1, (28, 28), (96, 96), (kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, groups=96)
    run(isa, case, "conv_depthwise")
    run(isa, replace(case, pad=(0, 0), behind=(1, 1)), "conv_depthwise")
    run(isa, replace(case, pad=(-1, -1), behind=(3, 3)), "conv_depthwise")


@pytest.mark.parametrize("isa", LEVELS)
def test_no_scratch_memory_touches_nothing(isa: str) -> None:
    case, shape = Case(1, (8, 8), (16, 16), (3, 3), pad=(1, 1)), (1, 8, 8, 16)
    x, w = np.ones(shape, np.float32), aligned(np.ones((1, 1, 16, 16, 16), np.float32))
    for function in ("conv", "conv_winograd2", "conv_depthwise"):
        groups = 16 if function == "conv_depthwise" else 1
        call(isa, f"test_{function}", arguments(replace(case, groups=groups), x, w), shape, threads=-1)
