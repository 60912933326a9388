"""model.h as a C program sees it: through ctypes, and through the C and C++ examples."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .packages import NAMES, ROOT, WEIGHTS

OK, LOAD, INPUT, RUN = range(4)


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", Dtype),
        ("shape", ctypes.c_int64 * 16),
        ("strides", ctypes.c_int64 * 16),
        ("owner", ctypes.c_void_p),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("check_full", ctypes.c_int32),
        ("target", ctypes.c_char_p),
    ]


class Port(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", Dtype),
        ("ndim", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_char_p)),
    ]


@pytest.fixture(scope="module")
def c(library_path: Path) -> Any:
    functions = ctypes.CDLL(str(library_path))
    functions.mycc_input.restype = functions.mycc_output.restype = ctypes.POINTER(Port)
    functions.mycc_last_error.restype = functions.mycc_version.restype = ctypes.c_char_p
    return functions


@pytest.fixture(scope="module")
def handle(c: Any, package_file: Path) -> Any:
    model = ctypes.c_void_p()
    assert c.mycc_load_file(os.fsencode(package_file), None, ctypes.byref(model)) == OK
    yield model
    c.mycc_unload(model)


def tensor(array: Any) -> Any:
    """A view of the array's memory; the array has to stay alive."""
    code, size = {"i": 0, "f": 2}[array.dtype.kind], array.dtype.itemsize
    made = Tensor(array.ctypes.data, 1, 0, array.ndim, Dtype(code, 8 * size, 1))
    made.shape[: array.ndim] = array.shape
    made.strides[: array.ndim] = [stride // size for stride in array.strides]
    made.array = array
    return made


def run(c: Any, handle: Any, name: str, inputs: list[Any], outputs: list[Any]) -> tuple[int, str]:
    """Status and error text; `outputs` are mycc_tensor and get the results."""
    given = (Tensor * max(1, len(inputs)))(*inputs)
    made = (Tensor * max(1, len(outputs)))(*outputs)
    status = c.mycc_run(handle, NAMES[name], given, len(inputs), made, len(outputs))
    outputs[:] = list(made[: len(outputs)])
    return status, c.mycc_last_error().decode()


def test_signature(c: Any, handle: Any) -> None:
    assert c.mycc_entry_count(handle) == len(NAMES)
    assert c.mycc_entry_find(handle, b"pair") == NAMES["pair"]
    assert c.mycc_entry_find(handle, b"none") == -1
    port = c.mycc_input(handle, NAMES["pair"], 1).contents
    assert (port.name, port.ndim, port.dims[0], port.dims[1]) == (b"b", 2, b"seq", b"2*batch + 1")
    assert (port.dtype.code, port.dtype.bits, port.dtype.lanes) == (2, 32, 1)
    assert c.mycc_output(handle, NAMES["copy"], 0).contents.dims[3] == b"5"
    assert not c.mycc_input(handle, 0, 1)
    assert not c.mycc_input(handle, 99, 0)
    assert c.mycc_version() == b"0.1.0"


def test_output_of_the_runtime(c: Any, handle: Any) -> None:
    outputs = [Tensor()]
    status, _ = run(c, handle, "affine", [tensor(np.ones((3, 4), np.float32))], outputs)
    assert status == OK
    assert outputs[0].data % 64 == 0
    assert (outputs[0].ndim, list(outputs[0].shape[:2]), list(outputs[0].strides[:2])) == (2, [3, 4], [4, 1])
    c.mycc_tensor_free(ctypes.byref(outputs[0]))
    assert outputs[0].data is None
    c.mycc_tensor_free(ctypes.byref(outputs[0]))


def test_output_of_the_caller(c: Any, handle: Any) -> None:
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    status, _ = run(c, handle, "affine", [tensor(x)], [tensor(y)])
    assert status == OK
    np.testing.assert_array_equal(y, 2 * x + WEIGHTS)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.zeros((2, 4), np.float32), "y: dimension 0 (batch) is 2, but the output has 3"),
        (np.zeros((3, 4), np.int32), "y: dtype is i32, the package was compiled for f32"),
        (np.zeros((3, 8), np.float32)[:, ::2], "y: an output has to be dense, row-major and aligned to its element"),
        (np.zeros(12, np.float32), "y: has 1 dimension (12), the package was compiled for 2 (batch, 4)"),
    ],
)
def test_wrong_output_of_the_caller(c: Any, handle: Any, output: Any, message: str) -> None:
    assert run(c, handle, "affine", [tensor(np.ones((3, 4), np.float32))], [tensor(output)]) == (INPUT, message)


def test_overlaps(c: Any, handle: Any) -> None:
    memory = np.zeros((5, 4), np.float32)
    status = run(c, handle, "affine", [tensor(memory[:3])], [tensor(memory[2:])])
    assert status == (INPUT, "y: the output overlaps the input x")
    shared = np.zeros(4, np.int32)
    status = run(c, handle, "cover", [tensor(np.ones(4, np.int64))], [tensor(shared), tensor(shared)])
    assert status == (INPUT, "b: the output overlaps the output a")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device_type", 2, "x: is on a CUDA device, the package runs on the CPU\n  Copy it to the CPU first."),
        ("data", None, "x: has no data"),
        ("ndim", 99, "x: has 99 dimensions, the package was compiled for 2"),
        ("ndim", -1, "x: has -1 dimensions, the package was compiled for 2"),
    ],
)
def test_wrong_inputs(c: Any, handle: Any, field: str, value: Any, message: str) -> None:
    given = tensor(np.ones((3, 4), np.float32))
    setattr(given, field, value)
    assert run(c, handle, "affine", [given], [Tensor()]) == (INPUT, message)


def test_negative_size(c: Any, handle: Any) -> None:
    given = tensor(np.ones((3, 4), np.float32))
    given.shape[0] = -1
    status, message = run(c, handle, "affine", [given], [Tensor()])
    assert status == INPUT
    assert message == "x: dimension 0 (batch) is -1, the package was compiled for 1..64"


def test_output_that_does_not_fit_into_memory(c: Any, handle: Any) -> None:
    given = tensor(np.ones((1, 3), np.float32))
    given.shape[0], given.strides[0] = 1 << 55, 0  # a broadcast row
    status, message = run(c, handle, "copies", [given], [Tensor()])
    assert status == RUN
    assert message.startswith("out of memory: ")
    given.shape[0] = 1 << 61
    assert run(c, handle, "copies", [given], [Tensor()]) == (INPUT, "x: takes 9223372036854775807 bytes or more")


def test_counts_and_nulls(c: Any, handle: Any) -> None:
    x = tensor(np.ones((3, 4), np.float32))
    assert run(c, handle, "affine", [x], []) == (INPUT, "affine has 1 output (y), but 0 were given")
    assert run(c, handle, "affine", [x, x], [Tensor()])[1] == "affine has 1 input (x), but 2 were given"
    assert c.mycc_run(handle, 0, None, 1, None, 1) == INPUT
    assert c.mycc_run(None, 0, None, 0, None, 0) == INPUT
    assert c.mycc_load_file(None, None, None) == LOAD
    c.mycc_unload(None)
    c.mycc_tensor_free(None)


def test_nothing_is_left_after_a_failure(c: Any, handle: Any) -> None:
    outputs = [Tensor(), tensor(np.zeros(3, np.int32))]
    status, message = run(c, handle, "cover", [tensor(np.ones(4, np.int64))], outputs)
    assert status == INPUT
    assert message.startswith("b: dimension 0 (n) is 3")
    assert outputs[0].data is None
    assert outputs[0].owner is None
    outputs = [Tensor()]
    assert run(c, handle, "lookup", [tensor(np.array([9]))], outputs)[0] == INPUT
    assert outputs[0].data is None


def test_options_of_an_older_or_wrong_size(c: Any, package_file: Path) -> None:
    model, options = ctypes.c_void_p(), Options(ctypes.sizeof(Options), 2, 0, b"cpu:nothing")
    path = os.fsencode(package_file)
    options.struct_size = 16  # without `target`
    assert c.mycc_load_file(path, ctypes.byref(options), ctypes.byref(model)) == OK
    assert c.mycc_model_threads(model) == 2
    c.mycc_unload(model)
    options.struct_size = 0
    assert c.mycc_load_file(path, ctypes.byref(options), ctypes.byref(model)) == LOAD
    assert "struct_size has to be sizeof(mycc_load_options)" in c.mycc_last_error().decode()
    assert not model.value


def test_library_needs_libc_alone(library_path: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    assert library_path.stat().st_size < 300_000
    text = subprocess.run(["readelf", "-dW", str(library_path)], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line}
    assert all(name.split(".so")[0] in ("libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64") for name in needed)
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(library_path)], capture_output=True, text=True, check=True
    ).stdout
    exported = [line.split()[-1] for line in symbols.splitlines() if " GLOBAL DEFAULT " in line and " UND " not in line]
    assert exported
    assert all(name.startswith("mycc_") for name in exported)
    versions = [part.split("@GLIBC_")[1].split()[0] for part in symbols.splitlines() if "@GLIBC_" in part]
    assert max(tuple(map(int, version.split("."))) for version in versions) <= (2, 17)


@pytest.mark.slow
@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize(("language", "binary"), [("c", "run_package"), ("cpp", "serve_package")])
def test_examples(
    language: str, binary: str, installed: bool, package_file: Path, library_path: Path, tmp_path: Path
) -> None:
    options = [f"-Dmycc_DIR={library_path.parent / 'cmake'}"] if installed else []
    source = ROOT / "examples" / language
    subprocess.run(["cmake", "-S", source, "-B", tmp_path, *options], check=True, capture_output=True)
    built = subprocess.run(["cmake", "--build", tmp_path], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr
    arguments = ["batch=2"] if language == "c" else ["3", "50"]
    done = subprocess.run([tmp_path / binary, package_file, *arguments], capture_output=True, text=True, check=True)
    if language == "c":
        assert done.stdout.splitlines()[1] == "y [2, 4] 0.5 -0.8 4.4 8.6 1.3 ..."
        refused = subprocess.run([tmp_path / binary, package_file, "batch=99"], capture_output=True, text=True)
        assert refused.returncode == 2
        assert "x: dimension 0 (batch) is 99, the package was compiled for 1..64" in refused.stderr
    else:
        assert done.stdout.startswith("150 calls by 3 threads, ")
        assert done.stdout.endswith(" 0 outputs differ\n")
