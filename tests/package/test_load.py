from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime import InputError, LoadError, RunError, load
from mycc.runtime.archive import Archive
from mycc.runtime.native import LIBRARY, interface_name

X = np.arange(12, dtype=np.float32).reshape(3, 4)
IDS = np.array([0, 7, 3])
TABLE = np.arange(32, dtype=np.float32).reshape(8, 4)
SCALE = np.array([1, 2, 3, 4], np.float32)


def reference(x: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    return x * SCALE + TABLE[ids], x.sum(axis=1)


@pytest.fixture(scope="module", params=["pybind11", "ctypes"])
def model(request: pytest.FixtureRequest, package: Path) -> Any:
    from mycc.runtime import capi
    from mycc.runtime.loader import Model

    if request.param == "pybind11":
        assert interface_name() == "pybind11"
        return load(package, threads=2)
    folder = next(folder for folder in native_folders() if (folder / LIBRARY).exists())
    return Model(capi.Library(str(folder / LIBRARY)).load_file(str(package), 2, False, None), str(package))


def native_folders() -> list[Path]:
    from mycc.compiler.package import python_side

    return python_side._native_folders()


def test_it_runs_in_the_structure_of_the_model(model: Any) -> None:
    out = model(X, IDS)
    y, s = reference(X, IDS)
    assert list(out) == ["y", "extra"]
    assert out["extra"][1] is None
    assert type(out["y"]) is np.ndarray
    assert np.array_equal(out["y"], y.astype(np.float32))
    assert np.array_equal(out["extra"][0], s.astype(np.float32))
    assert np.array_equal(model(X, ids=IDS)["y"], out["y"])
    assert np.array_equal(model(ids=IDS, x=X)["y"], out["y"])


def test_outputs_stay_valid_without_the_model(package: Path) -> None:
    y = load(package)(X, IDS)["y"]
    assert np.array_equal(y, reference(X, IDS)[0].astype(np.float32))
    y += 1  # writable, the caller's own


def test_a_model_is_unloaded_when_nobody_refers_to_it(package: Path) -> None:
    gc.disable()
    try:
        model = load(package)
        double = model.entry("double")
        freed = []
        weakref.finalize(model, freed.append, "model")
        del model
        assert freed == ["model"]
        assert double(np.array([1, 2, 3])).tolist() == [2, 4, 6]
    finally:
        gc.enable()


def test_strided_inputs(model: Any) -> None:
    wide = np.arange(48, dtype=np.float32).reshape(6, 8)[::-2, ::2]
    ids = np.arange(6)[::2]
    expected, _ = reference(wide, ids)
    assert np.array_equal(model(wide, ids)["y"], expected.astype(np.float32))


def test_entries(model: Any) -> None:
    assert list(model.entries) == ["forward", "double"]
    assert model.entry("double")(np.array([1, 2, 3])).tolist() == [2, 4, 6]
    with pytest.raises(InputError) as caught:
        model.entry("treble")
    assert str(caught.value) == "the package has no entry point 'treble'\n  It has: forward, double."


def test_what_it_says_of_itself(model: Any) -> None:
    assert model.target == "cpu:x86-64-v2"
    assert model.threads == 2
    assert model.manifest["name"] == "adder"
    assert repr(model.signature) == (
        "forward(x: f32[batch, 4], ids: i64[batch]) -> y: f32[batch, 4], s: f32[batch]\n  batch: 1..64"
    )
    assert model.signature.inputs[0].shape == ("batch", 4)
    assert (model.signature.symbols[0].min, model.signature.symbols[0].max) == (1, 64)
    assert repr(model).startswith("<mycc model adder for cpu:x86-64-v2, 2 threads>")
    assert model.sizes([(5, 4), (5,)]) == {"batch": 5}


def test_profile_and_memory(model: Any) -> None:
    assert len(model.profile([X, IDS], runs=3)) == 2
    arena, live = model.memory([X, IDS])
    assert arena >= live >= 48


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((X,), ["misses argument 'ids'"]),
        ((X.astype(np.float64), IDS), ["x", "f32", "f64"]),
        ((X, IDS.astype(np.int32)), ["ids", "i64", "i32"]),
        ((X[0], IDS), ["x", "2"]),
        ((X[:, :3], IDS), ["x", "4", "3"]),
        ((X, IDS[:2]), ["ids", "3", "2"]),
        ((np.zeros((65, 4), np.float32), np.zeros(65, np.int64)), ["batch", "65", "64"]),
        ((X, "ids"), ["ids"]),
        ((X, [0, 1, 2]), ["ids", "list"]),
    ],
)
def test_wrong_inputs_are_named(model: Any, args: tuple[Any, ...], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        model(*args)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_an_index_out_of_range_is_an_error(model: Any) -> None:
    with pytest.raises(RunError, match="an id is beyond the table of 8 rows"):
        model(X, np.array([0, 8, 1]))
    assert np.array_equal(model(X, IDS)["y"], X * SCALE + TABLE[IDS])


def test_many_callers_get_their_own_answers(model: Any) -> None:
    def call(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        x, ids = rng.normal(size=(1 + seed % 60, 4)).astype(np.float32), rng.integers(0, 8, 1 + seed % 60)
        y, _ = reference(x, ids)
        return all(np.allclose(model(x, ids)["y"], y, rtol=1e-6, atol=1e-6) for _ in range(20))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(64)))


def test_torch_in_torch_out(model: Any) -> None:
    torch = pytest.importorskip("torch")
    out = model(torch.from_numpy(X).requires_grad_(), torch.from_numpy(IDS))
    assert isinstance(out["y"], torch.Tensor)
    assert torch.equal(out["y"], torch.from_numpy(X * SCALE + TABLE[IDS]))
    transposed = torch.arange(12, dtype=torch.float32).reshape(4, 3).T
    assert torch.equal(
        model(transposed, torch.from_numpy(IDS))["y"], transposed * torch.tensor(SCALE) + torch.tensor(TABLE[IDS])
    )
    with pytest.raises(InputError):
        model(torch.from_numpy(X).to("meta"), torch.from_numpy(IDS))


def test_anything_with_dlpack(model: Any) -> None:
    from mycc.runtime.dlpack import DlpackArray, array_of

    out = model(DlpackArray(X, 2), DlpackArray(IDS, 0))
    assert np.array_equal(array_of(out["y"]), X * SCALE + TABLE[IDS])


def test_bytes_load_as_paths_do(package: Path) -> None:
    data = package.read_bytes()
    for source in (data, bytearray(data), memoryview(data), str(package)):
        assert np.array_equal(load(source, threads=1)(X, IDS)["y"], X * SCALE + TABLE[IDS])


def test_wrong_options_are_refused(package: Path) -> None:
    with pytest.raises(LoadError, match="check has to be 'quick' or 'full', not 'fast'"):
        load(package, check="fast")
    with pytest.raises(LoadError, match="threads has to be a number from 1, not 0"):
        load(package, threads=0)
    with pytest.raises(LoadError, match="a package is loaded from a path or from bytes, not from a int"):
        load(3)  # type: ignore[arg-type]
    with pytest.raises(LoadError, match=r"cpu:x86-64-v9[\s\S]*cpu:x86-64-v2"):
        load(package, target="cpu:x86-64-v9")


def test_damaged_packages_are_refused(package: Path, tmp_path: Path) -> None:
    data = package.read_bytes()
    members = Archive(data).members
    with pytest.raises(LoadError):
        load(tmp_path / "missing.pkg")
    for cut in (0, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(LoadError):
            load(data[:cut])
    for name, member in members.items():
        middle = member.offset + member.size // 2
        broken = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if name == "weights.safetensors":
            load(broken)
            with pytest.raises(LoadError, match="weights"):
                load(broken, check="full")
        else:
            with pytest.raises(LoadError):
                load(broken)
    assert load(data, check="full").target == "cpu:x86-64-v2"


def test_loading_needs_no_heavy_module(
    python_without: Callable[..., subprocess.CompletedProcess[str]], package: Path
) -> None:
    done = python_without(
        """
        import numpy as np
        before = set(sys.modules)
        from mycc.runtime import load
        model = load(sys.argv[1])
        model(np.ones((2, 4), np.float32), np.zeros(2, np.int64))
        print(sorted(name for name in set(sys.modules) - before if not name.startswith("mycc")))
        """,
        package,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(eval(done.stdout))
    assert not loaded & {"typer", "rich", "zipfile", "hashlib", "dataclasses", "inspect", "pathlib", "torch"}


def test_a_subinterpreter_is_refused_at_once(package: Path) -> None:
    code = f"""
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = __import__(name)
        break
    except ImportError:
        pass
interpreters.run_string(interpreters.create(), '''
import mycc
try:
    mycc.load({str(package)!r})
except mycc.LoadError as error:
    print(error.message)
''')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "a package cannot be loaded in a subinterpreter"
