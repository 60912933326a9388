"""Branches and loops: torch.cond, while_loop, scan, map and associative_scan, alone, nested, and beside state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mycc
import pytest
import torch

from .control_models import DYNAMIC, MODELS, SIZE, entries, make
from .support import HERE


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("control")
    return mycc.compile(entries(), out=folder / "control.pkg", dump=folder / "dump")


def other_inputs(name: str, turn: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(turn)
    found = []
    for example in MODELS[name][1]:
        shape = list(example.shape)
        if name in DYNAMIC:
            shape[0] = 2 + 3 * turn
        if example.is_floating_point():
            found.append(torch.randn(shape, generator=generator) * (1 + turn) + (turn - 2) * 0.3)
        else:
            found.append(torch.tensor(turn))
    return tuple(found)


@pytest.mark.parametrize("name", MODELS)
def test_as_eager(package: Path, name: str) -> None:
    entry, model = mycc.load(package).entry(name), make(name)
    for turn in range(6):
        inputs = other_inputs(name, turn)
        torch.manual_seed(turn)
        with torch.no_grad():
            wanted = model(*[t.clone() for t in inputs])
        torch.testing.assert_close(entry(*inputs, seed=turn), wanted, rtol=1e-4, atol=1e-5)


def test_same_bits_on_any_number_of_threads(package: Path) -> None:
    results = []
    for threads in (1, 2):
        model = mycc.load(package, threads=threads)
        results.append([model.entry(name)(*other_inputs(name, 3)) for name in ("recurrent", "branch")])
    assert all(torch.equal(a, b) for one, two in zip(*results, strict=True) for a, b in zip(one, two, strict=True))


def test_a_loop_writes_only_what_it_changes(package: Path) -> None:
    rows = {row["name"]: row["kernels"] for row in mycc.load(package).manifest["entry_points"]}
    scatter = next(kernel for kernel in rows["fill"] if kernel["kind"] == "scatter")
    assert int(scatter["writes"]) == 4 * SIZE
    large = [kernel for kernel in rows["fill"] if int(kernel["writes"]) >= 4 * 6 * SIZE]
    assert len(large) == 2  # the first value in, the last one out


def test_the_schedule_says_what_is_repeated(package: Path) -> None:
    text = (package.parent / "dump" / "04-schedule.txt").read_text()
    for words in ("\nif ", "\nelse\n", "\nrepeat while ", "\nrepeat iteration", " of length times\n", "\nend\n"):
        assert words in text, words
    program = (package.parent / "dump" / "05-codegen.txt").read_text()
    assert "for (int64_t size_iteration" in program
    assert ") break;" in program


def test_profile_and_verify_without_torch(package: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import without_torch_hook, mycc, numpy as np\n"
        f"m = mycc.load({str(package)!r}).entry('recurrent')\n"
        "x = np.ones((7, 2, 8), np.float32); last, rows = m(x)\n"
        "print(rows.shape, len(m.profile([x], 2)) == len(m.kernels), m.memory([x])[0] > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "(7, 2) True True", done.stderr
    checked = subprocess.run([sys.executable, str(package), "--verify"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
