"""Every form of the matrix kernels through Triton's interpreter, against torch in float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.probe import (
    Probe,
    attention_probe,
    computed_probe,
    conv_probe,
    gemm_probe,
    pair_probe,
    quantised_probe,
)
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.index import Size, of
from mycc.compiler.ir.plans.tiles import AttentionTile, GemmTile
from mycc.compiler.ir.structured import Window
from mycc.compiler.machine.gpu import DEVICES, Device

from ..helpers.triton_interpreter import TritonInterpreter

#: the interpreter knows no griddepcontrol
DEVICE = replace(DEVICES[90], pdl=False)
TOLERANCE = {"f32": 2e-6, "f16": 2e-3}
Tile = GemmTile | AttentionTile


@dataclass(frozen=True)
class Case:
    """A node, the tile that cuts it, and values of its sizes. None: the tile that tiles.py chooses."""

    name: str
    probe: Probe
    tile: Tile | None = None
    sizes: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


rows, batch, keys = (of(Size(name, 1, 4096)) for name in ("rows", "batch", "keys"))


def tile(m: int, n: int, k: int, split: int = 1, **options: bool | int) -> GemmTile:
    return GemmTile(m, n, k, 4, 2, split, **options)  # type: ignore[arg-type]


def gemm_cases(dtype: str) -> list[Case]:
    g = gemm_probe
    return [
        Case("tile", g(64, 64, 64, dtype), tile(32, 32, 16)),
        Case("edges", g(37, 51, 45, dtype, bias=True), tile(16, 32, 16)),
        Case("groups", g(160, 96, 32, dtype), tile(16, 32, 16, group=4)),
        Case("two_accumulators", g(48, 100, 40, dtype, bias=True), tile(16, 96, 16)),
        Case("split", g(33, 64, 200, dtype, bias=True, activation="relu", residual=True), tile(16, 32, 16, 3)),
        Case("split_uneven", g(16, 32, 80, dtype), tile(16, 32, 16, 4)),
        Case("gelu_gate", g(32, 48, 32, dtype, bias=True, activation="gelu_erf", gate=True), tile(16, 16, 16)),
        Case("transposed_store", g(40, 24, 32, dtype, transposed=True), tile(16, 16, 16)),
        Case("columns_dense", g(40, 50, 37, dtype, columns_dense=True), tile(16, 32, 16)),
        Case("batched", g(20, 24, 32, dtype, batch=(2, 3)), tile(16, 16, 16)),
        Case("batched_columns_dense", g(20, 24, 19, dtype, batch=(3,), columns_dense=True), tile(16, 16, 16)),
        Case("batched_split", g(20, 24, 64, dtype, batch=(2,)), tile(16, 16, 16, 2)),
        Case("dynamic_rows", g(rows * 3, 40, 32, dtype, bias=True), tile(16, 32, 16), {"rows": 13}),
        Case("dynamic_rows_chosen", g(rows * 3, 40, 32, dtype, bias=True), None, {"rows": 5}),
        Case("vector", g(1, 50, 96, dtype, bias=True), tile(1, 16, 32, vector=True)),
        Case("vector_split", g(1, 50, 200, dtype), tile(1, 16, 32, 3, vector=True)),
        Case("vector_chosen", g(1, 300, 256, dtype), None),
        Case("descriptors", g(64, 96, 64, dtype, bias=True), tile(32, 32, 32, descriptors=True)),
        Case("descriptors_edges", g(50, 80, 48, dtype, residual=True), tile(32, 64, 32, descriptors=True, halves=True)),
        Case("descriptors_two", g(70, 96, 64, dtype), tile(32, 96, 32, descriptors=True)),
        Case("descriptors_specialize", g(140, 80, 48, dtype), tile(128, 32, 32, descriptors=True, specialize=True)),
        Case("descriptors_split", g(50, 80, 200, dtype, bias=True), tile(32, 32, 32, 3, descriptors=True)),
        Case(
            "descriptors_slices", g(20, 40, 192, dtype, slices=3, out_dtype="f32"), tile(16, 32, 32, descriptors=True)
        ),
        Case(
            "descriptors_rows", g(rows, 64, 64, dtype), tile(32, 32, 32, descriptors=True, flatten=True), {"rows": 45}
        ),
        Case("pair", pair_probe(48, 64, 64, dtype), tile(16, 32, 32)),
        Case("pair_edges", pair_probe(37, 40, 45, dtype), tile(16, 32, 16)),
        Case("pair_descriptors", pair_probe(rows, 48, 64, dtype), tile(16, 32, 32, descriptors=True), {"rows": 45}),
        Case("pair_chosen", pair_probe(100, 96, 80, dtype), None),
        Case("slices", g(20, 24, 96, dtype, slices=3, out_dtype="f32"), tile(16, 16, 16)),
        Case("wider_result", g(32, 32, 32, dtype, out_dtype="f32"), tile(16, 16, 16)),
        Case("chosen", g(200, 136, 72, dtype, bias=True), None),
        Case("planes_split", quantised_probe(3, 48, 640, dtype, 4, 64, 64), tile(16, 32, 64, 2)),
        Case("planes_parts_of_runs", quantised_probe(33, 40, 768, dtype, 4, 128, 64), tile(16, 32, 32, 3)),
        Case("groups_of_bytes_split", quantised_probe(5, 40, 256, dtype, 8, 64), tile(16, 32, 32, 2)),
        Case("bytes_vector_split", quantised_probe(1, 50, 1200, dtype, 8), tile(1, 16, 256, 2, vector=True)),
        *computed_cases(dtype),
    ]


def computed_cases(dtype: str) -> list[Case]:
    """Products that compute their left operand: every kind of it, and every form of kernel."""
    g, c = gemm_probe, computed_probe
    cut = tile(32, 32, 16)
    walk = tile(32, 32, 32, descriptors=True)
    return [
        Case("computed_relu", c("relu", g(64, 64, 64, dtype)), cut),
        Case("computed_gelu", c("gelu", g(64, 64, 48, dtype, bias=True)), cut),
        Case("computed_exp_edges", c("exp", g(37, 51, 45, dtype)), cut),
        Case("computed_columns_edges", c("scaled_columns", g(37, 51, 45, dtype), "f32"), cut),
        Case("computed_rows", c("scaled_rows", g(rows, 40, 45, dtype)), cut, {"rows": 37}),
        Case("computed_sum", c("sum", g(37, 40, 45, dtype, residual=True)), cut),
        Case("computed_of_i8", c("scaled_columns", g(33, 40, 45, dtype), "i8"), cut),
        Case("computed_cast", c("cast", g(33, 40, 45, dtype), "f32" if dtype == "f16" else "f16"), cut),
        Case("computed_batched", c("sum", g(20, 24, 45, dtype, batch=(2, 3))), tile(16, 16, 16)),
        Case("computed_split", c("exp", g(33, 64, 200, dtype)), tile(16, 32, 16, 3)),
        Case("computed_slices", c("relu", g(20, 24, 96, dtype, slices=3, out_dtype="f32")), tile(16, 16, 16)),
        Case("computed_vector", c("exp", g(1, 50, 200, dtype)), tile(1, 16, 32, 3, vector=True)),
        Case("computed_vector_sum", c("sum", g(1, 50, 70, dtype), "f32"), tile(1, 16, 32, vector=True)),
        Case("computed_descriptors", c("exp", g(50, 80, 72, dtype)), walk),
        Case("computed_descriptors_rows", c("scaled_rows", g(rows, 64, 64, dtype)), walk, {"rows": 45}),
        Case("computed_descriptors_sum", c("sum", g(50, 80, 72, dtype)), replace(walk, split=2)),
        Case("computed_chosen", c("relu", g(200, 136, 72, dtype, bias=True)), None),
    ]


def window(kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> Window:
    return Window((kernel, kernel), (stride, stride), (pad, pad), (dilation, dilation), groups)


def conv_cases(dtype: str) -> list[Case]:
    c = conv_probe
    return [
        Case(
            "3x3", c(2, (7, 9), 32, 40, window(3, 1, 1), dtype, bias=True, residual=True, relu=True), tile(32, 32, 32)
        ),
        Case("3x3_stride", c(1, (9, 9), 32, 16, window(3, 2, 1), dtype), tile(16, 16, 16)),
        Case("3x3_split", c(1, (7, 7), 32, 32, window(3, 1, 1), dtype, relu=True), tile(32, 32, 32, 4)),
        Case("3x3_split_uneven", c(1, (5, 5), 16, 32, window(3, 1, 1), dtype), tile(16, 16, 16, 4)),
        Case("dilated", c(1, (9, 8), 16, 16, window(3, 1, 2, 2), dtype), tile(16, 16, 16)),
        Case("odd_channels", c(1, (6, 6), 24, 20, window(3, 1, 1), dtype, bias=True), tile(16, 16, 16)),
        Case("few_channels", c(2, (15, 13), 3, 24, window(7, 2, 3), dtype, bias=True), tile(16, 32, 16)),
        Case("four_channels", c(1, (8, 8), 4, 16, window(4, 4), dtype), tile(16, 16, 16)),
        Case("no_padding", c(1, (8, 8), 16, 16, window(3), dtype), tile(16, 16, 16)),
        Case("grouped", c(1, (6, 6), 32, 48, window(3, 1, 1, groups=2), dtype, bias=True), tile(16, 32, 16)),
        Case("grouped_few", c(1, (5, 5), 16, 16, window(3, 1, 1, groups=4), dtype, bias=True), tile(16, 16, 16)),
        Case("1x1", c(2, (5, 5), 32, 40, window(1), dtype, bias=True, residual=True), tile(16, 32, 16)),
        Case("1x1_stride", c(1, (8, 8), 32, 32, window(1, 2), dtype), tile(16, 32, 16)),
        Case("1_by_3", c(1, (1, 20), 16, 16, Window((1, 3), (1, 1), (0, 1), (1, 1), 1), dtype), tile(16, 16, 16)),
        Case("3_by_1", c(1, (20, 4), 16, 16, Window((3, 1), (2, 1), (1, 0), (1, 1), 1), dtype), tile(16, 16, 16)),
        Case(
            "depthwise", c(2, (9, 7), 40, 40, window(3, 2, 1, groups=40), dtype, bias=True, relu=True), tile(32, 32, 16)
        ),
        Case("depthwise_chosen", c(1, (12, 12), 24, 24, window(5, 1, 2, groups=24), dtype), None),
        Case("batch", c(batch, (6, 6), 16, 24, window(3, 1, 1), dtype, bias=True), tile(32, 32, 16), {"batch": 3}),
        Case("chosen", c(1, (14, 14), 64, 64, window(3, 1, 1), dtype, relu=True), None),
    ]


def attention_cases(dtype: str) -> list[Case]:
    a, t = attention_probe, AttentionTile
    return [
        Case("blocks", a(2, 3, 48, 64, 32, dtype), t(16, 16)),
        Case("single", a(2, 2, 40, 30, 32, dtype), t(16, 32)),
        Case("edges", a(1, 2, 37, 45, 32, dtype), t(16, 16)),
        Case("causal", a(1, 2, 64, 64, 32, dtype, causal=True), t(32, 16)),
        Case("causal_edges", a(1, 2, 50, 50, 32, dtype, causal=True), t(16, 32)),
        Case("causal_long_keys", a(1, 1, 20, 50, 32, dtype, causal=True), t(16, 16)),
        Case("negative_scale", a(1, 2, 37, 45, 32, dtype, scale=-0.3), t(16, 16)),
        Case("negative_scale_single", a(1, 2, 37, 20, 32, dtype, scale=-0.3), t(16, 32)),
        Case("negative_scale_causal", a(1, 2, 50, 50, 32, dtype, causal=True, scale=-0.3), t(16, 32)),
        Case("negative_scale_split", a(1, 2, 5, 200, 32, dtype, scale=-0.3), t(16, 16, split=3)),
        Case("zero_scale_causal", a(1, 2, 37, 37, 32, dtype, causal=True, scale=0.0), t(16, 16)),
        Case("bool_mask", a(2, 2, 33, 40, 32, dtype, mask="bool"), t(16, 16)),
        Case("bias_mask", a(2, 2, 33, 40, 32, dtype, mask="bias"), t(16, 16)),
        Case("bias_mask_causal", a(1, 2, 33, 33, 32, dtype, mask="bias", causal=True), t(16, 16)),
        Case("bool_mask_single", a(2, 2, 16, 24, 32, dtype, mask="bool"), t(16, 32)),
        Case("head_40", a(1, 2, 20, 33, 40, dtype), t(16, 16)),
        Case("head_96_value_72", a(1, 2, 20, 33, 96, dtype, value_size=72), t(16, 16)),
        Case("groups", a(1, 6, 40, 40, 32, dtype, kv_heads=2), t(16, 16)),
        Case("groups_packed", a(2, 8, 3, 50, 32, dtype, kv_heads=2), t(16, 16)),
        Case("groups_packed_one", a(2, 8, 1, 50, 32, dtype, kv_heads=2), t(16, 16)),
        Case("groups_packed_causal", a(2, 8, 3, 50, 32, dtype, kv_heads=2, causal=True), t(16, 16)),
        Case("split", a(1, 2, 5, 200, 32, dtype), t(16, 16, split=3)),
        Case("split_empty", a(1, 2, 5, 40, 32, dtype, mask="bool"), t(16, 16, split=4)),
        Case("split_packed", a(2, 8, 1, 150, 32, dtype, kv_heads=2, mask="bool"), t(16, 16, split=4)),
        Case("dynamic", a(batch, 2, rows, keys, 32, dtype), t(16, 16), {"batch": 2, "rows": 21, "keys": 35}),
        Case("dynamic_causal", a(batch, 2, rows, rows, 32, dtype, causal=True), t(16, 16), {"batch": 2, "rows": 37}),
        Case("dynamic_split", a(1, 2, 4, keys, 32, dtype), t(16, 16, split=3), {"keys": 75}),
        Case("descriptors", a(2, 2, 40, 64, 32, dtype), t(16, 16, descriptors=True)),
        Case("descriptors_edges", a(1, 2, 37, 45, 40, dtype, mask="bool"), t(16, 32, descriptors=True)),
        Case("descriptors_causal", a(1, 4, 50, 50, 32, dtype, kv_heads=2, causal=True), t(16, 16, descriptors=True)),
        Case("chosen", a(1, 2, 40, 72, 64, dtype), None),
        Case("chosen_few_rows", a(1, 2, 1, 512, 32, dtype), None),
    ]


CASES = {"gemm": gemm_cases, "conv": conv_cases, "attention": attention_cases}
PARAMS = [
    pytest.param(case, dtype, id=f"{kind}-{case}-{dtype}")
    for dtype in ("f32", "f16")
    for kind, cases in CASES.items()
    for case in cases(dtype)
]


@pytest.mark.parametrize(("case", "dtype"), PARAMS)
def test_kernel_against_float64(case: Case, dtype: str, interpreter: TritonInterpreter) -> None:
    error, _ = run(case, interpreter, DEVICE)
    assert error <= TOLERANCE[dtype]


@pytest.mark.parametrize("kind", ["gemm", "attention"])
def test_a_wrong_kernel_is_seen(kind: str, interpreter: TritonInterpreter) -> None:
    """The comparison itself: a reference with other operands must differ."""
    case = CASES[kind]("f32")[0]
    wrong = replace(case.probe, reference=lambda t: case.probe.reference({n: v.flip(0) for n, v in t.items()}))
    error, _ = run(replace(case, probe=wrong), interpreter, DEVICE)
    assert error > 1e-2


def run(case: Case, interpreter: TritonInterpreter, device: Device) -> tuple[float, torch.Tensor]:
    """The error of y against float64, relative in the norm; and y."""
    probe, sizes = case.probe, case.sizes
    generator = torch.Generator().manual_seed(len(case.name))
    shapes = {name: tuple(s.evaluate(sizes) for s in shape) for name, shape in probe.shapes.items()}
    tensors = {}
    for name, shape in shapes.items():
        dtype = to_torch(probe.buffers[name].dtype)
        if dtype == torch.bool:
            tensors[name] = torch.rand(shape, generator=generator) > 0.4
            tensors[name][..., 0, :] = False if len(shape) > 1 and shape[0] > 1 else tensors[name][..., 0, :]
        else:
            spread = 1 if dtype.is_floating_point else 30
            tensors[name] = (spread * torch.randn(shape, generator=generator)).to(dtype)
    tensors["y"] = torch.full_like(tensors["y"], float("nan"))
    memory = {probe.buffers[name]: t.reshape(-1) for name, t in tensors.items()}
    launches = launches_of(probe.node, device, "kernel", case.tile)
    after = interpreter.run(launches, memory, sizes)
    reference = probe.reference({n: t.double() for n, t in tensors.items() if n != "y"})
    y = after[probe.buffers["y"]].reshape(reference.shape)
    return float((y.double() - reference).norm() / reference.norm()), y
