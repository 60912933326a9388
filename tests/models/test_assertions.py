"""What models assert of their values: tested in every call, told with the model's message and line."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.ir.program import Assert
from mycc.compiler.schedule import Schedule

from ..helpers.programs import scheduled
from .assertion_models import CASES, EXPORTED, IDS, UNEXPORTED, X, looked_up


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    """All cases as the entry points of one package."""
    path = tmp_path_factory.mktemp("assertions") / "model.pkg"
    mycc.compile({f"case{i}": (case.function, case.right[0]) for i, case in enumerate(EXPORTED.values())}, out=path)
    return mycc.load(path, threads=2)


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, package: mycc.Model) -> None:
    if name in UNEXPORTED:
        pytest.skip(UNEXPORTED[name])
    case, model = CASES[name], package.entry(f"case{list(EXPORTED).index(name)}")
    for inputs, message in (*case.wrong, *case.wrong[:1]):
        with pytest.raises(mycc.RunError, match=message):
            model(*inputs)
        for good in case.right:
            torch.testing.assert_close(model(*good), case.function(*good))


def _kinds(schedule: Schedule) -> list[bool]:
    return [isinstance(node, Assert) for node in schedule.program.nodes]


def test_no_kernel_moves_across() -> None:
    """Of equal assertions each stays, and what each guards stays behind it."""

    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        torch._assert_async((i < 4).all(), "first")
        y = y[i]
        torch._assert_async((i < 4).all(), "second")
        return y.exp() + 1

    planned = scheduled(model, X, torch.tensor([0, 1]))
    texts = [node.text.split()[0] for node in planned.program.nodes if isinstance(node, Assert)]
    assert texts == ["first", "second"]
    kinds = _kinds(planned)
    assert kinds.index(True) > 0
    assert not kinds[-1]
    assert sum(kinds[kinds.index(True) :]) < len(kinds[kinds.index(True) :])


def test_dynamic_sizes_and_every_number_of_threads(tmp_path: Path) -> None:
    rows, columns = torch.export.Dim("rows", max=300), torch.export.Dim("columns", max=300)
    shapes = {"ids": {0: columns, 1: columns}, "table": {0: rows}}
    path = mycc.compile(looked_up, (IDS, X), out=tmp_path / "a.pkg", dynamic_shapes=shapes)
    for threads in (1, 2, 4):
        model = mycc.load(path, threads=threads)
        for n in (1, 3, 290):
            ids, table = torch.randint(0, 200, (n, n)), torch.randn(200, 3)
            torch.testing.assert_close(model(ids, table), looked_up(ids, table))
            ids[-1, -1] = 200
            with pytest.raises(mycc.RunError, match=r"ids: no such row \(assertion_models\.py:\d+\)"):
                model(ids, table)


def test_a_condition_of_several_elements_is_refused(tmp_path: Path) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x > 0, "all of them")
        return x + 1

    with pytest.raises(mycc.CompileError, match=r"of shape \[4, 3\](.|\n)*_assert_async\(x > 0(.|\n)*\.all\(\)"):
        mycc.compile(model, (X,), out=tmp_path / "a.pkg")


def test_examples_that_break_an_assertion(tmp_path: Path) -> None:
    with pytest.raises(mycc.CompileError, match=r"does not run the model on its example inputs: ids: no such"):
        mycc.compile(looked_up, (IDS + 9, X), out=tmp_path / "a.pkg")
