"""Float operators at the edges of their types, as eager on a CPU: largest and smallest numbers of special functions,
signs of zeros, NaN, where 16-bit sums round, and values that eager refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import mycc
import pytest
import torch
import torch.nn.functional as F
from mycc.runtime.errors import RunError

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
MAX, TINY, SMALL = torch.finfo(torch.float64).max, torch.finfo(torch.float64).tiny, 5e-324
POINTS = [0.0, -0.0, math.nan, math.inf, -math.inf, MAX, 1e37, TINY, SMALL, 1e-310, 1e-300, 1e-20, 0.1, 0.5, 1.0]
X = torch.tensor([sign * v for v in [*POINTS, 2.5, 20.0, 700.0, 1e10] for sign in (1, -1)], dtype=torch.float64)
A, B = (t.flatten() for t in torch.meshgrid(X, X, indexing="ij"))
SPECIAL = (
    "i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 ndtri erfcx erfinv digamma"
).split()
HALVES = (torch.float16, torch.bfloat16)
ZERO = torch.zeros(60, dtype=torch.long)


def half(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def scattered(x: torch.Tensor, s: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Every way to combine many elements in one place."""
    wide = i[:, None].expand(s.shape).contiguous()
    return (
        x.scatter_add(0, wide, s),
        *(x.scatter_reduce(0, wide, s, how) for how in ("sum", "mean", "prod")),
        x.scatter_reduce(0, wide, s, "sum", include_self=False),
        torch.scatter(x, 0, wide, 1.1, reduce="add"),
        x.clone().scatter_add_(0, wide, s),
        x.index_add(0, i, s),
        x.index_add(0, i, s, alpha=3),
        x[:, 0].index_add(0, i, s[:, 0]),
        x.index_put((i,), s, accumulate=True),
    )


#: whole numbers, and their thirds, fifths and sevenths, of which bins have edges
STEPS = torch.cat([torch.arange(-21, 22) / n for n in (1, 3, 5, 7)])
#: name -> function and arguments; equal bit by bit
EXACT: dict[str, Case] = {
    **{
        f"histc {d}": (
            lambda x: tuple(
                torch.histc(x, *given) for given in ((42,), (10, -1, 1), (100, -3, 7), (3, 2, 2), (7, 0, 3))
            ),
            (STEPS.to(d),),
        )
        for d in (*HALVES, torch.float32, torch.float64)
    },
    **{f"scatter {d}": (scattered, (half(d, 2, 8), half(d, 60, 8), ZERO)) for d in HALVES},
    **{
        f"addr {d}": (
            lambda c, a, b: c.addr(a, b, beta=0.6, alpha=0.2),
            tuple(map(lambda s, d=d: half(d, *s), ((9, 8), (9,), (8,)))),
        )
        for d in HALVES
    },
    **{f"cross {d}": (torch.linalg.cross, (half(d, 40, 3), half(d, 40, 3).flip(0))) for d in HALVES},
    "cross of subnormals": (
        lambda a, b: torch.linalg.cross(a, b),
        (torch.tensor([[0.0, 9e-41, -9e-41], [0, -9e-41, 1]]).bfloat16(), torch.tensor([[0, 9e-41, 9e-41]]).bfloat16()),
    ),
    "addr of a subnormal and an infinity": (
        lambda c, a, b: c.addr(a, b, beta=0.6, alpha=0.2),
        (torch.zeros(2, 1, dtype=torch.float64), torch.tensor([SMALL, 1.0], dtype=torch.float64), X[6:7]),
    ),
    "logcumsumexp of a number": (lambda x: x.logcumsumexp(0), (torch.tensor(-0.0),)),
}
#: name -> function and arguments; NaN, infinities and signs of zeros exactly, other numbers to 1e-10
CLOSE: dict[str, Case] = {
    **{name: (getattr(torch.special, name), (X,)) for name in SPECIAL},
    "igamma": (torch.special.gammainc, (A, B)),
    "igammac": (torch.special.gammaincc, (A, B)),
    "gaussian_nll_loss of NaN": (
        lambda x, v: F.gaussian_nll_loss(x, x.flip(0), v, full=True, reduction="none"),
        (torch.arange(4.0), torch.tensor([0.0, math.nan, 2.0, -0.0])),
    ),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    entries: dict[str, Any] = {f"case{i}": case for i, case in enumerate({**EXACT, **CLOSE}.values())}
    return mycc.load(mycc.compile(entries, out=tmp_path_factory.mktemp("edges") / "floats.pkg", verify=False))


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_as_eager(name: str, package: mycc.Model) -> None:
    cases = {**EXACT, **CLOSE}
    function, arguments = cases[name]
    found, wanted = package.entry(f"case{list(cases).index(name)}")(*arguments), function(*arguments)
    rtol = 0.0 if name in EXACT else 1e-10
    atol = 0.0 if name in EXACT else 1e-7 if name.startswith("igamma") else 1e-320
    for got, want in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
        zeros = (got == 0) & (want == 0)
        assert torch.equal(got[zeros].signbit(), want[zeros].signbit())


#: name -> function, arguments that it takes, ones that eager refuses, a part of what both say
REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], str]] = {
    "inv": (torch.linalg.inv, (torch.eye(3) * 2,), (torch.ones(3, 3),), "singular"),
    "inverse of a batch": (lambda x: x.inverse(), (torch.eye(3).expand(2, 3, 3),), (torch.zeros(2, 3, 3),), "singular"),
    "solve": (torch.linalg.solve, (torch.eye(3), torch.ones(3, 1)), (torch.ones(3, 3), torch.ones(3, 1)), "singular"),
    "cholesky": (torch.linalg.cholesky, (torch.eye(3),), (-torch.eye(3),), "positive-definite"),
    "one_hot": (
        F.one_hot,
        (torch.tensor([0, 2]),),
        (torch.tensor([0, -1]),),
        "Class values must be non-negative",
    ),
    "histc": (
        lambda x: torch.histc(x, 4),
        (torch.tensor([-1.0, 2.0]),),
        (torch.tensor([-1.0, math.inf]),),
        "range of .* is not finite|range of the elements is not finite",
    ),
    "histc into a tensor": (
        lambda x: torch.histc(x, 4, out=torch.empty(4)),
        (torch.tensor([-1.0, 2.0]),),
        (torch.tensor([-1.0, math.nan]),),
        "range of .* is not finite|range of the elements is not finite",
    ),
    "quantile into a tensor": (
        lambda x, q: torch.quantile(x, q, dim=0, out=torch.empty(2, 2)),
        (torch.ones(4, 2), torch.tensor([0.0, 1.0])),
        (torch.ones(4, 2), torch.tensor([0.5, 1.5])),
        "q values must be in the range",
    ),
    "quantile": (
        lambda x, q: x.quantile(q, dim=0),
        (torch.ones(4, 2), torch.tensor([0.0, 1.0])),
        (torch.ones(4, 2), torch.tensor([0.5, 1.5])),
        "q values must be in the range",
    ),
    "gaussian_nll_loss": (
        F.gaussian_nll_loss,
        (torch.ones(3), torch.zeros(3), torch.tensor([0.0, 1.0, math.nan])),
        (torch.ones(3), torch.zeros(3), torch.tensor([0.0, -1.0, 1.0])),
        "var has negative entry",
    ),
    "cov": (
        lambda x, w: torch.cov(x, aweights=w),
        (torch.arange(6.0).reshape(2, 3), torch.ones(3)),
        (torch.arange(6.0).reshape(2, 3), torch.zeros(3)),
        "weights sum to zero",
    ),
}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    entries: dict[str, Any] = {f"case{i}": case[:2] for i, case in enumerate(REFUSED.values())}
    return mycc.load(mycc.compile(entries, out=tmp_path_factory.mktemp("refused") / "refused.pkg", verify=False))


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_eager_refuses(name: str, refusing: mycc.Model) -> None:
    function, taken, refused, text = REFUSED[name]
    entry = refusing.entry(f"case{list(REFUSED).index(name)}")
    torch.testing.assert_close(entry(*taken), function(*taken), equal_nan=True)
    with pytest.raises((RuntimeError, ValueError), match=text):
        function(*refused)
    with pytest.raises(RunError, match=text):
        entry(*refused)


@pytest.mark.parametrize("places", [[0, 2**63 - 1], [2**62], [-(2**63)]])
def test_classes_that_eager_has_no_memory_for(places: list[int], refusing: mycc.Model) -> None:
    entry = refusing.entry(f"case{list(REFUSED).index('one_hot')}")
    x = torch.tensor((places * 2)[:2])
    with pytest.raises(RuntimeError):
        F.one_hot(x)
    with pytest.raises(RunError):
        entry(x)


def test_bessel_and_airy_functions_of_float64_are_closer_than_eagers(tmp_path: Path) -> None:
    """Eager's own are off by 2e-7 to 3e-6, near the first zeros most; mpmath's are exact."""
    x = torch.cat([torch.linspace(0.01, 30, 200, dtype=torch.float64), 5 + torch.linspace(-0.1, 0.1, 50).double()])
    y = torch.cat([-x[x < 20], x])
    functions: dict[str, Callable[[float], Any]] = {
        "airy_ai": mpmath.airyai,
        "bessel_j0": lambda v: mpmath.besselj(0, v),
        "bessel_j1": lambda v: mpmath.besselj(1, v),
        "bessel_y0": lambda v: mpmath.bessely(0, v),
        "bessel_y1": lambda v: mpmath.bessely(1, v),
    }
    entries: dict[str, Any] = {
        name: (getattr(torch.special, name), (x if name.startswith("bessel_y") else y,)) for name in functions
    }
    package = mycc.load(mycc.compile(entries, out=tmp_path / "bessel.pkg", verify=False))
    for name, exact in functions.items():
        given = entries[name][1][0]
        want = torch.tensor([float(exact(v)) for v in given.tolist()], dtype=torch.float64)
        atol = 3e-11 if name == "airy_ai" else 3e-15
        torch.testing.assert_close(package.entry(name)(given), want, rtol=1e-13, atol=atol)
