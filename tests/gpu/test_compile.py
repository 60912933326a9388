"""Packages for GPUs, built without one: images, manifest, cache; which loads the kernels are made of."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.cli import app
from mycc.compiler.build.cache import default_folder
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels, kernel_options
from mycc.compiler.build.triton_worker import accesses
from mycc.compiler.codegen.cuda.kernel import KernelParam, TritonKernel
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets
from mycc.runtime.errors import CompileError
from mycc.runtime.inspect import describe, inspect_package
from mycc.runtime.launches import launch_facts, typical_sizes
from mycc.runtime.render import render_inspection
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

from ..conftest import Golden
from ..helpers.device_programs import device_program
from ..helpers.programs import Call1
from ..models import small_zoo

TARGETS = "cuda:sm_80,cuda:sm_90,cuda:sm_100"
HALF = torch.bfloat16


@pytest.fixture(scope="module")
def cache() -> Path:
    """That of all tests."""
    return default_folder()


def manifest_of(package: Path) -> dict[str, Any]:
    with zipfile.ZipFile(package) as archive:
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
        return manifest


@pytest.mark.parametrize("name", ["bert", "resnet50"])
def test_a_model_for_three_gpus_on_a_machine_without_one(name: str, tmp_path: Path, cache: Path) -> None:
    module, inputs = getattr(small_zoo, name)()
    package = mycc.compile(module, inputs, out=tmp_path / "m.pkg", target=TARGETS, dtype="bf16", cache_dir=cache)
    manifest = manifest_of(package)
    entry = manifest["entry_points"][0]
    assert entry["outputs"][0]["dtype"] == "bf16"
    assert [row["target"] for row in manifest["targets"]] == TARGETS.split(",")
    with zipfile.ZipFile(package) as archive:
        for row in manifest["targets"]:
            assert (row["family"], row["isa"]) == ("cuda", "cuda-" + row["target"][5:])
            images = archive.read(row["images"])
            launches = entry["launches"][row["target"]]
            kernels = {launch["name"] for launch in launches}
            assert images.count(b"\x7fELF") == len(kernels)
            assert [launch["node"] for launch in launches] == sorted(launch["node"] for launch in launches)
            assert {launch["node"] for launch in launches} == set(range(len(entry["kernels"])))
            assert all(launch["registers"] > 0 and launch["spills"] == 0 for launch in launches)
            sources = {Path(member).stem for member in archive.namelist() if f"src/{row['isa']}/" in member}
            assert kernels | {"program"} == sources
    begin, end = manifest["weights"]["device"]
    assert begin == 0
    assert end == manifest["weights"]["size"] - manifest["weights"]["data_offset"]
    assert not manifest["check"]  # nothing here runs it


def test_a_package_for_a_cpu_and_a_gpu_shares_what_is_alike(tmp_path: Path, cache: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.LayerNorm(96)).eval()
    x = torch.randn(4, 64)
    package = mycc.compile(model, (x,), out=tmp_path / "m.pkg", target="cpu,cuda:sm_90", cache_dir=cache)
    manifest = manifest_of(package)
    begin, end = manifest["weights"]["device"]
    size = manifest["weights"]["size"] - manifest["weights"]["data_offset"]
    vectors = 3 * 96 * 4
    assert (end - begin, size) == (64 * 96 * 4 + vectors, 2 * 64 * 96 * 4 + vectors)
    assert manifest["check"]["error"]  # the CPU's code was compared with the model
    torch.testing.assert_close(mycc.load(package, device="cpu")(x), model(x), rtol=1e-5, atol=1e-6)


def test_ptx_is_for_chips_that_have_no_code_of_their_own(tmp_path: Path, cache: Path) -> None:
    package = mycc.compile(nn.GELU(), (torch.randn(8, 8),), out=tmp_path / "m.pkg", target="cuda:ptx", cache_dir=cache)
    with zipfile.ZipFile(package) as archive:
        images = archive.read("lib/cuda-ptx/kernels.bin")
    assert images.endswith(b"\0")
    assert b".version 8.0" in images
    assert b".target sm_80" in images


def test_an_inspection_says_what_each_launch_takes(tmp_path: Path, cache: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96)).eval()
    rows = torch.export.Dim("rows", min=1, max=4096)
    package = mycc.compile(
        model, (torch.randn(4, 64),), out=tmp_path / "m.pkg", target="cuda:sm_90", dtype="bf16", cache_dir=cache,
        dynamic_shapes=({0: rows},),
    )  # fmt: skip
    information = inspect_package(package)
    (entry,), (target,) = information["entry_points"], information["targets"]
    product, norm = launch_facts(entry, target, typical_sizes(entry, {"rows": 1000}))
    assert product.name.startswith("gemm_bf16")
    assert (norm.name, norm.programs * norm.warps > 0, norm.loads) == ("rows_layer_norm_bf16", True, 64)
    assert target["chip"] == "h200"
    assert "cuda:sm_90 (tuned for h200)" in describe(information)
    forms = [row["plan"]["form"] for row in entry["launches"]["cuda:sm_90"]]
    assert forms == ["tile", "held"]
    moved = 2 * 1000 * 96 * 2 + 2 * 96 * 2
    assert norm.floor_us == pytest.approx(moved / target["roof"]["tbytes"] / 1e6)
    assert norm.expected_us > norm.floor_us
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_inspection(information, sizes={"rows": 1000}))
    text = console.export_text()
    assert "forward on cuda:sm_90 at rows 1000" in text
    assert all(
        word in text for word in ("registers", "spills", "shared", "floor us", "form", "held", "rows_layer_norm_bf16")
    )


FORMS = {
    "norm": (lambda x, r, w, b: F.layer_norm(x + r, (768,), w, b), ((4, 128, 768), (4, 128, 768), (768,), (768,))),
    "gelu": (F.gelu, ((512, 1000),)),
    "transpose": (lambda x: x.transpose(1, 2).contiguous(), ((4, 128, 768),)),
    "gather": (lambda x, w: w[x[:, 0].long().abs()], ((64, 4), (1000, 768))),
    "softmax": (lambda x: F.softmax(x, -1), ((64, 96),)),
    "softmax_walked": (lambda x: F.softmax(x, -1), ((64, 50264),)),
    "softmax_in_pieces": (lambda x: F.softmax(x, -1), ((400, 50257),)),
    "layer_norm_in_pieces": (lambda x: F.layer_norm(x, (50257,)), ((400, 50257),)),
    "norm_in_pieces": (lambda x: F.rms_norm(x, (50257,)), ((400, 50257),)),
    "indices_in_pieces": (lambda x: x.argmax(-1), ((400, 50257),)),
    "indices_by_keys": (lambda x: x.argmax(-1), ((32768, 512),)),
    "indices_by_units": (lambda x: x.argmax(-1), ((16384, 768),)),
    "mean_across": (lambda x: x.mean((1, 2)), ((8, 7, 7, 2048),)),
}


@pytest.mark.parametrize("form", FORMS)
def test_loads_of_a_kernel(form: str, golden: Golden, cache: Path) -> None:
    """The texts of the kernels for sm_90 in bf16, and how many loads and stores of each width they became."""
    function, shapes = FORMS[form]
    inputs = [torch.randn(*shape).to(HALF) for shape in shapes]
    program = device_program(Call1(function).eval(), inputs, device=DEVICES[90])
    (target,) = parse_targets("cuda:sm_90")
    built = compile_kernels(program.code.kernels, target, BuildOptions(cache_dir=cache))
    parts = []
    for kernel, image in zip(program.code.kernels, built.images, strict=True):
        facts = ", ".join(f"{count} {kind}" for kind, count in image.facts["accesses"].items())
        source = kernel.source[kernel.source.rindex("@triton.jit") :]
        parts.append(f"# {kernel.num_warps} warps; {facts}\n{source}")
        assert image.facts["spills"] == 0
    golden("\n".join(parts))


CONDITIONS = [None, -2, "fro", "nuc", 1, math.inf]


def test_a_scalar_that_is_written_between_others_compiles(tmp_path: Path, cache: Path) -> None:
    """Each form of linalg.cond, whose result is one element of each row of another tensor."""

    def written(x: torch.Tensor, p: Any) -> torch.Tensor:
        base = torch.ones(*x.shape[:-2], 3)
        torch.linalg.cond(x, p, out=base.select(-1, 1))
        return base

    shapes = itertools.cycle(((5, 5), (2, 5, 5)))
    entries = {
        f"entry{i}": (lambda x, p=p: written(x, p), (torch.randn(shape),))
        for i, (p, shape) in enumerate(zip(CONDITIONS, shapes, strict=False))
    }
    out = tmp_path / "cond.pkg"
    mycc.compile(entries, out=out, target="cuda:sm_90", verify=False, cache_dir=cache)
    assert len(manifest_of(out)["entry_points"]) == len(entries)


def test_the_same_bytes_without_and_from_the_cache(tmp_path: Path) -> None:
    program = device_program(nn.GELU(), [torch.randn(64, 64)], device=DEVICES[80])
    (target,) = parse_targets("cuda:sm_80")
    first = compile_kernels(program.code.kernels, target, BuildOptions(cache_dir=tmp_path / "a"))
    again = compile_kernels(program.code.kernels, target, BuildOptions(cache_dir=tmp_path / "a"))
    other = compile_kernels(program.code.kernels, target, BuildOptions(cache_dir=tmp_path / "b"))
    assert (first.compiled, first.cached, again.compiled, again.cached) == (1, 0, 0, 1)
    assert first.images == again.images == other.images


def test_a_kernel_that_does_not_compile_is_a_fault_of_ours(tmp_path: Path) -> None:
    source = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef broken(x0):\n    tl.store(x0, unknown)\n"
    )
    kernel = TritonKernel("broken", source, (KernelParam("x0", "*fp32", 16),))
    (target,) = parse_targets("cuda:sm_90")
    with pytest.raises(CompileError, match="broken: a generated kernel did not compile") as caught:
        compile_kernels([kernel], target, BuildOptions(cache_dir=tmp_path))
    assert "unknown is not defined" in str(caught.value)
    assert (tmp_path / "failed" / "broken" / "broken.sm_90.py").read_text() == source


def test_a_kernel_that_spills_gets_more_warps(tmp_path: Path) -> None:
    """A row of 32768 numbers in registers needs more of them than 128 threads have."""
    source = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef long_row(x0, y0):\n"
        "    i = tl.arange(0, 32768)\n    x = tl.load(x0 + i)\n    tl.store(y0 + i, x / tl.sum(x))\n"
    )
    kernel = TritonKernel("long_row", source, (KernelParam("x0", "*fp32", 16), KernelParam("y0", "*fp32", 16)))
    (target,) = parse_targets("cuda:sm_90")
    options = BuildOptions(cache_dir=tmp_path)
    (kept,) = compile_kernels([dataclasses.replace(kernel, widens=False)], target, options).images
    assert (kept.facts["threads"], kept.facts["spills"] > 0) == (128, True)
    made = compile_kernels([kernel], target, options)
    assert (made.images[0].facts["threads"], made.images[0].facts["spills"]) == (256, 0)
    assert made.log[0].endswith("with 8 warps, as it spills with 4")


def test_every_option_of_triton_is_given() -> None:
    from triton.backends.nvidia.compiler import CUDAOptions

    (target,) = parse_targets("cuda:sm_90")
    given = kernel_options(TritonKernel("k", "", ()), target)
    #: fixed by the target, or lists of what is allowed
    others = {
        "warp_size", "arch", "backend_name", "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes",
        "allowed_dot_input_precisions",
    }  # fmt: skip
    assert set(given) | others == {field.name for field in dataclasses.fields(CUDAOptions)}


@pytest.mark.parametrize(("flags", "precision"), [((), "tf32x3"), (("--tf32",), "tf32")])
def test_tf32_is_asked_for_by_an_option(flags: tuple[str, ...], precision: str, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "line.py").write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64)\nexample_inputs = (torch.randn(256, 64),)\n"
    )
    command = ["compile", str(tmp_path / "line.py"), "--target", "cuda:sm_90", "--out", str(tmp_path / "line.pkg")]
    done = CliRunner().invoke(app, [*command, "--cache-dir", str(cache), *flags])
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(tmp_path / "line.pkg") as archive:
        (kernel,) = (n for n in archive.namelist() if n.startswith("src/cuda-sm_90/gemm"))
        assert f'input_precision="{precision}"' in archive.read(kernel).decode()


def test_widths_are_read_from_ptx() -> None:
    text = """
        @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
        ld.global.L1::evict_last.b16 { %rs1 }, [ %rd1 ];
        st.global.v2.b32 [ %rd2 + 0 ], { %r1, %r2 };
        cp.async.cg.shared.global [ %r1 + 0 ], [ %rd2 + 0 ], 0x10, 0x10;
    """
    assert accesses(text) == {"copy": 1, "ld.b16": 1, "ld.v4.b32": 1, "st.v2.b32": 1}
