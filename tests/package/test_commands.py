"""The functions behind `mycc verify`, `run`, `inspect` and `bench`."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.package import writer
from mycc.runtime import InputError, LoadError, RunError
from mycc.runtime.archive import Archive
from mycc.runtime.execute import parse_sizes, run_package
from mycc.runtime.formula import evaluate
from mycc.runtime.inspect import describe, inspect_package
from mycc.runtime.measure import bench_package
from mycc.runtime.render import render_bench, render_inspection, render_run, render_verify
from mycc.runtime.verify import verify_package
from rich.console import Console


def text_of(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_verify_accepts_a_right_package(package: Path) -> None:
    report = verify_package(package, threads=1)
    assert report.ok
    assert report.blocks == 1
    assert [case.sizes for case in report.accuracy.cases] == [{"batch": 3}, {"batch": 7}]
    assert all(output.error <= 1e-6 for case in report.accuracy.cases for output in case.outputs)
    assert "forward (batch 3)\n  y: error " in report.text()
    assert json.loads(json.dumps(report.as_dict()))["accuracy"]["cases"][0]["outputs"][0]["name"] == "y"
    assert "verified on cpu:x86-64-v2" in text_of(render_verify(report))


def test_verify_finds_wrong_numbers(wrong_package: Path) -> None:
    report = verify_package(wrong_package)
    assert not report.ok
    assert "y: NOT OK: error 9.99e-04 is above 1.00e-06" in report.text()
    assert report.text().endswith("NOT as accurate as when it was built")


def test_verify_finds_flipped_weights(package: Path, tmp_path: Path) -> None:
    data = bytearray(package.read_bytes())
    member = Archive(package).members["weights.safetensors"]
    data[member.offset + member.size - 1] ^= 1
    (tmp_path / "flipped.pkg").write_bytes(data)
    with pytest.raises(LoadError, match=r"block 0 of weights\.safetensors"):
        verify_package(tmp_path / "flipped.pkg")


def test_verify_without_a_certificate(make_contents: Callable[..., writer.PackageContents], tmp_path: Path) -> None:
    writer.write_package(tmp_path / "adder.pkg", make_contents(certificate=None, check={}))
    report = verify_package(tmp_path / "adder.pkg")
    assert report.ok
    assert report.text().endswith("no accuracy certificate: it was compiled without verification")
    assert "accuracy   not checked when it was built" in describe(inspect_package(tmp_path / "adder.pkg"))


def test_run_with_generated_inputs(package: Path, tmp_path: Path) -> None:
    result = run_package(package, sizes={"batch": 6}, out=tmp_path / "out.npz", threads=1)
    assert result.generated
    assert result.inputs["x"].shape == (6, 4)
    assert 0 <= result.inputs["ids"].min() <= result.inputs["ids"].max() <= 7
    saved = np.load(tmp_path / "out.npz")
    assert np.array_equal(saved["y"], result.outputs["y"])
    assert set(saved) == {"y", "s"}
    assert "out  y: float32[6, 4] min " in text_of(render_run(result))
    assert run_package(package).inputs["x"].shape == (3, 4)


def test_run_with_inputs_from_files(package: Path, tmp_path: Path) -> None:
    x, ids = np.ones((2, 4), np.float32), np.array([1, 2])
    np.savez(tmp_path / "in.npz", x=x, ids=ids)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "ids.npy", ids)
    named = run_package(package, tmp_path / "in.npz")
    ordered = run_package(package, [tmp_path / "x.npy", tmp_path / "ids.npy"])
    assert not named.generated
    assert np.array_equal(named.outputs["y"], ordered.outputs["y"])
    doubled = run_package(package, entry="double")
    assert np.array_equal(doubled.outputs["y"], 2 * doubled.inputs["x"])


def test_run_refuses_wrong_requests(package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 4), np.float32), mask=np.ones(2))
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    (tmp_path / "text.npy").write_text("hello")
    refusals: list[tuple[str, dict[str, Any]]] = [
        (r"in\.npz misses ids and has mask", {"inputs": tmp_path / "in.npz"}),
        (r"forward\(\) takes 2 inputs, but 1 files were given", {"inputs": [tmp_path / "x.npy"]}),
        (r"cannot read .*none\.npz: No such file", {"inputs": tmp_path / "none.npz"}),
        (r"cannot read .*text\.npy", {"inputs": [tmp_path / "text.npy"] * 2}),
        (r"forward\(\) has no size 'seq'", {"sizes": {"seq": 3}}),
        ("no entry point 'decode'", {"entry": "decode"}),
        ("sizes are for generated inputs", {"inputs": tmp_path / "in.npz", "sizes": {"batch": 3}}),
    ]
    for message, request in refusals:
        with pytest.raises(InputError, match=message):
            run_package(package, **request)
    with pytest.raises(RunError, match=r"cannot write .*nowhere/out\.npz: No such file"):
        run_package(package, out=tmp_path / "nowhere" / "out.npz")
    with pytest.raises(InputError, match="'batch:4' does not set a size"):
        parse_sizes(["batch:4"])
    assert parse_sizes(["batch=4", "seq=128"]) == {"batch": 4, "seq": 128}


def test_inspect(package: Path) -> None:
    information = inspect_package(package)
    assert json.loads(json.dumps(information)) == information
    assert information["size"] == package.stat().st_size
    assert information["weights"] == {"size": Archive(package).manifest["weights"]["size"], "tensors": 2}
    assert information["other"] < 1_500_000
    assert information["glibc"].startswith("2.")
    text = text_of(render_inspection(information))
    assert re.search(r"map_mul_f32 +mul +adder\.py:3", text)
    fusions = text_of(render_inspection(information, fusions=True))
    assert "written by hand" in fusions
    assert "lib/x86-64-v2/model.so" in text_of(render_inspection(information, members=True))


def test_bench(package: Path) -> None:
    result = bench_package(package, threads=1, sizes={"batch": 9}, runs=5, kernels=True)
    assert (result["runs"], result["threads"], result["sizes"]) == (5, 1, {"batch": 9})
    assert 0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"]
    assert result["load_ms"] > 0 < result["first_run_ms"]
    first, second = result["kernels"]
    assert (first["name"], second["gflops"]) == ("map_mul_f32", None)
    assert first["us"] == 0 or first["gflops"] == pytest.approx(36 / (1e3 * first["us"]))
    assert "map_mul_f32" in text_of(render_bench(result))
    with pytest.raises(InputError, match="runs has to be at least 1, not 0"):
        bench_package(package, runs=0)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (7, 7),
        ("batch", 3),
        ("2*batch*(seq + 1)", 30),
        ("seq - batch*2", -2),
        ("(seq + 1) // 2 - 1", 1),
        ("-seq + 5", 1),
        ("seq//2*2", 4),
        ("min(seq, 2*batch) + max(1, seq % 3)", 5),
    ],
)
def test_formulas(formula: int | str, value: int) -> None:
    assert evaluate(formula, {"batch": 3, "seq": 4}) == value


@pytest.mark.parametrize("formula", ["", "2*", "(batch", "batch seq", "x", "2**3", "batch; 1", "min(1)", "seq // 0"])
def test_wrong_formulas(formula: str) -> None:
    with pytest.raises(LoadError, match=r"formula|not closed|by zero"):
        evaluate(formula, {"batch": 3, "seq": 4})


def test_the_commands_work_without_torch(
    python_without: Callable[..., subprocess.CompletedProcess[str]], package: Path
) -> None:
    script = """
        from mycc.runtime import execute, inspect, measure, render, verify
        path = sys.argv[1]
        assert verify.verify_package(path).ok
        execute.run_package(path)
        render.render_inspection(inspect.inspect_package(path))
        measure.bench_package(path, runs=2, kernels=True)
    """
    done = python_without(script, package)
    assert done.returncode == 0, done.stderr
