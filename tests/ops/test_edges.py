"""What torch does at the edges: empty tensors, NaN and infinities in order, integers that divide by 0 or overflow,
broadcasting, strides of any sign, and indices out of range, which are errors and never memory outside of a buffer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

NAN, INF = float("nan"), float("inf")
F = torch.tensor([[3.0, NAN, -INF, 0.0], [-0.0, 2.0, INF, -1.0]])
I = torch.tensor([7, -7, 2**31 - 1, -(2**31), 0, 5], dtype=torch.int32)  # noqa: E741
J = torch.tensor([2, 2, -1, 3, 4, -3], dtype=torch.int32)
L = torch.tensor([2**63 - 1, -(2**63), 3])
B = torch.tensor([200, 100, 255], dtype=torch.uint8)
E = torch.empty(0, 4)

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "order of NaN": (lambda x: (*x.sort(-1), *x.sort(-1, descending=True), *x.topk(2)), (F,)),
    "extrema of NaN": (lambda x: (x.max(), x.min(), x.argmax(-1), x.argmin(-1), *x.max(0), x.amin(0)), (F,)),
    "median of NaN": (lambda x: (x.median(), x.nanmedian(), *x.median(-1)), (F,)),
    "places beside NaN": (
        lambda x: [torch.searchsorted(x[0].sort()[0], x, right=side) for side in (False, True)],
        (F,),
    ),
    "NaN compared": (lambda x: (x == x, x < 0, x >= x, x != 0, x.maximum(x.flip(0)), torch.fmax(x, x.flip(0))), (F,)),
    "clamp of NaN": (lambda x: (x.clamp(-1, 1), x.relu(), x.sign(), torch.nan_to_num(x)), (F,)),
    "infinities": (lambda x: (x + x.flip(0), x * 0, x.softmax(-1), x.logsumexp(-1), x.cumsum(-1), x.sum(0)), (F,)),
    "signed zeros": (lambda x: (1 / x[:, 0:1], torch.copysign(torch.ones(2, 4), x), x.atan2(x)), (F,)),
    "integer division": (
        lambda a, b: (a // b, a % b, torch.div(a, b, rounding_mode="trunc"), a.fmod(b), a / b),
        (I, J),
    ),
    "integers that a dropout drops": (
        lambda a, x: [torch.ops.aten.native_dropout_backward(g, a > 0, s) for g in (a, x) for s in (0.0, 2.5)],
        (I, I.float()),
    ),
    "integer overflow": (lambda a: (a * 3, a + a, -a, a.abs(), a.sum(), a << 3), (I,)),
    "long overflow": (lambda a: (a + 1, a * 3, a.abs(), a.cumsum(0), a.sum()), (L,)),
    "byte overflow": (lambda a: (a + 100, a * 2, 5 - a, a.sum(), ~a), (B,)),
    "casts": (lambda x: (x[1].bool(), x[1, :2].to(torch.int32), x.half(), (x[0, :1] * 1e5).to(torch.int64)), (F,)),
    "empty": (lambda x: (x + 1, x.sum(0), x.prod(0), x.any(0), x.reshape(2, 0, 2), x @ torch.ones(4, 3)), (E,)),
    "empty statistics": (lambda x: (x.mean(0), x.var(0), x.sum(), x.mean(), x.softmax(-1), x.sort(0)[0]), (E,)),
    "empty joins": (
        lambda x: (torch.cat([x, x]), torch.cat([x, torch.ones(1, 4)]), x.repeat(3, 1), x.T, x[:, :0]),
        (E,),
    ),
    "no channels": (lambda x: torch.nn.functional.conv2d(x, torch.ones(4, 0, 3, 3)), (torch.ones(2, 0, 8, 8),)),
    "empty products": (
        lambda x, y: (x.T @ x, x.T @ torch.ones(0, 2), (x @ y).T * 2, (y @ x.T).T * 2, x.new_ones(2, 0).sum(1)),
        (E, torch.ones(4, 4)),
    ),
    "numbers": (
        lambda x: (x.sum(), x.sort()[0], x.reshape(1, 1), x.argmax(), x.cumsum(0), x.softmax(0)),
        (torch.tensor(2.0),),
    ),
    "broadcasting": (
        lambda a, b: (a + b, torch.where(a > b, a, b), a.expand(3, 2, 1) * b),
        (torch.ones(2, 1), torch.arange(3.0)),
    ),
    "constants that no integer holds": (
        lambda x: tuple(torch.full((9,), v).to(t) + x.to(t) for v in (INF, -INF, NAN, 3e9, 300.7) for t in WHOLE),
        (torch.ones(9),),
    ),
    "sums of truth": (
        lambda x: (
            x.sum(dtype=torch.bool),
            x.sum(0, dtype=torch.bool),
            x.prod(1, dtype=torch.bool),
            x.prod(dtype=torch.bool),
            x.T.sum(0, dtype=torch.bool),
        ),
        (F,),
    ),
    "zero of a running sum": (lambda x: x[1, 0].cumsum(0), (F,)),
    "norms of NaN": (
        lambda x: (*(torch.cdist(x[:, :2], x[:, 1:3], p=p) for p in (0.0, 1.0, INF)), torch.pdist(x, 0)),
        (F,),
    ),
    "labels behind the end": (
        lambda x, t: torch.nn.functional.multilabel_margin_loss(x.reshape(-1), t),
        (F[:, 2:].nan_to_num(1.0, 5.0, -4.0), torch.tensor([2, -1, 3, 1])),
    ),
    "indices from the end": (
        lambda x, i: (x[i], x[:, i[:2]], x.take(i)),
        (torch.arange(20.0).reshape(4, 5), torch.tensor([-1, 0, -4])),
    ),
}

#: name -> (function of (x, index), an index in range, one out of range)
INDEXED: dict[str, tuple[Callable[..., Any], list[int], list[int]]] = {
    "index": (lambda x, i: x[i], [0, -4], [4, 0]),
    "index below": (lambda x, i: x[i], [0, -4], [0, -5]),
    "index_select": (lambda x, i: x.index_select(0, i), [0, 3], [0, 4]),
    "gather": (lambda x, i: x.gather(0, i[:, None]), [0, 3], [-1, 0]),
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), [0, 3], [0, 2**40]),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 1.0), [0, 3], [0, 4]),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), [0, 3], [0, -1]),
    "index_put": (lambda x, i: torch.index_put(x, (i,), x[:2]), [0, 3], [0, -5]),
    "take": (lambda x, i: x.take(i), [0, 11], [0, 12]),
    "index of an expanded tensor": (lambda x, i: x[:1].expand(4, 3)[i], [0, 3], [0, 4]),
    "gather of constants": (lambda x, i: torch.zeros(4, 3).gather(0, i[:, None]) + x[0, 0], [0, 3], [-1, 0]),
    "gather of a number": (lambda x, i: x[0, 0].gather(0, i[0]), [0, 0], [1, 0]),
    "index_select of a number": (lambda x, i: x[0, 0].index_select(0, i[:1]), [0, 0], [1, 0]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 7.0), [0, -4], [0, -5]),
    "max_unpool": (lambda x, i: torch.nn.functional.max_unpool1d(x[:, :2], i.expand(4, 2), 2), [0, 3], [0, -1]),
    "put": (lambda x, i: x[:1, :1].put(i[:1], x[0, :1]), [-1, 0], [1, 0]),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    entries: dict[str, Any] = {f"case{i}": case for i, case in enumerate(CASES.values())}
    x = torch.arange(12.0).reshape(4, 3)
    for i, (function, inside, _) in enumerate(INDEXED.values()):
        entries[f"index{i}"] = function, (x, torch.tensor(inside))
    entries["strides"] = (lambda a, b: (a * 2 + b, a.sum(0), a @ b.T)), (torch.ones(4, 3), torch.ones(4, 3))
    return mycc.load(mycc.compile(entries, out=tmp_path_factory.mktemp("edges") / "edges.pkg", verify=False))


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str, package: mycc.Model) -> None:
    function, arguments = CASES[name]
    found = package.entry(f"case{list(CASES).index(name)}")(*arguments)
    for i, (y, r) in enumerate(zip(pytree.tree_leaves(found), pytree.tree_leaves(function(*arguments)), strict=True)):
        torch.testing.assert_close(y, r, equal_nan=True, msg=lambda m, i=i: f"result {i}: {m}")
        if y.is_floating_point() and "median" not in name:  # which of two zeros is in the middle is open
            assert torch.equal(torch.signbit(y)[y == 0], torch.signbit(r)[r == 0]), f"result {i}: sign of zero"


@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range(name: str, package: mycc.Model) -> None:
    function, inside, outside = INDEXED[name]
    entry = package.entry(f"index{list(INDEXED).index(name)}")
    x = torch.arange(12.0).reshape(4, 3)
    torch.testing.assert_close(entry(x, torch.tensor(inside)), function(x, torch.tensor(inside)))
    with pytest.raises(mycc.RunError, match=r"index out of range in .*test_edges.py:\d+"):
        entry(x, torch.tensor(outside))
    torch.testing.assert_close(entry(x, torch.tensor(inside)), function(x, torch.tensor(inside)))


def test_strides_of_any_sign(package: mycc.Model, tmp_path: Path) -> None:
    base = np.random.default_rng(0).standard_normal((8, 9)).astype(np.float32)
    views = {
        "negative": base[3::-1, 2::-1],
        "every other": base[::2, ::3],
        "zero": np.broadcast_to(base[:1, :3], (4, 3)),
        "transposed": base[:3, :4].T,
        "offset": base[4:, 5:8],
        "negative and zero": np.broadcast_to(base[::-2, :1], (4, 3)),
    }
    for name, a in views.items():
        b = views["offset"]
        found = package.entry("strides")(a, b)
        for y, r in zip(found, (a * 2 + b, a.sum(0), a @ b.T), strict=True):
            np.testing.assert_allclose(y, r, rtol=1e-5, atol=1e-5, err_msg=name)
