"""State lives with the loaded model: buffers that calls change, states of several callers, arguments written to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc import InputError, RunError
from mycc.runtime.loader import Model

from ..helpers.interfaces import INTERFACES, load_by
from ..helpers.threads import in_threads
from . import state_models
from .state_models import ROWS, SIZE, Memory, entries
from .support import HERE

PLACES = [torch.tensor(p) for p in ([1, 4, 6], [0, 0, 7], [-1, 2, 3])]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("state") / "state.pkg"
    return mycc.compile(state_models.make_entries(), out=out)


@pytest.fixture(params=INTERFACES)
def model(request: pytest.FixtureRequest, package: Path) -> Model:
    return load_by(request.param, package)


def eager() -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {name: entry[0] for name, entry in entries(Memory()).items()}


def draw(seed: int) -> torch.Tensor:
    return torch.randn(2, 3, SIZE, generator=torch.Generator().manual_seed(seed))


def same(found: object, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(found), wanted)


def test_calls_follow_eager(model: Model) -> None:
    own = eager()
    with torch.no_grad():
        for seed, place in enumerate(PLACES):
            same(model(draw(seed), place), own["write"](draw(seed), place))
            for found, wanted in zip(model.entry("read")(place.abs()), own["read"](place.abs()), strict=True):
                same(found, wanted)
    memory = own["write"].memory
    for name in ("memory.cache", "memory.count"):
        value = model.state[name]
        same(value, dict(memory.named_buffers())[name.removeprefix("memory.")])


def test_reading_setting_and_resetting(model: Model) -> None:
    assert list(model.state) == ["memory.cache", "memory.count", "total"]
    assert model.state["memory.count"] == 5  # its value when the model was compiled
    model(draw(0), PLACES[0])
    assert model.state["memory.count"] == 8
    model.state["memory.cache"] = np.ones((2, ROWS, SIZE), np.float32)
    model.state = {"memory.count": 100}
    cache, count = model.entry("read")(np.array([0, 1, 2]))
    assert count == 100
    assert (cache == 1).all()
    copy = model.state["memory.cache"]
    copy[...] = 7
    view = model.state.view("memory.cache")
    assert (view == 1).all()
    view[:, 2] = 3
    assert (model.entry("read")(np.array([2, 2, 2]))[0] == 3).all()
    model.reset_state()
    assert model.state["memory.count"] == 5
    assert (view == 0).all()


def test_one_state_for_each_caller(model: Model) -> None:
    mine, yours = model.new_state(), model.new_state()
    for seed in range(2):
        model(draw(seed), PLACES[seed], state=mine)
    model(draw(9), PLACES[2], state=yours)
    assert [int(s["memory.count"]) for s in (mine, yours, model.state)] == [11, 8, 5]
    own = eager()["write"]
    with torch.no_grad():
        own(draw(9), PLACES[2])
    same(yours["memory.cache"], own.memory.cache)
    view = yours.view("memory.cache")
    kept = view.copy()
    del yours  # the view keeps the memory
    np.testing.assert_array_equal(view, kept)


def test_calls_with_one_state_wait_for_each_other(model: Model) -> None:
    state = model.new_state()
    in_threads(lambda _: [model(draw(0), PLACES[0], state=state) for _ in range(50)], 4)
    assert state["memory.count"] == 5 + 4 * 50 * 3


def test_arguments_are_written_in_place(model: Model) -> None:
    bump = model.entry("bump")
    y = np.arange(5, dtype=np.float32)
    x = np.ones((3, 5), np.float32)
    same(bump(x, y), torch.full((3, 5), 2.0))
    np.testing.assert_array_equal(x, 1 + np.tile(y, (3, 1)))
    wide = np.ones((3, 10), np.float32)
    bump(wide[:, ::2], y)  # strided: only its own elements change
    np.testing.assert_array_equal(wide[:, ::2], x)
    assert (wide[:, 1::2] == 1).all()
    t = torch.ones(5, 3).t()
    bump(t, torch.from_numpy(y))
    np.testing.assert_array_equal(t.numpy(), x)
    fixed = np.ones((3, 5), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(InputError, match="x is read-only, but the model writes to it"):
        bump(fixed, y)
    both = np.ones((3, 5), np.float32)
    with pytest.raises(InputError, match="x: the model writes to it, so it must not share memory with y"):
        bump(both, both[0])
    assert (both == 1).all()
    wide = torch.ones(1, 5).expand(3, 5)
    with pytest.raises(InputError, match="x: the model writes to it, so its elements must not share memory"):
        bump(wide, torch.from_numpy(y))
    assert torch.equal(wide, torch.ones(3, 5))


def _bfloat16(values: Any) -> torch.Tensor:
    """An array of ml_dtypes' type, which torch does not read, where some other test has imported it."""
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(values)


def test_bfloat16(model: Model) -> None:
    half, x = model.entry("half"), torch.tensor([1.0, 2.0, -1.0, 0.25], dtype=torch.bfloat16)
    assert torch.equal(half(x), (x + 0.5) * 2)
    assert torch.equal(_bfloat16(model.state["total"]), x + 0.5)
    view = _bfloat16(model.state.view("total"))
    model.state["total"] = x
    assert torch.equal(view, x)
    model.reset_state()
    assert view.tolist() == [0.5] * 4


def test_refusals(model: Model) -> None:
    with pytest.raises(InputError, match=r"keeps no tensor 'cash'(.|\n)*memory.cache, memory.count, total"):
        model.state["cash"]
    with pytest.raises(InputError, match=r"memory.cache: has the shape \(2, 8\), the state has \(2, 8, 4\)"):
        model.state["memory.cache"] = np.zeros((2, 8), np.float32)
    with pytest.raises(InputError, match=r"memory.cache: dtype is f64, the state has f32"):
        model.state["memory.cache"] = np.zeros((2, ROWS, SIZE))
    with pytest.raises(InputError, match=r"memory.count: 2.5 is no value of the state's type, i64"):
        model.state["memory.count"] = 2.5
    with pytest.raises(InputError, match=r"state has to be what new_state\(\) gives, not a dict"):
        model(draw(0), PLACES[0], state={"memory.count": 2})
    before = model.state["memory.cache"]
    with pytest.raises(InputError, match="dimension 1 is 2"):
        model(draw(0)[:, :2], PLACES[0])
    np.testing.assert_array_equal(model.state["memory.cache"], before)
    with pytest.raises(RunError, match=r"index(.|\n)*The state may have changed in part: reset it"):
        model(draw(0), torch.tensor([1, 2, 99]))
    model.reset_state()


def test_the_state_of_another_model(package: Path, model: Model) -> None:
    other = mycc.load(package).new_state()
    if type(other.handle) is not type(model.new_state().handle):
        pytest.skip("this model was loaded through ctypes; handles of its states are no pybind11 objects")
    with pytest.raises(InputError, match="belongs to another model"):
        model(draw(0), PLACES[0], state=other)


def test_without_torch_and_measured(package: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import without_torch_hook, mycc, numpy as np\n"
        f"m = mycc.load({str(package)!r})\n"
        "x, p = np.ones((2, 3, 4), np.float32), np.array([0, 1, 2])\n"
        "m(x, p); m(x, p); m.profile([x, p], 3); a = np.ones((3, 5), np.float32)\n"
        "m.entry('bump').profile([a, a[0].copy()], 2)\n"
        "print(int(m.state['memory.count']), a.sum(), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["11", "15.0", "False"]
    checked = subprocess.run([sys.executable, str(package), "--verify"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "memory.cache" in checked.stdout


def test_inspection_names_the_state(package: Path) -> None:
    done = subprocess.run([sys.executable, str(package)], capture_output=True, text=True)
    assert "memory.cache: f32[2, 8, 4], memory.count: i64[]" in done.stdout


def test_only_the_new_positions_are_written(package: Path) -> None:
    rows = mycc.load(package).manifest["entry_points"][0]["kernels"]
    scatter = next(row for row in rows if row["kind"] == "scatter")
    assert int(scatter["writes"]) == 2 * 3 * SIZE * 4


def test_a_place_that_is_a_tensor_of_one_element(tmp_path: Path) -> None:
    class Steps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, ROWS, SIZE))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache[:, self.count] = x
            self.count += 1
            return self.cache.sum(1)

    loaded, own = mycc.load(mycc.compile(Steps(), (draw(0)[:, 0],), out=tmp_path / "steps.pkg")), Steps()
    for seed in range(ROWS):
        same(loaded(draw(seed)[:, 0]), own(draw(seed)[:, 0]))
    with pytest.raises(RunError, match="index out of range"):
        loaded(draw(0)[:, 0])
    scatter = next(row for row in loaded.manifest["entry_points"][0]["kernels"] if row["kind"] == "scatter")
    assert int(scatter["writes"]) == 2 * SIZE * 4
