"""Operators whose results have as many rows as the values of a tensor say; numbers that models read from tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.utils import _pytree as pytree

X = torch.tensor([[0.0, 1.5, -2.0, 0.0], [3.0, 0.0, 1.5, -2.0], [0.0, 0.0, 0.0, 0.0]])
I = torch.tensor([3, 1, 1, 0, 3, 3, 2])  # noqa: E741
NAN = torch.tensor([1.0, float("nan"), 1.0, float("inf"), float("nan"), -0.0, 0.0])
EMPTY = torch.empty(0, 3)
ROWS = {"dynamic_shapes": ({0: torch.export.Dim("rows", max=64)},)}


def _last(n: Any, top: int) -> int:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= top)
    return k


def _scaled(x: torch.Tensor, s: torch.Tensor) -> Any:
    f = s.item()
    return x * f + f, torch.full((2, 3), f), x.clamp(max=f).masked_fill(x > 1, f / 2), torch.where(x > 0, f, 1.0)


def _put(x: torch.Tensor) -> torch.Tensor:
    y, mask = x.clone(), x > 0
    y[mask] = y[mask] * 2 + 1
    return y


def _chain(x: torch.Tensor) -> Any:
    kept = x[x.sum(1) > 0]
    again = kept[kept[:, 0] >= 0]
    return kept.softmax(-1) @ torch.ones(4, 3), again.sum(0), torch.cat([kept, x]), kept.shape[0], again.numel()


def _padded(x: torch.Tensor) -> torch.Tensor:
    """Some rows, in front of as many zeros as are wanted."""
    kept = x[x.sum(1) > 0]
    rows = x.new_zeros(5, 4)
    rows[: kept.shape[0]] = kept
    return rows


def _in_groups(x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The rows of each group times its own number."""
    sizes = (group[:, None] == torch.arange(3)).sum(0).tolist()
    parts = x[group.argsort(stable=True)].split(sizes)
    return torch.cat([part * (i + 1) for i, part in enumerate(parts)])


def _written_rows(x: torch.Tensor, i: torch.Tensor) -> Any:
    """Writes at places that are tensors of one element."""
    a, b, c, d, e, f = (x.clone() for _ in range(6))
    a[i[0]] = x[2]
    b[:, i[1]] = 3
    b[i[0], i[1]] = x[1, 1]
    c[i[0]] += 1
    d[i[0], 1:3] = 7
    d[1, i[1]] = 9
    e[..., i[1]] -= x[:, 0]
    cube = torch.stack([f, f])
    cube[i[0], :, i[1]] = 5
    cube[0, i[0]] = x[1]
    return a, b, c, d, e, cube


def _written_slices(x: torch.Tensor, i: torch.Tensor) -> Any:
    """Writes between places that are tensors of one element."""
    a, b, c, d = (x.clone() for _ in range(4))
    a[i[0] : i[0] + 2] = x[:2]
    b[i[0] : i[1]] = 1.5
    b[..., i[0] :] = 0
    c[: i[1], i[0] :] = -1
    d[i[0] : i[0] + 2].add_(1)
    d[: i[0]].mul_(2)
    return a, b, c, d


#: name -> (function, example arguments)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nonzero": (lambda x: x.nonzero(), (X,)),
    "nonzero of a vector": (lambda x: x.nonzero() * 2, (I,)),
    "nonzero of a number": (lambda x: x.nonzero(), (torch.tensor(2.0),)),
    "nonzero of nothing": (lambda x: x.nonzero(), (EMPTY,)),
    "argwhere": (lambda x: torch.argwhere(x > 0), (X,)),
    "where": (lambda x: torch.where(x != 0), (X,)),
    "masked_select": (lambda x: torch.masked_select(x, x < 1), (X,)),
    "masked_select broadcast": (lambda x, m: torch.masked_select(x, m), (X, torch.tensor([True, False, True, True]))),
    "masked_select of a row": (lambda x, m: torch.masked_select(x[1], m), (X, X < 5)),
    "mask of all dimensions": (lambda x: x[x > 0], (X,)),
    "mask of rows": (lambda x, m: x[m], (X, torch.tensor([True, False, True]))),
    "mask of columns": (lambda x, m: x[:, m], (X, torch.tensor([True, False, True, False]))),
    "mask of nothing": (lambda x, m: x[m], (X, torch.tensor([False, False, False]))),
    "mask beside an index": (lambda x, m: x[m, torch.tensor([1])], (X, torch.tensor([True, False, True]))),
    "write through a mask": (_put, (X,)),
    "write of nothing": (_put, (-X.abs(),)),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (I,)),
    "unique of numbers and NaN": (lambda x: torch.unique(x, return_counts=True)[1], (NAN,)),
    "unique numbers and their places": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (X,)),
    "unique rows and their places": (lambda x: x.unique(dim=0, return_inverse=True, return_counts=True), (X,)),
    "unique_consecutive numbers": (
        lambda x: [n * 2 for n in x.unique_consecutive(return_inverse=True, return_counts=True)],
        (X,),
    ),
    "unique values": (lambda x: torch.unique(x), (X,)),
    "unique rows": (lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), (X[[0, 2, 1, 0]],)),
    "unique columns": (lambda x: torch.unique(x, dim=1), (X,)),
    "unique of nothing": (lambda x: torch.unique(x, return_counts=True), (torch.empty(0, dtype=torch.int32),)),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (I,)),
    "unique_consecutive rows": (lambda x: torch.unique_consecutive(x, dim=0), (X[[0, 0, 1, 0]],)),
    "bincount": (lambda x: torch.bincount(x), (I,)),
    "bincount with weights": (lambda x, w: torch.bincount(x, w, minlength=9), (I, torch.rand(7))),
    "repeat_interleave": (lambda x, r: torch.repeat_interleave(x, r, dim=0), (X, torch.tensor([2, 0, 3]))),
    "repeat_interleave flat": (lambda x, r: torch.repeat_interleave(x, r), (I, torch.tensor([2]))),
    "repeats alone": (lambda r: torch.repeat_interleave(r), (torch.tensor([2, 0, 3]),)),
    "item as a size": (lambda x, n: x[: _last(n, 3)].sum(0) * n, (X, torch.tensor(2))),
    "item as a start": (lambda x, n: x[_last(n, 3) :], (X, torch.tensor(1))),
    "item of a constant": (lambda x: x[: _last(torch.tensor([1, 2]).max(), 3)] * 2, (X,)),
    "item in creation": (lambda n: (torch.arange(_last(n, 9)), torch.zeros(_last(n, 9) * 2 + 1)), (torch.tensor(4),)),
    "item as a number": (_scaled, (X, torch.tensor(1.25))),
    "item as a row": (lambda x, n: x[n[0]] + x[n[1], n[2]], (X, torch.tensor([2, -1, 0]))),
    "item as a column": (lambda x, n: x.select(1, n.item()), (X, torch.tensor(-2))),
    "written rows": (_written_rows, (X, torch.tensor([1, 2]))),
    "written rows from the end": (_written_rows, (X, torch.tensor([-1, -4]))),
    "slices between items": (lambda x, i: (x[i[0] : i[0] + 1] * 2, x[i[1] :], x[:, : i[0]]), (X, torch.tensor([1, 2]))),
    "slices beyond the ends": (lambda x, i: (x[i[0] : i[1]], x[i[1] :], x[:, : i[0]]), (X, torch.tensor([-9, 9]))),
    "slices of nothing": (lambda x, i: (x[i[0] : i[1]].sum(0), x[i[0] :]), (X, torch.tensor([-1, 1]))),
    "written slices": (_written_slices, (X, torch.tensor([1, 2]))),
    "written slices from the end": (_written_slices, (X, torch.tensor([-3, -1]))),
    "item of bytes as a row": (lambda x, n: x.select(0, n.item()), (X, torch.tensor(2, dtype=torch.uint8))),
    "negative item": (lambda x, n: x * n.item() - n.item() // 2, (X, torch.tensor(-7))),
    "numbers as results": (
        lambda x: (x.sum().item() * 2, x.argmax().item(), x.any().item(), x.shape[0], 3),
        (X,),
    ),
    "sizes of sizes": (_chain, (X,)),
    "written in front": (_padded, (X,)),
    "rows in groups": (_in_groups, (X, torch.tensor([2, 0, 2]))),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    """All cases as the entry points of one package."""
    path = tmp_path_factory.mktemp("data_sizes") / "model.pkg"
    mycc.compile({f"case{i}": case for i, case in enumerate(CASES.values())}, out=path)
    return mycc.load(path)


def _compiled(function: Callable[..., Any], arguments: tuple[Any, ...], folder: Path, **options: Any) -> mycc.Model:
    path = folder / "model.pkg"
    mycc.compile(function, arguments, out=path, **options)
    return mycc.load(path)


def _compare(found: Any, wanted: Any) -> None:
    left, right = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    assert len(left) == len(right)
    for y, r in zip(left, right, strict=True):
        if isinstance(r, torch.Tensor):
            torch.testing.assert_close(y, r, equal_nan=True)
        else:
            assert type(y) is type(r)
            assert y == pytest.approx(r)


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str, package: mycc.Model) -> None:
    function, arguments = CASES[name]
    model = package.entry(f"case{list(CASES).index(name)}")
    _compare(model(*arguments), function(*arguments))


def test_results_have_the_size_of_the_call(tmp_path: Path) -> None:
    model = _compiled(lambda x: (x[x.sum(1) > 0], torch.unique(x)), (X,), tmp_path, **ROWS)
    for x in (X, X[:1], -X, torch.randn(33, 4), torch.ones(64, 4)):
        _compare(model(x), (x[x.sum(1) > 0], torch.unique(x)))
    out = model(X.numpy())
    assert [y.shape for y in out] == [(1, 4), (4,)]
    assert model.signature.outputs[0].shape == ("u0", 4)


def test_sizes_that_the_run_finds_do_not_exclude_size_one(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    given = X, torch.tensor([2, 0, 2])
    model = _compiled(_in_groups, given, tmp_path, dynamic_shapes=({0: rows}, {0: rows}))
    for count in (1, 3, 20):
        x, group = torch.randn(count, 4), torch.randint(0, 3, (count,))
        _compare(model(x, group), _in_groups(x, group))


def test_sizes_of_inputs_that_are_one(tmp_path: Path) -> None:
    """torch names the size of each input, and finds them equal later."""

    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        k = i[0].item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return x[:k].sum(0) + i.sum()

    rows = torch.export.Dim("rows", max=64)
    loaded = _compiled(model, (X, torch.tensor([2, 1, 0])), tmp_path, dynamic_shapes=({0: rows}, {0: rows}))
    for count, k in ((3, 2), (1, 1), (1, 0), (20, 20)):
        x, i = torch.randn(count, 4), torch.full((count,), k)
        _compare(loaded(x, i), model(x, i))
    with pytest.raises(mycc.RunError, match="u0 <= rows does not hold"):
        loaded(X, torch.tensor([4, 0, 0]))


def test_places_out_of_range_are_errors(tmp_path: Path) -> None:
    def model(x: torch.Tensor, i: torch.Tensor) -> Any:
        y, z = x.clone(), x.clone()
        y[i[0]] = 1
        z[i[1] : i[1] + 2] = x[:2]
        return y, z

    rows = torch.export.Dim("rows", min=2, max=64)
    loaded = _compiled(model, (X, torch.tensor([1, 1])), tmp_path, dynamic_shapes=({0: rows}, None))
    for count, i in ((3, [2, 0]), (2, [-2, 0]), (30, [29, 28])):
        x = torch.randn(count, 4)
        _compare(loaded(x, torch.tensor(i)), model(x, torch.tensor(i)))
    for i in ([3, 0], [-4, 0], [2**62, 0]):
        with pytest.raises(mycc.RunError, match=r"index out of range in index_put \(test_data_sizes.py:\d+\)"):
            loaded(X, torch.tensor(i))
    for i in ([0, 2], [0, -1], [0, 99]):
        with pytest.raises(mycc.RunError, match=r"not the size 2 of its value \(test_data_sizes.py:\d+\)"):
            loaded(X, torch.tensor(i))


def test_a_row_is_written_in_its_place(tmp_path: Path) -> None:
    """y[a : a + 1] = v touches one row, and none where Python's slice is empty; other slices are of any length."""

    def model(x: torch.Tensor, a: torch.Tensor, v: torch.Tensor) -> Any:
        y, z, w = x.clone(), x.clone(), x.clone()
        y[a : a + 1] = v
        z[:, a : 1 + a] = 2.5
        w[a * 2 : a + 1] += 1
        return y, z, w

    v = torch.randn(4)
    loaded = _compiled(model, (X, torch.tensor(1), v), tmp_path, dynamic_shapes=(*ROWS["dynamic_shapes"], None, None))
    for count in (1, 3, 64):
        x = torch.randn(count, 4)
        for place in (0, 1, count - 1, count, 70, -1, -2, -count, -count - 1, -100):
            a = torch.tensor(place)
            _compare(loaded(x, a, v), model(x, a, v))


def test_counts_of_at_least_a_dynamic_size(tmp_path: Path) -> None:
    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.bincount(i, minlength=x.shape[0])

    loaded = _compiled(
        model, (X, torch.tensor([1, 9])), tmp_path, **{"dynamic_shapes": (*ROWS["dynamic_shapes"], None)}
    )
    for count in (1, 10, 64):
        x = torch.randn(count, 4)
        _compare(loaded(x, torch.tensor([0, 7])), model(x, torch.tensor([0, 7])))


def test_same_on_any_number_of_threads(tmp_path: Path) -> None:
    _compiled(_chain, (X,), tmp_path)
    x = torch.randn(3, 4)
    results = [mycc.load(tmp_path / "model.pkg", threads=n)(x) for n in (1, 2, 4)]
    for result in results[1:]:
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(result, results[0], strict=True))


def test_a_range_is_checked(tmp_path: Path) -> None:
    def model(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        torch._check(k >= 1)
        torch._check(k <= 3)
        return x[:k]

    loaded = _compiled(model, (X, torch.tensor(2)), tmp_path)
    assert loaded(X, torch.tensor(3)).shape == (3, 4)
    for wrong in (0, 4, -1):
        with pytest.raises(mycc.RunError, match=rf"test_data_sizes.py:\d+  k = n.item\(\).* {wrong}, .* 1\.\.3"):
            loaded(X, torch.tensor(wrong))
    assert loaded(X, torch.tensor(1)).shape == (1, 4)


def test_a_relation_is_checked(tmp_path: Path) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        places = x.nonzero().squeeze(1)
        torch._check(places.shape[0] == y.shape[0])
        return places + y

    rows = {0: torch.export.Dim("a", max=50)}, {0: torch.export.Dim("b", max=50)}
    x, y = torch.tensor([1, 0, 2, 0, 5]), torch.tensor([10, 20, 30])
    loaded = _compiled(model, (x, y), tmp_path, dynamic_shapes=rows)
    assert loaded(x, y).tolist() == [10, 22, 34]
    with pytest.raises(mycc.RunError, match=r"u0 == b does not hold"):
        loaded(x, y[:2])


def test_negative_repeats(tmp_path: Path) -> None:
    loaded = _compiled(lambda x, r: torch.repeat_interleave(x, r), (I, torch.ones(7, dtype=torch.int64)), tmp_path)
    with pytest.raises(mycc.RunError, match="repeats of repeat_interleave must not be negative"):
        loaded(I, torch.tensor([1, 1, -1, 1, 1, 1, 1]))
