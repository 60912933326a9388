"""Rendering: one kernel of every template as a golden; the same twice; equal kernels once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jinja2
import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.codegen.cpu.headers import MICRO
from mycc.compiler.codegen.cpu.micro import render_micro_kernels, render_tile_set, render_tile_units
from mycc.compiler.codegen.cpu.render import (
    KernelPool,
    calls_of,
    environment,
    split_units,
    tiles_of,
    view_of,
)
from mycc.compiler.codegen.generate import Generated, generate, units_of
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.structured import WINOGRAD_FORMS, Conv
from mycc.compiler.lower import lower
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.model.operators import quantised  # noqa: F401  # defines the operators
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.matrix.register_tiles import TILE_SETS
from mycc.compiler.schedule.matrix.run_tiles import RUN_TILE_SETS
from mycc.compiler.schedule.planning import plan_kernel
from mycc.compiler.weights.collect import collect_weights
from mycc.templates import TEMPLATES
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import BATCH, Call1, plain, scheduled

Golden = Callable[[str], None]
x = torch.randn(4, 6, 40)
image = torch.randn(2, 8, 6, 6)
wide = torch.randn(2, 32, 9, 12)
depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
large = torch.randn(2, 16, 56, 56)
inverted = nn.Sequential(
    *(nn.Conv2d(16, 48, 1), nn.ReLU6(), nn.Conv2d(48, 48, 3, 2, 1, groups=48), nn.ReLU6(), nn.Conv2d(48, 24, 1))
)
mask = torch.ones(5, 5, dtype=torch.bool)
q = torch.randn(2, 4, 5, 16)
rows = torch.tensor([0, 3, 3, 8, 1])


class Quantised(nn.Module):
    """A layer with int8 weights and one with groups of int4 weights, which add to a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bytes", torch.ones(24, 40, dtype=torch.int8))
        self.register_buffer("halves", torch.full((40, 12), 0x77, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(40, 3, dtype=torch.float16))
        self.register_buffer("rows", torch.ones(24))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        h = F.relu(torch._int_mm(a.to(torch.int8)[0], self.get_buffer("bytes").t()) * self.get_buffer("rows"))
        halves, scales = self.get_buffer("halves"), self.get_buffer("scales")
        return torch.ops.mycc.grouped_mm(h, halves, scales, None, 4, 8) + a[0]


class QuantisedMap(nn.Module):
    """A depthwise convolution of int8, scaled and rounded to int8 again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taps", torch.ones(40, 1, 3, 3, dtype=torch.int8))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        taps, ones = self.get_buffer("taps"), [1, 1]
        sums = torch.ops.mycc.int_conv(a.to(torch.int8), taps, 3, ones, ones, ones, 40)
        return (sums * 0.25).round().clamp(-128, 127).to(torch.int8)


#: golden -> (templates that it shows, function, inputs, modules, dynamic batch)
@torch.library.custom_op("mycctest::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float, times: int) -> torch.Tensor:
    return x * factor * times


@scaled.register_fake
def _(x: torch.Tensor, factor: float, times: int) -> torch.Tensor:
    return torch.empty_like(x)


mycc.cpp_kernel("mycctest::scaled", "void scaled();")


def larger(a: torch.Tensor) -> torch.Tensor:
    """Images whose channels lie last, twice as large."""
    return F.interpolate(a.permute(0, 3, 1, 2), scale_factor=2.0, mode="bilinear").permute(0, 2, 3, 1)


def norm_of_last(a: torch.Tensor) -> torch.Tensor:
    """A group norm of images whose channels lie last."""
    return F.group_norm(a.permute(0, 3, 1, 2), 8).permute(0, 2, 3, 1)


def asserted(a: torch.Tensor) -> torch.Tensor:
    torch._assert_async((a > 0).all(), 'not "positive"')
    return a + 1


KERNELS: dict[str, tuple[str, Callable[..., Any], tuple[torch.Tensor, ...], tuple[nn.Module, ...], bool]] = {
    "map_flat": ("map_flat", lambda a: torch.relu(a) * 2, (x,), (), True),
    "map_rows": ("rows", lambda a: a + a[:, :1], (x,), (), False),
    "map_tiles": ("map_tiles", lambda a: a.transpose(1, 2) + 1, (torch.randn(4, 10, 40),), (), False),
    "interleaved_stack": ("map_flat", lambda a: torch.stack([a[..., ::2] + 1, a[..., 1::2]], -1), (x,), (), True),
    "prefetched_rows": ("rows", lambda a, i: a[i], (torch.randn(4000, 72), torch.ones(9, dtype=torch.long)), (), False),
    "prefetched_columns": (
        "rows", lambda a, i: a[:, i], (torch.randn(160, 2000), torch.ones(1200, dtype=torch.long)), (), False
    ),
    "prefetched_planes": (
        "rows", lambda a, i: a.gather(1, i), (torch.zeros(4, 256, 256), torch.zeros(4, 256, 256).long()), (), False
    ),
    "prefetched_rows_of_blocks": (
        "rows", lambda a: F.pixel_shuffle(a, 2) + 1, (torch.zeros(64, 64, 56, 56),), (), False
    ),
    "prefetched_lookups": ("rows", larger, (torch.zeros(2, 56, 56, 64),), (), False),
    "prefetched_odd_rows": ("row_streams", lambda a: a.sum(-1), (torch.zeros(4000, 1021),), (), False),
    "prefetched_short_rows": ("row_streams", lambda a: a.sum(-1), (torch.zeros(5000, 64),), (), False),
    "interleaved_stores": ("rows", lambda a: F.pixel_shuffle(a, 2), (image,), (), True),
    "interleaved_loads": ("rows", lambda a: a.transpose(1, 2).contiguous(), (torch.randn(4, 40, 3),), (), False),
    "around_the_end": ("rows", lambda a: torch.roll(a, 3, -1), (x,), (), True),
    "moved_halves": ("rows", lambda a: a.flip(-1), (x.half(),), (), False),
    "padded": ("rows", lambda a: F.pad(a, (1, 1, 1, 1)), (image,), (), False),
    "padded_and_read": ("rows", lambda a: F.pad(a * 2, (3, 0)) + 1, (x,), (), True),
    "window_in_rows": ("rows", lambda a: F.max_pool2d(a, 3, 2, 1, 2), (torch.randn(2, 9, 39),), (), False),
    "window_in_two_reductions": ("rows", lambda a: F.max_pool2d(a, 9, 1, 4), (torch.randn(300, 1, 9, 40),), (), False),
    "windows_down_rows": ("windows", lambda a: F.max_pool2d(a, 3, 2, 1), (torch.randn(2, 30, 39),), (), False),
    "windows_in_pairs": ("windows", lambda a: F.max_pool2d(a, 3, 2, 1), (torch.randn(2, 30, 40),), (), False),
    "windows_along_rows": (
        "windows",
        lambda a: F.avg_pool2d(a.permute(0, 3, 1, 2), 3, 1, 1).permute(0, 2, 3, 1),
        (torch.randn(2, 9, 9, 40),),
        (),
        False,
    ),
    "windows_along_large_rows": (
        "windows",
        lambda a: F.max_pool2d(a.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1),
        (torch.zeros(60, 56, 56, 64),),
        (),
        False,
    ),
    "lanes_up_to_a_limit": (
        "rows", lambda a, n: torch.where(torch.arange(40) < n[:, None], a[:, 0], -1.0), (x, rows[:4]), (), False
    ),
    "combined_rows": ("rows", lambda a: F.pad(a, (1, 1, 1, 1)), (torch.zeros(1400, 54, 54),), (), False),
    "combined_stages": ("pipelined_rows", lambda a: a.softmax(-1), (torch.zeros(22000, 197),), (), False),
    "combined_windows": ("windows", lambda a: F.avg_pool2d(a, 3, 1, 1), (torch.zeros(1400, 1, 56, 56),), (), False),
    "combined_scan": ("rows", lambda a: a.cumsum(-1), (torch.zeros(22000, 197),), (), False),
    "long_map": ("map_flat", torch.tanh, (torch.zeros(5 << 20),), (), False),
    "long_rows": ("rows", lambda a: a - a.mean(-1, keepdim=True), (torch.zeros(84, 50257),), (), False),
    "joined_nchw": ("rows", lambda a, b: torch.cat([a, b], 1), (torch.zeros(3, 70, 30, 30),) * 2, (), False),
    "short_windows": ("rows", lambda a: F.avg_pool2d(a, 2), (image,), (), False),
    "short_rows_in_order": ("rows", lambda a: a.sum(1), (torch.randn(30, 9, 40),), (), False),
    "windows_of_three": ("rows", lambda a: a.sum(-1), (torch.zeros(100000, 3),), (), False),
    "horizontal_reduction": ("rows", lambda a: a.mean(-1), (torch.zeros(3, 400),), (), False),
    "rows_in_streams": ("row_streams", lambda a: a.mean(-1), (x,), (), False),
    "indices_in_streams": ("row_streams", lambda a: a.argmax(-1), (x,), (), False),
    "horizontal_reduction_of_streams": ("rows", lambda a: a.amax(-1), (torch.zeros(64, 70000),), (), False),
    "horizontal_reduction_of_pieces": ("rows", lambda a: a.sum((0, 2)), (torch.zeros(64, 40, 512),), (), False),
    "horizontal_reduction_of_runs": ("rows", lambda a: a.sum((0, 2)), (torch.zeros(64, 4, 3136),), (), False),
    "vertical_reduction": ("rows", lambda a: a.amax(1), (x,), (), True),
    "column_reduction": ("rows", lambda a: a.sum(0), (torch.randn(20, 40),), (), False),
    "column_reduction_in_order": ("rows", lambda a: a.amax(1), (torch.zeros(17, 65, 256),), (), False),
    "welford_columns": ("rows", lambda a: (2 * a).var(1), (torch.zeros(17, 65, 256),), (), False),
    "column_reduction_of_16_bits": (
        "rows", lambda a: a.float().sum(1), (torch.zeros(2, 300, 1024).bfloat16(),), (), False
    ),
    "column_reduction_of_wide_rows": ("rows", lambda a: a.amax(1), (torch.zeros(2, 21, 70000),), (), False),
    "vertical_reduction_of_long_rows": ("rows", lambda a: a.amax(1), (torch.zeros(2, 8, 70000),), (), False),
    "arg_row": ("rows", lambda a: a.argmax(-1), (torch.zeros(3, 400),), (), False),
    "arg_columns": ("rows", lambda a: a.argmin(1), (x,), (), False),
    "arg_columns_of_wide_rows": ("rows", lambda a: a.argmax(1), (torch.zeros(2, 21, 70000),), (), False),
    "arg_columns_in_order": ("rows", lambda a: a.argmin(1), (torch.zeros(32, 257, 256),), (), False),
    "arg_columns_in_streams": ("rows", lambda a: a.argmin(1), (torch.zeros(32, 257, 260),), (), False),
    "transposed_rows": ("rows", lambda a: a.softmax(-1), (torch.randn(300, 10),), (), False),
    "transposed_places": ("rows", lambda a: a.argmax(-1), (torch.randn(300, 10),), (), False),
    "scan_columns": ("rows", lambda a: a.cumsum(1), (x,), (), False),
    "scan_row": ("rows", lambda a: a.cumsum(-1), (x,), (), False),
    "arg_reduction": ("rows", lambda a: a.argmax(1), (torch.randn(4, 6, 2),), (), False),
    "softmax": ("pipelined_rows", lambda a: torch.softmax(a, -1), (x,), (), True),
    "norm_of_samples": ("pipelined_samples", norm_of_last, (torch.zeros(48, 56, 56, 64),), (), False),
    "softmax_of_columns": ("pipelined_columns", lambda a: torch.softmax(a, 1), (torch.ones(16, 64, 64),), (), False),
    "layer_norm": ("pipelined_rows", lambda norm, a: norm(a + 1), (x,), (nn.LayerNorm(40),), False),
    "embedding": ("rows", lambda e, a: e(a), (torch.ones(4, 5, dtype=torch.long),), (nn.Embedding(9, 24),), False),
    "assert": ("assert", asserted, (x,), (), True),
    "gemm": ("gemm", lambda up, a: F.gelu(up(a)), (x,), (nn.Linear(40, 24),), True),
    "gemm_adds": ("gemm", lambda up, a, r: F.relu(up(a) + r), (x, x[..., :24].clone()), (nn.Linear(40, 24),), True),
    "gemm_glu": (
        "gemm", lambda u, g, a: F.silu(g(a)) * u(a), (x,), (nn.Linear(40, 48), nn.Linear(40, 48)), True
    ),
    "conv_integer": ("conv_integer", lambda layer, a: layer(a), (torch.randn(2, 40, 9, 9),), (QuantisedMap(),), False),
    "gemm_quantised": ("gemm_quantised", lambda layers, a: layers(a), (x,), (Quantised(),), True),
    "gemm_unpacked": ("gemm_unpacked", lambda a, b: a @ b.transpose(1, 2), (x, x), (), True),
    "conv": ("conv", lambda c, a: torch.relu(c(a)), (image,), (nn.Conv2d(8, 20, 3, 2, 1),), True),
    "conv_depthwise": ("conv_depthwise", lambda c, a: c(a), (wide,), (depthwise,), False),
    "conv_of_nchw": (
        "conv", lambda c, a: c(a).movedim(1, -1), (torch.randn(2, 3, 12, 12),), (nn.Conv2d(3, 16, 3, 2),), False
    ),
    "conv_nchw": (
        "conv_nchw", lambda c, a: F.relu(c(a)), (torch.randn(2, 3, 12, 12),), (nn.Conv2d(3, 8, 3, 2),), False
    ),
    "conv_chain": ("conv_chain", lambda c, a: c(a), (large,), (inverted,), True),
    "conv_transposing": (
        "conv_transposing", lambda c, a: F.relu(c(a)), (torch.randn(2, 32, 9, 9),), (nn.Conv2d(32, 40, 5),), True
    ),
    "conv_grouped": (
        "conv_grouped", lambda c, a: c(a).movedim(1, -1), (wide,), (nn.Conv2d(32, 32, 3, groups=8),), False
    ),
    "conv_winograd2": ("conv_winograd", lambda c, a: c(a), (wide,), (nn.Conv2d(32, 40, 3, padding=1),), True),
    "prefetched_updates": (
        "scatter",
        lambda a, i: torch.zeros(9, 64).index_add(0, i, a),
        (torch.zeros(5000, 64), torch.zeros(5000, dtype=torch.int64)),
        (),
        False,
    ),
    "scatter": ("scatter", lambda a, i: torch.zeros(9, 24).index_add(0, i, a), (torch.randn(5, 24), rows), (), False),
    "routine": ("routine", lambda a: torch.sort(a, -1).values, (x,), (), True),
    "custom": ("custom", lambda a: scaled(a, 0.5, 3), (x,), (), True),
    "window": ("rows", lambda a: F.max_pool2d(a.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1), (wide,), (), True),
    "attention": ("attention", lambda a: F.scaled_dot_product_attention(a, a, a, is_causal=True), (q,), (), True),
    "attention_with_mask": (
        "attention", lambda a, m: F.scaled_dot_product_attention(a, a, a, m), (q, mask), (), False
    ),
    "attention_of_bfloats": (
        "attention", lambda a: F.scaled_dot_product_attention(a, a, a), (q.bfloat16(),), (), False
    ),
}  # fmt: skip
MACROS = ("loops.j2", "columns.j2", "stages.j2", "epilogue.j2")  # seen in the kernels


def kernels(name: str) -> str:
    template, function, inputs, parts, dynamic = KERNELS[name]
    s = scheduled(function, *inputs, parts=parts, dynamic=dynamic)
    chosen = [(c, k) for c, k in zip(calls_of(s, KernelPool()), s.kernels, strict=True)]
    shown = [c.kernel.source for c, k in chosen if view_of(k.node, k.plan).template == f"{template}.cpp.j2"]
    assert shown, f"no kernel of {template}"
    return plain("\n".join(shown))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str, golden: Golden) -> None:
    golden(kernels(name))


def test_forms_of_winograd_differ_in_the_function_alone() -> None:
    _, function, inputs, parts, _ = KERNELS["conv_winograd2"]
    s = scheduled(function, *inputs, parts=parts)
    node = next(n for n in s.program.nodes if isinstance(n, Conv))
    sources = {a: KernelPool().call("k", plan_kernel(replace(node, algorithm=a))).kernel.source for a in WINOGRAD_FORMS}
    texts = {"winograd3": "<3>", "winograd3taps": "<3, 1, true>", "winograd4": "<4>", "winograd2s2": "<2, 2>"}
    for algorithm, text in texts.items():
        assert f"conv_winograd{text}(host, args" in sources[algorithm]
        assert sources[algorithm].replace(f"conv_winograd{text}", "conv_winograd<2>") == sources["winograd2"]


def test_rendering_is_the_same_twice() -> None:
    assert [kernels(name) for name in ("gemm", "softmax", "attention_with_mask")] == [
        kernels(name) for name in ("gemm", "softmax", "attention_with_mask")
    ]


def test_every_template_is_used_by_a_golden() -> None:
    shown = {f"{template}.cpp.j2" for template, *_ in KERNELS.values()} | set(MACROS)
    tiles = {p.name for kind in ("*.h.j2", "*tiles.cpp.j2") for p in (TEMPLATES / "cpu").glob(kind)}
    tiles -= {"map_tiles.cpp.j2"}  # the others are register tiles, see below
    assert {p.name for p in (TEMPLATES / "cpu").glob("*.j2")} == shown | tiles
    # see test_host_program, and test_cuda_program.py
    hosts = {"program", "helpers", "entry", "get", "table", "kernels", "cuda_program", "steps", "computed"}
    assert {p.name.split(".")[0] for p in (TEMPLATES / "host").iterdir() if p.suffix == ".j2"} == hosts


class Layers(nn.Module):
    """Twelve layers alike but for their weights, and one of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(12))
        self.up, self.wide = nn.Linear(16, 48), nn.Sequential(nn.Linear(48, 48), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.wide(self.up(x))


def test_layers_share_their_kernels() -> None:
    s = scheduled(lambda m, a: m(a), torch.randn(4, 16), parts=(Layers(),))
    assert len(s.program.nodes) == 26
    pool = KernelPool()
    calls = calls_of(s, pool)
    assert len({c.kernel.symbol for c in calls[0:24:2]}) == 1  # layer norms
    assert (
        len({c.kernel.symbol for c in calls[1:24:2]} | {calls[25].kernel.symbol}) == 1
    )  # of another width too: sizes are arguments
    assert len(pool.kernels()) == 3
    weights = [[p.buffer for p in c.params if p.buffer is not None and p.buffer.kind == "const"] for c in calls[1:24:2]]
    assert len({tuple(b.ident for b in row) for row in weights}) == 12


def test_a_row_is_told_what_the_products_of_its_run_read() -> None:
    """Layers that run twice count once, and of the embedding a few rows are read: it does not count."""
    table, up, down = nn.Embedding(1000, 64), nn.Linear(64, 96), nn.Linear(96, 64, bias=False)

    def function(table: nn.Module, up: nn.Module, down: nn.Module, i: torch.Tensor) -> torch.Tensor:
        return down(torch.relu(up(down(torch.relu(up(table(i)))))))

    for tokens, told in ((1, 4), (5, 0)):
        s = scheduled(function, torch.zeros(tokens, dtype=torch.long), parts=(table, up, down))
        params = [p for c in calls_of(s, KernelPool()) for p in c.params if p.name == "weight_bytes"]
        assert [p.size for p in params] == told * [str(4 * (64 * 96 + 96 + 96 * 64))]


def test_kernels_of_one_name_have_numbers() -> None:
    s = scheduled(lambda a: (torch.relu(a).sum(-1), torch.relu(a[:, 0]).sum(-1)), x)
    symbols = [c.kernel.symbol for c in calls_of(s, KernelPool())]
    assert len(set(symbols)) == len(symbols)


def test_undefined_names_raise() -> None:
    for folder in ("cpu", "host"):
        env = environment(folder)
        with pytest.raises(jinja2.UndefinedError):
            env.from_string("{{ k.nothing }}").render(k=object())
    with pytest.raises(jinja2.UndefinedError):
        environment("cpu").get_template("gemm.cpp.j2").render(name="f", k=object())
    with pytest.raises(jinja2.UndefinedError):
        environment("host").get_template("program.cpp.j2").render(entries=[object()], target="cpu")


def test_units_share_the_work_and_stay_the_same() -> None:
    pool = KernelPool()
    for name in ("map_flat", "softmax", "gemm", "conv", "vertical_reduction"):
        _, function, inputs, parts, dynamic = KERNELS[name]
        calls_of(scheduled(function, *inputs, parts=parts, dynamic=dynamic), pool)
    units = split_units(pool.kernels(), 3)
    assert list(units) == ["kernels_0.cpp", "kernels_1.cpp", "kernels_2.cpp"]
    assert sorted(k.symbol for u in units.values() for k in u) == sorted(k.symbol for k in pool.kernels())
    assert units == split_units(tuple(reversed(pool.kernels())), 3)


def test_products_lie_apart_from_loops_where_one_unit_would_be_long() -> None:
    pool = KernelPool()
    for name in ("map_flat", "softmax", "gemm", "conv", "vertical_reduction"):
        _, function, inputs, parts, dynamic = KERNELS[name]
        calls_of(scheduled(function, *inputs, parts=parts, dynamic=dynamic), pool)
    kernels = pool.kernels()
    assert [len(part) for part in units_of(kernels).values()] == [len(kernels)]
    long = tuple(replace(k, symbol=f"{k.symbol}_{i}") for i in range(6) for k in kernels)
    parts = list(units_of(long).values())
    assert len(parts) > 1
    assert sorted(k.symbol for part in parts for k in part) == sorted(k.symbol for k in long)
    assert all(len({MICRO in k.headers for k in part}) == 1 for part in parts)


# the host program ----------------------------------------------------------------------------------------------------
def generated(batch: bool) -> Generated:
    def function(up: nn.Module, a: torch.Tensor) -> torch.Tensor:
        return torch.softmax(up(a), -1) @ up(a).transpose(1, 2)

    graph = capture(Call1(function, nn.Linear(40, 24)).eval(), (x,), None, (({0: BATCH},),) if batch else None)
    graph = run_graph_passes(graph)
    result = lower(graph)
    return generate([graph], [schedule(result.program)], collect_weights([result]), parse_targets("cpu:x86-64-v3"))


@pytest.mark.parametrize("batch", [False, True], ids=["static", "dynamic"])
def test_host_program(batch: bool, golden: Golden) -> None:
    sources = generated(batch).sources["cpu:x86-64-v3"]
    golden(plain("\n".join([sources.units["program.cpp"], sources.headers["kernels.h"], *_units(sources.units)])))


def _units(units: dict[str, str]) -> list[str]:
    """The frames of the other units, without the kernels and tiles."""
    return [text[: text.index("namespace mycc")] for name, text in sorted(units.items()) if name != "program.cpp"]


# register tiles ------------------------------------------------------------------------------------------------------
def test_micro_kernels(golden: Golden) -> None:
    runs = replace(RUN_TILE_SETS["x86-64-v3"], panels=(1,))
    text = render_tile_set("example", replace(TILE_SETS["x86-64-v3"], panels=(2, 1)), runs)
    bodies = text[text.index("/* A tile holds its") : text.index("void tile_2x16(const TileOf<B> &given)")]
    golden(text[: text.index("/* Rows of weights times values")] + bodies)  # two tiles show them all


@pytest.mark.parametrize("isa", TILE_SETS)
def test_micro_kernels_of_every_level(isa: str) -> None:
    text = render_micro_kernels(isa)
    for tile in TILE_SETS[isa].tiles:
        assert f"template <class B> void tile_{tile.rows}x{tile.panels * 16}(const TileOf<B> &given) {{" in text
    for panels in TILE_SETS[isa].value_panels:
        assert f"void weight_tile_8x{panels * 16}(const ValueTile &given, const Weight &make) {{" in text
    for t in RUN_TILE_SETS[isa].tiles:
        assert f"inline void {t.name}(const RunTile &given) {{" in text


def test_tiles_of_a_panel_and_a_half_are_as_wide_as_a_vector() -> None:
    halved = {isa: [t.name for t in tiles.tiles if t.halved] for isa, tiles in RUN_TILE_SETS.items()}
    assert halved.pop("x86-64-v4") == ["runs_2x4x24", "runs_2x5x24", "runs_2x6x24", "runs_2x7x24"]
    assert not any(halved.values())


def test_tiles_that_make_weights_need_registers() -> None:
    assert {isa: tiles.value_panels for isa, tiles in TILE_SETS.items() if tiles.value_panels} == {"x86-64-v4": (1, 2)}
    tile_set = TILE_SETS["x86-64-v4"]
    assert replace(tile_set, cpu=replace(tile_set.cpu, registers=24)).value_panels == ()


def test_run_tiles(golden: Golden) -> None:
    runs = replace(RUN_TILE_SETS["x86-64-v3"], panels=(1, 1), runs=2)
    text = render_tile_set("example", replace(TILE_SETS["x86-64-v3"], panels=(1,)), runs)
    bodies = text[text.index("inline void runs_1x1x16") : text.index("inline void runs_1x2x16")]
    golden(text[text.index("/* Tiles of convolutions") : text.index("static const int8_t kRunPanels")] + bodies)


@pytest.mark.parametrize("isa", TILE_SETS)
def test_units_of_tiles(isa: str) -> None:
    """The header for them has no tile, and they are the same for every model that needs them."""
    header = render_micro_kernels(isa, bodies=False)
    units = render_tile_units(isa, ("float", "bfloat"), True)
    assert list(units) == ["tiles_float.cpp", "tiles_bfloat.cpp", "tiles_conv.cpp"]
    for tile in TILE_SETS[isa].tiles:
        name = f"tile_{tile.rows}x{tile.panels * 16}"
        assert f"void {name}(const TileOf<B> &given)" not in header
        for element in ("float", "bfloat"):
            assert f"template void {name}<{element}>(const TileOf<{element}> &);" in units[f"tiles_{element}.cpp"]
    for t in RUN_TILE_SETS[isa].tiles:
        assert f"void {t.name}(const RunTile &given)" not in header
        assert f"\nvoid {t.name}(const RunTile &given)" in units["tiles_conv.cpp"]
    assert render_tile_units(isa, (), False) == {}


def test_tiles_of_what_kernels_call() -> None:
    def tiles(*names: str) -> tuple[tuple[str, ...], bool]:
        pool = KernelPool()
        for name in names:
            _, function, inputs, parts, dynamic = KERNELS[name]
            calls_of(scheduled(function, *inputs, parts=parts, dynamic=dynamic), pool)
        return tiles_of(pool.kernels())

    def halved(up: nn.Module, a: torch.Tensor) -> torch.Tensor:
        return up(a)

    half = scheduled(halved, x.bfloat16(), parts=(nn.Linear(40, 24).bfloat16(),))
    pool = KernelPool()
    calls_of(half, pool)
    assert tiles_of(pool.kernels()) == (("bfloat",), False)
    assert tiles("map_flat", "softmax") == ((), False)
    assert tiles("gemm") == (("float",), False)
    assert tiles("map_flat", "conv", "gemm") == (("float",), True)


def test_no_tiles_of_an_unknown_level() -> None:
    with pytest.raises(ValueError, match="no GEMM tiles for 'x86-64-v9'; there are tiles for x86-64-v2"):
        render_micro_kernels("x86-64-v9")
