"""Functions of torch that look at values have forms that are exported, and compute the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.capture import capture
from mycc.compiler.capture.by_shape import _FORMS, bound
from mycc.compiler.model.source_lines import place_of
from mycc.compiler.verify import eager
from mycc.runtime.errors import CompileError
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


X, TALL, WIDE, SQUARE, VECTOR = normal(4, 6), normal(6, 3), normal(3, 6), normal(4, 4), normal(5)
LOW_RANK = normal(6, 1) @ normal(1, 3)
COUNTS = torch.tensor([1, 2, 0, 3, 1, 1])
WEIGHTS = normal(6).abs()
Z = normal(4, 6, dtype=torch.complex64)
FIRST = torch.tensor(-3)
MASK = X > 0
CHOSEN, OF_ROW = int(MASK.sum()), int(MASK[0].sum())


def write_masked(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Masks over all, the last and the first dimensions, with one value, a row for each element, and the elements."""
    a, b, c, d = x.clone(), x.clone(), x.clone(), x.clone()
    a[m] = torch.arange(CHOSEN) + 0.5
    b[:, m[0]] = x[:, :OF_ROW] * 2
    c[m[:, 0]] = x[0]
    c[..., m[1]] = x[:, :1]
    d[m] *= 3
    return a, b, c, d


def write_moved(x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A slice of one row, and two whose ends are changed after their sums."""
    y, z, w = x.clone(), x.clone(), x.clone()
    y[a : a + 1] = 3.0
    end, start = a + 1, a.clone()
    stop = start + 1
    end += 1
    start -= 1
    z[a:end] = 7.0
    w[start:stop] = 5.0
    return y, z, w


def into_views(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Results of linear algebra in every second column of zeros."""
    n = len(a)
    places = [torch.zeros(n, 2 * k) for k in (n, n, 2, 2)]
    views = [p[:, ::2] for p in places]
    torch.linalg.cholesky(a, out=views[0])
    torch.linalg.inv(a, out=views[1])
    torch.linalg.solve(a, b, out=views[2])
    rest = (torch.empty(0), torch.empty(0, dtype=torch.int64), torch.empty(0))
    torch.linalg.lstsq(a, b, driver="gels", out=(views[3], *rest))
    return places


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "equal": (lambda x, y: torch.stack([torch.tensor(x.equal(y)), torch.tensor(torch.equal(x, x))]), (X, X + 1)),
    "allclose": (lambda x: torch.tensor(torch.allclose(x, x * (1 + 1e-6))), (X,)),
    "cov": (lambda x: (x.cov(), torch.cov(x, correction=0), x[0].cov(), x[:, :1].cov(correction=2)), (X,)),
    "cov_weights": (
        lambda x, f, a: (x.cov(fweights=f), x.cov(aweights=a), x.cov(fweights=f, aweights=a, correction=2)),
        (X, COUNTS, WEIGHTS),
    ),
    "cov_complex": (lambda x: (x.cov(), x.corrcoef()), (Z,)),
    "cov_integers": (lambda x: torch.cov(x), (torch.arange(12).reshape(3, 4) % 5,)),
    "corrcoef": (lambda x: (x.corrcoef(), torch.corrcoef(x[0])), (X,)),
    "combinations": (lambda x: (torch.combinations(x, 3), torch.combinations(x, 2, with_replacement=True)), (VECTOR,)),
    "combinations_none": (lambda x: (torch.combinations(x, 0), torch.combinations(x[:1], 2)), (VECTOR,)),
    "narrow": (
        lambda x, first: (x.narrow(0, first, 2), torch.narrow(x, 1, first + 4, 3), x.narrow(1, 2, 0)),
        (X, FIRST),
    ),
    "one_hot": (lambda i: F.one_hot(i), (COUNTS,)),
    "a row and more": (write_moved, (X, torch.tensor(1))),
    "masks": (write_masked, (X, MASK)),
    "masked_scatter": (
        lambda x, m, v: (x.masked_scatter(m, v), torch.masked_scatter(x, m[0], v), x.clone().masked_scatter_(m, x[m])),
        (X, MASK, normal(30)),
    ),
    "mean of complex": (lambda z: (z.mean(), z.mean(0), torch.mean(z, dim=(0, 1), keepdim=True)), (Z,)),
    "tensor_split": (lambda x, i: torch.tensor_split(x, i, 1), (X, torch.tensor([1, 4]))),
    "gaussian": (lambda x: (F.gaussian_nll_loss(x, x * 2, x * x, full=True), F.gaussian_nll_loss(x, x, 0.5)), (X,)),
    "gaussian_rows": (lambda x: F.gaussian_nll_loss(x, x * 2, x[:, 0] ** 2, reduction="none"), (X,)),
    **{
        f"lstsq_{driver}": (
            lambda t, w, s, d=driver: [
                list(torch.linalg.lstsq(a, b, driver=d)) for a, b in ((t, t[:, :2]), (w, w[:, :1]), (s, s))
            ],
            (TALL, WIDE, SQUARE),
        )
        for driver in ("gels", "gelsy", "gelsd", "gelss")
    },
    "lstsq_low_rank": (lambda a, b: list(torch.linalg.lstsq(a, b))[:3], (LOW_RANK, normal(6, 2))),
    "lstsq_complex": (lambda a: torch.linalg.lstsq(a.mT, a.mT[:, :2] + 1).solution, (Z,)),
    "into views": (into_views, (SQUARE @ SQUARE.mT + torch.eye(len(SQUARE)), SQUARE[:, :2])),
    "lstsq_batch": (lambda a, b: torch.linalg.lstsq(a, b).solution, (normal(2, 5, 3), normal(2, 5))),
}


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize("name", CASES)
def test_forms_compute_the_same(name: str) -> None:
    function, inputs = CASES[name]
    graph = capture(function, inputs)
    got, want = eager(graph, inputs), pytree.tree_leaves(function(*inputs))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4, equal_nan=True)


def keyword_calls(function: Any) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Positional arguments and names of the others, as torch takes them: those of each overload, none left out."""
    name, module = function.__name__, getattr(function, "__module__", None)
    method = getattr(function, "__objclass__", None) is not None or module == "torch._tensor"
    packet = getattr(aten, name, None)
    if name.startswith("__"):
        return
    if inspect.isfunction(function) or packet is None:  # of Python; unique and its like hide their signature
        seen = inspect.signature(getattr(torch.Tensor, name, None) or function)
        names = [[p.name for p in seen.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]]
    else:
        schemas = [getattr(packet, o)._schema for o in packet.overloads()]
        types = [(s, [str(a.type) for a in s.arguments]) for s in schemas if s.is_mutable == name.endswith("_")]
        plain = [s for s, t in types if any("Tensor" in x for x in t) or name.endswith("space")]
        schemas = [s for s in plain if not any(a.name == "dim" and "str" in str(a.type) for a in s.arguments)]
        assert schemas
        names = [[a.name for a in s.arguments if a.name not in CREATION] for s in schemas]
    for each in filter(None, names):  # torch.einsum takes all by position
        first, rest = each[0], each[1:]
        tensor = first in ("self", "input")
        if method:
            yield [first], {n: n for n in rest}
        else:
            yield [], {n: n for n in ["input" if tensor else first, *rest]}
            if tensor:
                yield [first], {n: n for n in rest}


CREATION = ("layout", "device", "pin_memory", "out")


@pytest.mark.parametrize("function", _FORMS, ids=lambda f: f"{getattr(f, '__module__', None) or 'Tensor'}.{f.__name__}")
def test_forms_take_torchs_names(function: Any) -> None:
    form = _FORMS[function]
    for args, kwargs in keyword_calls(function):
        assert bound(form, args, kwargs) is not None, (args, kwargs)


NAMED: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: torch.mean(input=x, dim=1),
    "mean of an axis": lambda x: torch.mean(x, axis=1, keepdims=True),
    "add": lambda x: torch.add(input=x, other=x, alpha=2),
    "add into": lambda x: torch.add(x, x, out=torch.empty(4, 6)),
    "mean into": lambda x: torch.mean(x, 1, out=torch.empty(4)),
    "tensor_split": lambda x: torch.tensor_split(x, indices=(1, 3), dim=1),
    "sections": lambda x: (x.tensor_split(sections=2, dim=1), torch.tensor_split(input=x, sections=2)),
    "places": lambda x: torch.tensor_split(x, tensor_indices_or_sections=torch.tensor([1, 2]), dim=1),
    "one_hot": lambda x: F.one_hot(input=(x[0] > 0).long(), num_classes=2),
    "bincount": lambda x: torch.bincount(input=(x[0] > 0).long(), weights=x[1].abs(), minlength=3),
    "masked_scatter": lambda x: torch.masked_scatter(input=x, mask=x > 0, source=x * 2),
    "narrow": lambda x: (
        torch.narrow(input=x, dim=1, start=1, length=2),
        x.narrow(dim=0, start=torch.tensor(1), length=2),
    ),
    "unique": lambda x: torch.unique(input=x, sorted=True, return_counts=True),
    "cov": lambda x: torch.cov(input=x, correction=0),
    "allclose": lambda x: torch.tensor(torch.allclose(input=x, other=x)),
    "lstsq": lambda x: torch.linalg.lstsq(input=x.mT, b=x.mT).solution,
    "linspace": lambda x: x[0] + torch.linspace(start=0, end=1, steps=6),
}


def _nonzero(x: torch.Tensor) -> torch.Tensor:
    found = torch.empty(0, dtype=torch.int64)
    torch.nonzero(x > 0, out=found)
    return found + 1


def _masked(x: torch.Tensor) -> torch.Tensor:
    found = torch.empty(3)
    return torch.masked_select(x, x > 0, out=found) + found.sum()


NAMED |= {"nonzero into": _nonzero, "masked_select into": _masked}


@pytest.mark.parametrize("name", NAMED)
def test_calls_by_name_compute_the_same(name: str) -> None:
    function = NAMED[name]
    got, want = eager(capture(function, (X,)), (X,)), pytree.tree_leaves(function(X))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_what_torch_refuses_is_refused() -> None:
    graph = capture(lambda x: F.gaussian_nll_loss(x, x, x), (X,))
    with pytest.raises(RuntimeError, match="var has negative entry"):
        eager(graph, (X,))


def test_a_tensor_of_the_caller_is_not_resized() -> None:
    with pytest.raises(CompileError, match=r"gives other memory to a tensor(.|\n)*torch.nonzero\(x, out=y\)"):
        capture(lambda x, y: torch.nonzero(x, out=y) + 1, (X, torch.zeros(0, 2, dtype=torch.int64)))


def test_residuals_that_torch_has_not_are_nan() -> None:
    graph = capture(lambda a: torch.linalg.lstsq(a, a, driver="gelsd").residuals, (LOW_RANK,))
    assert eager(graph, (LOW_RANK,))[0].isnan().all()


def test_unique_lines_along_the_last_dimension() -> None:
    graph = capture(lambda x: x.unique_consecutive(dim=-1), (X,))
    assert str(graph.outputs[0].shape[0]) == "4"


def test_lines_are_the_models() -> None:
    graph = capture(lambda x: x.cov(), (X,))  # here
    places = {place_of(n) for n in graph.module.graph.nodes if n.op == "call_function"}
    assert len(places) == 1
    assert places.pop().endswith("# here")


def of_sizes(x: torch.Tensor) -> Any:
    """Halves of what is twice as long, and as many rows as a number says that is computed from the length."""
    length = torch.as_tensor(data=3 * len(x) / 4).ceil().long()
    halves = torch.cat([x, x * 2]).chunk(2)
    twice = x.repeat_interleave(2, 0, output_size=2 * len(x)), x.repeat_interleave(2, output_size=2 * x.numel())
    uneven = torch.repeat_interleave(x[0], COUNTS, output_size=8), torch.repeat_interleave(COUNTS)
    return (
        *halves, *twice, *uneven, *torch.chunk(input=x.T, chunks=4, dim=0), x[:length], torch.as_tensor(x.shape[0])
    )  # fmt: skip


def test_dynamic_sizes_are_not_fixed() -> None:
    graph = capture(of_sizes, (X,), dynamic_shapes=({0: torch.export.Dim("n", max=64)},))
    for n in (1, 2, 7):
        got, want = eager(graph, (normal(n, 6),)), of_sizes(normal(n, 6))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w)


def test_a_mask_takes_as_many_values_as_there_are() -> None:
    def write(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[m] = v
        return y

    v = torch.arange(float(CHOSEN))
    for function, message in ((write, "number of values"), (torch.masked_scatter, "fewer values")):
        graph = capture(function, (X, MASK, v))
        assert torch.equal(eager(graph, (X, MASK, v))[0], function(X, MASK, v))
        with pytest.raises(RuntimeError, match=message):
            eager(graph, (X, torch.ones_like(MASK), v))
    with pytest.raises(RuntimeError, match=r"\(test_by_shape.py:\d+\)"):
        eager(capture(write, (X, MASK, v)), (X, ~MASK & MASK, v))


def test_the_order_of_a_long_product_fixes_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """opt_einsum, where it is installed, makes numbers of the sizes; here it gets those of the example."""
    seen = []

    class Installed:
        @staticmethod
        def contract_path(equation: str, *operands: Any, shapes: bool = False, optimize: str = "") -> Any:
            sizes = [int(size) for x in operands for size in (x if shapes else x.shape)]
            seen.append((shapes, sizes))
            return [(1, 2), (0, 1)], ""

    monkeypatch.setattr(torch.backends.opt_einsum, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.opt_einsum, "get_opt_einsum", lambda: Installed)
    monkeypatch.setattr(torch.backends.opt_einsum, "_opt_einsum", Installed)
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", True)
    a, b = normal(4, 6, 2), normal(6, 2, 2)
    n = torch.export.Dim("n", min=1, max=50)
    shapes = ({1: n}, {0: n})
    graph = capture(lambda d, c: torch.einsum("pni,nij,pnj->pn", d, c, d), (a, b), dynamic_shapes=shapes)
    assert seen == [(True, [4, 6, 2, 6, 2, 2, 4, 6, 2])]
    (call,) = [node for node in graph.module.graph.nodes if node.target is aten.einsum.default]
    assert call.kwargs["path"] == [1, 2, 0, 1]
    x, y = normal(4, 9, 2), normal(9, 2, 2)
    torch.testing.assert_close(graph.module(x, y)[0], (x.unsqueeze(-2) @ y @ x.unsqueeze(-1)).squeeze(-1).squeeze(-1))
