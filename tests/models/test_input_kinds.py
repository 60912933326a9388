"""Every kind of argument and result that a signature can hold: with torch, with numpy, in a process without torch."""

from __future__ import annotations

import enum
import pickle
import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import mycc
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

HERE = Path(__file__).parent


class Box(NamedTuple):
    low: Any
    high: Any


Pair = namedtuple("Pair", "first second")


@dataclass
class State:
    hidden: Any
    steps: Any = 0
    extra: Any = None


torch.export.register_dataclass(State)


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Times(enum.IntEnum):
    TWO = 2


X, Y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)


def _mixed(a: Any, *rest: Any, flag: bool, **more: Any) -> Any:
    out = a + sum(rest) + (1 if flag else 0)
    return {"out": out, **{k: v * 2 for k, v in more.items()}}


def _constants(x: Any, n: int, f: float, b: bool, s: str, nothing: None) -> Any:
    assert nothing is None
    return x * n + f if b and s == "mean" else x, n, f, b, s, None


#: name -> (function, args, kwargs)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "nested tuples": (lambda t: ((t[0] + t[1][0], (t[1][1][0],)), ()), ((X, (Y, (X,))),), {}),
    "lists": (lambda ts: [ts[0] * 2, [ts[1]], []], ([X, Y],), {}),
    "dicts": (lambda d: {"b": d["a"] + d["b"]["c"], "a": {3: d["a"]}}, ({"a": X, "b": {"c": Y}},), {}),
    "ordered dicts": (lambda d: OrderedDict(z=d["y"], a=d["x"]), (OrderedDict(y=X, x=Y),), {}),
    "default dicts": (lambda d: d["k"] + 1, (defaultdict(list, k=X),), {}),
    "named tuples": (lambda b: Box(b.high - b.low, b.low), (Box(X, Y),), {}),
    "other named tuples": (lambda p: Pair(p.second, p.first), (Pair(X, Y),), {}),
    "dataclasses": (lambda s: State(s.hidden * 2, s.steps + 1, None), (State(X, Y),), {}),
    "dataclasses with a field that is None": (lambda s: State(s.hidden, None, s.hidden + 1), (State(X, Y),), {}),
    "dataclasses with constants": (lambda s: State(s.hidden * s.steps, s.steps), (State(X, 3),), {}),
    "dataclasses inside": (lambda d: [d["s"][0].hidden + 1], ({"s": (State(X, None),)},), {}),
    "constants": (_constants, (X, 3, 0.5, True, "mean", None), {}),
    "constants inside": (lambda c: c["x"] * c["n"][0], ({"x": X, "n": (2, "unused", None)},), {}),
    "members of enums": (
        lambda x, mode, times: x.sum(0) if mode is Mode.SUM else x * int(times),
        (X, Mode.MEAN, Times.TWO),
        {},
    ),
    "dtypes": (lambda x, to, device: x.to(to).to(device), (X, torch.float64, torch.device("cpu")), {}),
    "numbers that are not finite": (lambda x, low: (x.masked_fill(x > 2, low), low), (X, float("-inf")), {}),
    "keywords": (_mixed, (X, Y, Y), {"flag": True, "k": X, "j": Y}),
    "keywords alone": (lambda *, x, y=None: x if y is None else x + y, (), {"x": X, "y": Y}),
    "the same tensor twice": (lambda a, b: (a + b, a * b), (X, X), {}),
    "one storage": (lambda a, b: a.sum() + b, (X, X[0]), {}),
    "results twice": (lambda x: (lambda y: (y, y, [y]))(x + 1), (X,), {}),
    "a result and its view": (lambda x: (lambda y: (y, y[0], y.T, y.reshape(-1)))(x + 1), (X,), {}),
    "an input as a result": (lambda x, y: (y, x, x), (X, Y), {}),
    "a view of an input": (lambda x: (x[1:], x.T, x.expand(2, 2, 3)), (X,), {}),
    "constants as results": (lambda x: (torch.full((2,), 7), torch.arange(3), torch.tensor([1.5, 2.0])), (X,), {}),
    "numbers as results": (
        lambda x: (x.shape[0], x.dim(), float(x.shape[1]), "text", x.shape[0] == 2, x + 1),
        (X,),
        {},
    ),
    "torch's own results": (lambda x: (x.max(1), x.topk(2)), (X,), {}),
    "sizes as results": (lambda x: (x + 1, x.shape, (x.size(),)), (X,), {}),
    "no tensor at all": (lambda: torch.arange(4) * 2, (), {}),
    "empty": (lambda x, y: (x, torch.cat([x, y[:0]]), y.sum(), x.sum(0)), (torch.empty(0, 3), Y), {}),
    "zero-dimensional": (lambda x, y: (x + y, x * 2, y.sum()), (torch.tensor(2.0), Y), {}),
    "size one": (lambda x, y: (x + y, y - x.squeeze(), x.expand(4, 3)), (torch.ones(1, 3), torch.ones(2, 1)), {}),
    "integers and booleans": (
        lambda i, b: (i * 2, ~b, torch.where(b, i, -i)),
        (torch.arange(3), torch.arange(3) > 0),
        {},
    ),
}
NAMES = {name: f"case{i}" for i, name in enumerate(CASES)}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {NAMES[name]: case for name, case in CASES.items()}
    return mycc.compile(entries, out=tmp_path_factory.mktemp("kinds") / "kinds.pkg")


def as_numpy(value: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf, value)


def plain(value: Any) -> Any:
    """Containers alone: classes of results as (class name, fields)."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return np.asarray(value)
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple) and (hasattr(value, "_fields") or type(value).__module__ == "torch.return_types"):
        return type(value).__name__, [plain(v) for v in value]
    if isinstance(value, State) or hasattr(value, "to_tuple"):
        return type(value).__name__, [plain(getattr(value, f)) for f in ("hidden", "steps", "extra")]
    return type(value)(map(plain, value)) if isinstance(value, (tuple, list)) else value


def compare(found: Any, wanted: Any) -> None:
    found, wanted = plain(found), plain(wanted)
    left, right = pytree.tree_flatten(found), pytree.tree_flatten(wanted)
    assert str(left[1]).replace("OrderedDict", "dict") == str(right[1]).replace("OrderedDict", "dict")
    for y, r in zip(left[0], right[0], strict=True):
        assert type(y) is type(r)
        if isinstance(r, np.ndarray):
            assert (y.shape, y.dtype) == (r.shape, r.dtype)
            np.testing.assert_allclose(y, r, rtol=1e-6)
        else:
            assert y == r


@pytest.mark.parametrize("name", CASES)
def test_with_torch(name: str, package: Path) -> None:
    function, args, kwargs = CASES[name]
    found = mycc.load(package).entry(NAMES[name])(*args, **kwargs)
    compare(found, function(*args, **kwargs))
    if args or kwargs:
        assert all(isinstance(t, torch.Tensor) for t in pytree.tree_leaves(found) if hasattr(t, "shape"))


@pytest.mark.parametrize("name", CASES)
def test_with_numpy(name: str, package: Path) -> None:
    function, args, kwargs = CASES[name]
    found = mycc.load(package).entry(NAMES[name])(*as_numpy(args), **as_numpy(kwargs))
    compare(found, function(*args, **kwargs))


def test_without_torch(package: Path, tmp_path: Path) -> None:
    """Dataclasses may be given as anything with their fields, here as dictionaries; enums and dtypes as text."""

    def sendable(value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, (torch.dtype, torch.device)):
            return str(value)
        if isinstance(value, State):
            return {name: sendable(getattr(value, name)) for name in ("hidden", "steps", "extra")}
        if isinstance(value, dict):
            return {key: sendable(v) for key, v in value.items()}
        if isinstance(value, (tuple, list)):
            return [sendable(v) for v in value] if isinstance(value, list) else tuple(map(sendable, value))
        return value.numpy() if isinstance(value, torch.Tensor) else value

    calls = {NAMES[name]: (sendable(args), sendable(kwargs)) for name, (_, args, kwargs) in CASES.items()}
    (tmp_path / "calls.pkl").write_bytes(pickle.dumps(calls))
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r}); import without_torch_hook, pickle, mycc, numpy as np
model = mycc.load({str(package)!r})
found = {{}}
def leaves(value):
    if isinstance(value, dict) or hasattr(value, "to_tuple"):
        value = value.values()
    if isinstance(value, (tuple, list)) or not (hasattr(value, "shape") or np.isscalar(value) or value is None):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]
for name, (args, kwargs) in pickle.load(open("calls.pkl", "rb")).items():
    found[name] = leaves(model.entry(name)(*args, **kwargs))
pickle.dump(found, open("found.pkl", "wb"))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = pickle.loads((tmp_path / "found.pkl").read_bytes())
    for name, (function, args, kwargs) in CASES.items():
        wanted = [v for v in pytree.tree_leaves(function(*args, **kwargs)) if v is not None]
        own = [v for v in found[NAMES[name]] if v is not None]
        assert len(own) == len(wanted), name
        if not isinstance(function(*args, **kwargs), dict):
            for y, r in zip(own, wanted, strict=True):
                assert y == r if isinstance(r, str) else np.allclose(y, r), name


def test_constants_by_name(package: Path) -> None:
    entry = mycc.load(package).entry(NAMES["constants"])
    compare(entry(X, n=3, f=0.5, b=True, s="mean", nothing=None), entry(X, 3, 0.5, True, "mean", None))
    with pytest.raises(mycc.InputError, match="argument 'n' was compiled as the constant 3, but is 4"):
        entry(X, n=4, f=0.5, b=True, s="mean", nothing=None)
    nested = mycc.load(package).entry(NAMES["nested tuples"])
    compare(nested(t=(X, (Y, (X,)))), nested((X, (Y, (X,)))))


def test_examples_of_one_memory_are_two_inputs(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 3)

    def model(a: Any, b: Any, c: Any, w: Any) -> Any:
        return layer(a), b - c, a, b, c, w - layer.weight

    given = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3), torch.randn(3, 3)
    loaded = mycc.load(mycc.compile(model, (X, X, X[0], layer.weight.detach()), out=tmp_path / "one.pkg"))
    given = torch.randn(2, 3), *given[1:]
    given = given[0], given[0] + 1, given[2], given[3]
    for args in (given, (X, X, X[0], given[3])):
        for found, wanted in zip(loaded(*args), model(*args), strict=True):
            torch.testing.assert_close(found, wanted)


def test_results_do_not_share_memory(package: Path) -> None:
    y, row, turned, flat = mycc.load(package).entry(NAMES["a result and its view"])(X)
    y.zero_()
    assert row.tolist() == [1, 2, 3]
    assert turned.shape == (3, 2)
    assert flat.sum() == 21


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "message"),
    [
        ("nested tuples", ((X, (Y,)),), {}, r"argument '\w+ ?\w*\[1\]' has to have 2 elements, but has 1"),
        ("dicts", ({"a": X},), {}, r"has to have keys 'a', 'b', but has keys 'a'"),
        ("dataclasses", ({"hidden": X},), {}, r"has to be like .*State with a field 'steps'"),
        ("constants", (X, 4, 0.5, True, "mean", None), {}, r"was compiled as the constant 3, but is 4"),
        ("constants", (X, 3, 0.5, True, "sum", None), {}, r"was compiled as the constant 'mean', but is 'sum'"),
        ("constants", (X, 3, 0.5, 1, "mean", None), {}, r"was compiled as the constant True, but is 1"),
        (
            "members of enums",
            (X, Mode.SUM, Times.TWO),
            {},
            r"'mode' was compiled as the constant Mode.MEAN, but is a Mode",
        ),
        ("dtypes", (X, torch.float16, "cpu"), {}, r"was compiled as the constant torch.float64, but is a dtype"),
        ("numbers that are not finite", (X, 1.0), {}, r"was compiled as the constant -inf, but is 1.0"),
        ("keywords", (X, Y, Y), {"flag": True, "k": X}, r"misses argument 'j'"),
        (
            "keywords alone",
            (),
            {"x": X, "y": None},
            r"y has to be a numpy array, a torch tensor or have DLPack, not a NoneType",
        ),
        ("lists", ([X, "no"],), {}, r"has to be a tensor, not 'no'"),
    ],
)
def test_refusals(name: str, args: Any, kwargs: Any, message: str, package: Path) -> None:
    with pytest.raises(mycc.InputError, match=message):
        mycc.load(package).entry(NAMES[name])(*args, **kwargs)
