"""The matrix kernels compiled for sm_80, sm_90, sm_100 without a GPU: bf16, tf32, programmatic launches, no spills."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import triton
from mycc.compiler.build.cache import default_folder
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import CompiledKernels, compile_kernels
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.kernel import TritonKernel
from mycc.compiler.codegen.cuda.probe import (
    Probe,
    attention_probe,
    computed_probe,
    conv_probe,
    gemm_probe,
    pair_probe,
)
from mycc.compiler.ir.index import Size, of
from mycc.compiler.ir.plans.tiles import AttentionTile, GemmTile
from mycc.compiler.ir.structured import Window
from mycc.compiler.machine.gpu import DEVICES, Device
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.schedule.gpu.fit import misfit
from mycc.compiler.schedule.gpu.measured import rows as measured_rows
from mycc.compiler.schedule.gpu.product_plans import chosen_tile
from mycc.compiler.schedule.gpu.tiles import leaves_registers

from ..conftest import Golden

rows = of(Size("rows", 1, 4096))
SAME = Window((3, 3), (1, 1), (1, 1), (1, 1), 1)
STEM = Window((7, 7), (2, 2), (3, 3), (1, 1), 1)
DEPTHWISE = Window((3, 3), (1, 1), (1, 1), (1, 1), 64)

#: name -> node, tile (None: the chosen one), and how float32 products are made
FORMS: dict[str, tuple[Probe, GemmTile | AttentionTile | None, str]] = {
    "gemm": (gemm_probe(128, 2304, 768, "bf16", bias=True), None, ""),
    "gemm_split": (gemm_probe(128, 768, 3072, "bf16", bias=True, residual=True), None, ""),
    "gemm_two": (gemm_probe(4096, 768, 768, "bf16", activation="gelu_erf"), GemmTile(128, 192, 64, 8, 3), ""),
    "gemm_rows": (gemm_probe(rows, 768, 768, "f16", bias=True), None, ""),
    "gemm_descriptors": (
        gemm_probe(4096, 3072, 768, "bf16", bias=True, activation="gelu_erf"),
        GemmTile(128, 128, 64, 8, 3, descriptors=True, together=2, halves=True),
        "",
    ),
    "gemm_descriptors_two": (gemm_probe(4096, 768, 3072, "bf16", bias=True, residual=True), None, ""),
    "gemm_descriptors_flat": (gemm_probe(4096, 2304, 768, "bf16", bias=True), None, ""),
    "gemm_descriptors_split": (
        gemm_probe(197, 768, 3072, "bf16"),
        GemmTile(64, 128, 64, 4, 3, 2, descriptors=True, together=4),
        "",
    ),
    "gemm_glu": (pair_probe(4096, 2048, 768, "bf16"), None, ""),
    "gemm_glu_wide": (pair_probe(4096, 2048, 768, "bf16"), GemmTile(128, 128, 64, 8, 3, descriptors=True), ""),
    "gemm_wide": (gemm_probe(70000, 32000, 768, "bf16", bias=True), None, ""),
    "attention_wide": (attention_probe(2048, 32, 4096, 4096, 64, "bf16", causal=True), None, ""),
    "gemm_vector": (gemm_probe(1, 4096, 4096, "bf16"), None, ""),
    "gemm_computed": (computed_probe("scaled_columns", gemm_probe(128, 768, 768, "bf16", bias=True), "i8"), None, ""),
    "gemm_computed_sum": (computed_probe("sum", gemm_probe(512, 256, 768, "bf16")), None, ""),
    "gemm_computed_descriptors": (
        computed_probe("cast", gemm_probe(4096, 768, 768, "bf16"), "f32"),
        GemmTile(128, 128, 64, 8, 3, descriptors=True),
        "",
    ),
    "gemm_computed_vector": (computed_probe("gelu", gemm_probe(1, 768, 768, "bf16")), None, ""),
    "gemm_tf32x3": (gemm_probe(512, 768, 768, "f32", bias=True), None, "tf32x3"),
    "gemm_tf32": (gemm_probe(512, 768, 768, "f32", bias=True), None, "tf32"),
    "conv": (conv_probe(1, (14, 14), 256, 256, SAME, "bf16", bias=True, residual=True, relu=True), None, ""),
    "conv_few_channels": (conv_probe(1, (64, 64), 3, 64, STEM, "bf16", bias=True, relu=True), None, ""),
    "conv_depthwise": (conv_probe(1, (28, 28), 64, 64, DEPTHWISE, "bf16", bias=True, relu=True), None, ""),
    "attention": (attention_probe(1, 12, 128, 128, 64, "bf16", mask="bool"), None, ""),
    "attention_causal": (attention_probe(2, 16, rows, rows, 128, "bf16", causal=True, kv_heads=4), None, ""),
    "attention_long": (attention_probe(2, 16, 4096, 4096, 64, "bf16"), None, ""),
    "attention_decode": (attention_probe(1, 32, 1, 2048, 128, "bf16", kv_heads=8), None, ""),
    "attention_f32": (attention_probe(1, 12, 128, 128, 64, "f32"), None, "tf32x3"),
}

#: what is compiled for the other chips too
OLDER_AND_NEWER = ("gemm", "gemm_descriptors", "gemm_tf32x3", "conv", "attention_causal")


def device_of_form(form: str, capability: int) -> Device:
    float32 = FORMS[form][2]
    device = DEVICES[capability]
    return replace(device, float32=float32) if float32 else device


def kernel(form: str, capability: int) -> TritonKernel:
    probe, tile, _ = FORMS[form]
    device = device_of_form(form, capability)
    if isinstance(tile, GemmTile) and tile.descriptors and not device.descriptors:
        tile = None
    launch, *_ = launches_of(probe.node, device, form, tile)  # of few rows, where they are dynamic
    return launch.kernel.named(form)


@pytest.fixture(scope="module")
def cache() -> Path:
    """That of all tests."""
    return default_folder()


def compiled(kernels: list[TritonKernel], capability: int, cache: Path) -> CompiledKernels:
    (target,) = parse_targets(f"cuda:sm_{capability}")
    return compile_kernels(kernels, target, BuildOptions(cache_dir=cache))


@pytest.mark.parametrize("capability", sorted(DEVICES))
def test_forms_compile_without_spills(capability: int, cache: Path, golden: Golden) -> None:
    forms = [form for form in FORMS if capability == 90 or form in OLDER_AND_NEWER]
    images = compiled([kernel(form, capability) for form in forms], capability, cache).images
    assert {i.symbol: i.facts["spills"] for i in images} == dict.fromkeys(forms, 0)
    assert all(i.facts["shared"] <= DEVICES[capability].shared for i in images)
    golden("\n".join(f"{i.symbol}: {json.dumps(i.facts['accesses'])}" for i in images))


@pytest.mark.parametrize("form", FORMS)
def test_text(form: str, golden: Golden) -> None:
    golden(kernel(form, 90).source)


@pytest.mark.slow  # test_forms_compile_without_spills
def test_measured_tiles_do_not_spill(cache: Path) -> None:
    """Every eighth row of the database; the bench refuses rows that spill."""
    kernels = []
    for i, row in enumerate(measured_rows(90)[::8]):
        if row["kind"] == "gemm":
            probe = gemm_probe(row["m"], row["n"], row["k"], row["dtype"], bias=True)
        elif row["kind"] == "attention":
            causal = row.get("causal", False)
            probe = attention_probe(1, row["products"], row["queries"], row["keys"], row["head"], "bf16", causal=causal)
        else:
            continue
        tile = (AttentionTile if row["kind"] == "attention" else GemmTile)(**row["tile"])
        device = replace(DEVICES[90], float32=row.get("float32", "tf32x3"))
        if row.get("batch", 1) == 1:
            kernels.append(launches_of(probe.node, device, "measured", tile)[0].kernel.named(f"measured_{i}"))
    images = compiled(kernels, 90, cache).images
    assert len(images) > 5
    assert [i.facts["spills"] for i in images] == [0] * len(images)


@pytest.mark.parametrize(
    "form", ["gemm", "gemm_split", "gemm_descriptors", "gemm_vector", "gemm_computed", "conv", "attention"]
)
def test_nothing_dependent_is_read_before_the_wait(form: str, cache: Path, tmp_path: Path) -> None:
    """The kernel before may still be writing: only prefetches, and descriptors of its own, stand before the wait."""
    (image,) = compiled([kernel(form, 90)], 90, cache).images
    code = disassembled(image.image, tmp_path)
    before = code[: code.index("ACQBULK")]
    assert not [op for op in before if op.startswith(("LDG", "LDGSTS", "UTMALDG", "STG", "RED"))]
    assert "PREEXIT" in code
    assert any(op.startswith(("LDG", "LDGSTS", "UTMALDG")) for op in code)


def test_descriptors_of_dynamic_memory_without_bounds_are_refused() -> None:
    """Their coordinates are 32-bit numbers."""
    long, many = of(Size("long", 1, 10**7)), of(Size("many", 1, 10**4))
    gemm = gemm_probe(long, 768, 768, "bf16").node
    attention = attention_probe(many, 12, long, long, 64, "bf16").node
    for node, tile in (
        (gemm, GemmTile(128, 128, 64, 8, 3, descriptors=True)),
        (attention, AttentionTile(64, 64, 4, 3, descriptors=True)),
    ):
        with pytest.raises(ValueError, match="need fixed sizes"):
            launches_of(node, DEVICES[90], "kernel", tile)
        assert not launches_of(node, DEVICES[90], "kernel")[0].kernel.source.count("make_tensor_descriptor")


def test_online_softmax_has_registers() -> None:
    """The database has a tile with specialized warps for so many columns: it has no room, and no halves."""
    node = gemm_probe(4096, 32000, 768, "bf16", bias=True, activation="gelu_erf").node
    tile = chosen_tile(node, DEVICES[90])
    assert isinstance(tile, GemmTile)
    assert leaves_registers(tile, DEVICES[90])
    assert not misfit(node, tile)
    assert not leaves_registers(GemmTile(128, 192, 64, 4, 4, descriptors=True), DEVICES[90])
    assert leaves_registers(GemmTile(128, 192, 64, 8, 4, descriptors=True), DEVICES[90])


def test_the_matrix_units_are_used(cache: Path, tmp_path: Path) -> None:
    for form in ("gemm", "conv", "attention_long"):
        (image,) = compiled([kernel(form, 90)], 90, cache).images
        assert any(op.startswith("HGMMA") for op in disassembled(image.image, tmp_path)), form


def disassembled(cubin: bytes, folder: Path) -> list[str]:
    """The opcodes of a kernel in order, read by the disassembler that Triton brings."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]+)", text, re.MULTILINE)
