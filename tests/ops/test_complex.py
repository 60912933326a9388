"""Complex numbers through the whole compiler: functions at the edges, linear algebra, views, inputs and outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.verify import verify_package

from ..helpers.builds import QUICK

C64, C128 = torch.complex64, torch.complex128
POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 30.0, -30.0)
EDGES = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)

#: functions at every pair of POINTS: both sides of each branch cut, signed zeros
FUNCTIONS = (
    "exp log log2 log10 log1p expm1 sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid "
    "reciprocal square abs angle sgn isnan isfinite"
).split()
#: at every pair of EDGES as torch has them
AT_EDGES = ("exp", "log", "sqrt", "abs", "angle", "isnan", "isinf", "isfinite")


def plane(points: tuple[float, ...], dtype: torch.dtype) -> torch.Tensor:
    pairs = [complex(a, b) for a, b in itertools.product(points, points)]
    return torch.tensor(pairs, dtype=dtype)


PLACES = torch.tensor([[0, 2, 2, 0, 2], [2, 2, 2, 2, 2], [0, 1, 2, 0, 1], [1, 0, 1, 0, 1]]).T


def normal(*shape: int, dtype: torch.dtype = C64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.complex(*(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "ri")).to(dtype)


A, B, TALL, X, Y = normal(2, 5, 5), normal(2, 5, 3), normal(6, 4), normal(3, 4), normal(4, 5)
REAL = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
EYE = torch.eye(5)
PIVOTED = normal(6, 7, 7) * (1 - torch.eye(7))  # its pivots are blocks of 2 x 2 and far away


def factors(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> torch.Tensor:
    """What a decomposition determines: the product, that the factors are unitary, the values."""
    n = s.shape[-1]
    product = (u[..., :n] * s.unsqueeze(-2)) @ vh[..., :n, :]
    return torch.cat([product.flatten(), (u.mH @ u).flatten(), (vh @ vh.mH).flatten(), s.flatten() + 0j])


def eigh(x: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(x + x.mH)
    return factors(vectors, values, vectors.mH)


def eig(x: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eig(x)
    sums = [(values**k).sum(-1) for k in range(1, x.shape[-1] + 1)]
    return flat([*sums, (vectors * values.unsqueeze(-2)) @ torch.linalg.inv(vectors), vectors.abs().square().sum(-2)])


def ldl(x: torch.Tensor, b: torch.Tensor, hermitian: bool) -> torch.Tensor:
    whole, pivots = torch.linalg.ldl_factor(x + (x.mH if hermitian else x.mT), hermitian=hermitian)
    return flat([whole, pivots, torch.linalg.ldl_solve(whole, pivots, b, hermitian=hermitian)])


def flat(parts: Any) -> torch.Tensor:
    return torch.cat([p.flatten() + 0j for p in parts])


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "product": (lambda x, y: x @ y, (X, Y)),
    "mixed": (lambda x, r: (x * r + 2j * x) / (r - 1.5j) - 3, (X, REAL)),
    "pow": (lambda x, y: flat([x**2, x**-1, x**0.3, x ** y[:3, :4], 2.0**x]), (X, Y)),
    "sums": (lambda x: flat([x.sum(), x.mean(0), x.prod(1), x.cumsum(0), x.cumprod(1), x.var(0), x.std()]), (X,)),
    "views": (lambda x: torch.cat([x.mH.flatten(), x[1:].conj().flip(0).flatten(), x.real.flatten() + 0j]), (X,)),
    "parts": (lambda x: torch.view_as_complex(torch.view_as_real(x).flip(-1)), (X,)),
    "lookups": (lambda x: torch.where(x.real > 0, x, x[:, [1, 0, 3, 2]]).scatter(1, (x.imag > 0).long(), 1j), (X,)),
    "reductions_at_places": (
        lambda x, s: flat(
            [x.scatter_reduce(0, PLACES, s, how, include_self=own) for how in ("sum", "mean") for own in (True, False)]
        ),
        (X, normal(5, 4)),
    ),
    "selections": (
        lambda x: flat([x[x.real > 0], x.repeat_interleave(torch.tensor([2, 0, 1]), 0), (x * (x.real > 0)).nonzero()]),
        (X,),
    ),
    "polar": (lambda r: torch.polar(r.abs(), r) + torch.complex(r, 2 * r), (REAL,)),
    "conv": (lambda x, w: torch.nn.functional.conv1d(x, w), (normal(2, 3, 9), normal(4, 3, 3))),
    "comparisons": (lambda x: (x == x.conj()) | (x != x), (plane((0.0, 1.0, math.nan), C64),)),
    "solve": (lambda a, b: torch.linalg.solve(a, b), (A + 3 * EYE, B)),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True), (A + 3 * EYE, B)),
    "lu": (lambda a: flat(torch.linalg.lu(a)), (A,)),
    "slogdet": (lambda a: flat([*torch.linalg.slogdet(a), torch.linalg.det(a)]), (A,)),
    "qr": (lambda a: flat(torch.linalg.qr(a, mode="complete")), (TALL,)),
    "svd": (lambda a: factors(*torch.linalg.svd(a, full_matrices=True)), (TALL,)),
    "svd_wide": (lambda a: factors(*torch.linalg.svd(a.mT, full_matrices=False)), (TALL,)),
    "eigh": (eigh, (A,)),
    "cholesky": (lambda a: flat([torch.linalg.cholesky(a @ a.mH + EYE, upper=u) for u in (True, False)]), (A,)),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mH + EYE)), (A, B)),
    "pinv": (lambda a: torch.linalg.pinv(a), (TALL,)),
    "eig": (eig, (A,)),
    "ldl": (lambda x, b: ldl(x, b, False), (PIVOTED, normal(6, 7, 2))),
    "ldl_hermitian": (lambda x, b: ldl(x, b, True), (PIVOTED, normal(6, 7, 2))),
    "sums_of_nothing": (lambda x: flat([x.logsumexp(0), x.logsumexp((0, 1)), x.sum(0), x.prod(0)]), (X[:0],)),
    "matrix_exp": (lambda a: torch.linalg.matrix_exp(a), (A,)),
    **{f"double_{name}": (getattr(torch, name), (plane(POINTS, C128),)) for name in ("exp", "log", "sqrt", "tanh")},
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("complex")
    points, edges = plane(POINTS, C64), plane(EDGES, C64)
    entries: dict[str, Any] = dict(CASES)
    entries.update({f"of_{name}": (getattr(torch, name), (points,)) for name in FUNCTIONS})
    entries.update({f"edge_{name}": (getattr(torch, name), (edges,)) for name in AT_EDGES})
    options = {"verify": False, "options": {"build.flags": QUICK}}
    return mycc.load(mycc.compile(entries, out=folder / "complex.pkg", **options))


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, package: Any) -> None:
    function, args = CASES[name]
    wide = [a.to(C128) if a.is_complex() else a.double() for a in args]
    want, got = function(*wide), package.entry(name)(*args)
    assert got.dtype == function(*args).dtype
    torch.testing.assert_close(got, want.to(got.dtype).resolve_conj(), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_both_sides_of_their_cuts(name: str, package: Any) -> None:
    points = plane(POINTS, C64)
    want = getattr(torch, name)(points)
    torch.testing.assert_close(package.entry(f"of_{name}")(points), want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", AT_EDGES)
def test_infinities_are_those_of_torch(name: str, package: Any) -> None:
    points = plane(EDGES, C64)
    got, want = package.entry(f"edge_{name}")(points), getattr(torch, name)(points)
    if not want.is_complex():
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
        return
    for at, g, w in zip(points.tolist(), got.tolist(), want.tolist(), strict=True):
        if any(map(math.isnan, (w.real, w.imag))):  # C leaves signs and the other part open
            assert any(map(math.isnan, (g.real, g.imag))), (at, g, w)
        else:
            assert np.isclose([g.real, g.imag], [w.real, w.imag], rtol=1e-6).all(), (at, g, w)


class Rotary(torch.nn.Module):
    """A complex constant, complex inputs and outputs, a dynamic dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = torch.nn.Buffer(torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.turn, x


def test_inputs_outputs_and_constants(tmp_path: Any) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    path = mycc.compile(Rotary(), (X,), out=tmp_path / "rotary.pkg", dynamic_shapes={"x": {0: rows}})
    package, model = mycc.load(path), Rotary()
    assert [p.type for p in package.signature.inputs] == ["c64[rows, 4]"]
    for x in (X, normal(7, 4), normal(7, 8)[:, ::2], normal(4, 5).mT.contiguous(), normal(4, 5).conj().T):
        turned, same = package(x)
        torch.testing.assert_close(turned, model(x)[0].resolve_conj())
        assert torch.equal(same, x.resolve_conj())
    turned, _ = package(X.numpy())
    assert turned.dtype == np.complex64
    np.testing.assert_allclose(turned, model(X)[0].numpy(), rtol=1e-6)
    with pytest.raises(mycc.InputError, match="c128"):
        package(X.to(C128))
    assert verify_package(path).ok


class Conjugates(torch.nn.Module):
    """Constants of one memory that torch reads as it is, conjugated and negated."""

    def __init__(self) -> None:
        super().__init__()
        turn = torch.polar(torch.ones(4), torch.arange(4.0))
        self.turn, self.back = torch.nn.Buffer(turn), torch.nn.Buffer(turn.conj())
        self.up, self.down = torch.nn.Buffer(turn.imag), torch.nn.Buffer(turn.conj().imag)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weight = torch.stack([self.up, self.down])
        return x * self.turn, x * self.back, x.real * self.up, x.real * self.down, x.real @ weight.T


class NegatedState(torch.nn.Module):
    """A state whose first value torch reads negated; with another buffer over the same memory where `shared`."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        turn = torch.polar(torch.ones(4), torch.arange(4.0))
        self.down = torch.nn.Buffer(turn.conj().imag)
        self.other = torch.nn.Buffer(turn.imag if shared else torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.down += x
        self.other *= 2
        return self.down + self.other


@pytest.mark.parametrize("entries", [1, 2])
def test_constants_that_differ_by_the_bit_of_a_conjugate(tmp_path: Any, entries: int) -> None:
    model = Conjugates()
    given: Any = model if entries == 1 else {f"e{i}": (model, (normal(3, 4),)) for i in range(entries)}
    arguments = (normal(3, 4),) if entries == 1 else None
    package = mycc.load(mycc.compile(given, arguments, out=tmp_path / "conjugates.pkg", verify=entries == 1))
    entry = package if entries == 1 else package.entry("e1")
    for got, want in zip(entry(X), model(X), strict=True):
        torch.testing.assert_close(got, want.resolve_conj())


def test_a_state_that_is_read_negated(tmp_path: Any) -> None:
    package = mycc.load(mycc.compile(NegatedState(False), (torch.ones(4),), out=tmp_path / "negated.pkg"))
    model = NegatedState(False)
    for x in (torch.ones(4), torch.arange(4.0)):
        torch.testing.assert_close(package(x), model(x))
    with pytest.raises(mycc.CompileError, match=r"changes its buffer '\w+', which shares memory with '\w+'"):
        mycc.compile(NegatedState(True), (torch.ones(4),), out=tmp_path / "shared.pkg")
