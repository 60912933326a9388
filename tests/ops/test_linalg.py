"""Linear algebra through the whole compiler: what determines a result, where factors have signs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mycc
import pytest
import torch

A, B = torch.randn(2, 5, 5, dtype=torch.float64).float(), torch.randn(2, 5, 3)
TALL, WIDE = torch.randn(6, 4), torch.randn(4, 6)
EYE = torch.eye(5)


def svd(x: torch.Tensor, full: bool) -> torch.Tensor:
    u, s, vh = torch.linalg.svd(x, full_matrices=full)
    n = s.shape[-1]
    product = (u[..., :n] * s.unsqueeze(-2)) @ vh[..., :n, :]
    return torch.cat([product.flatten(), (u.mT @ u).flatten(), (vh @ vh.mT).flatten(), s.flatten()])


def eigh(x: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(x + x.mT)
    product = (vectors * values.unsqueeze(-2)) @ vectors.mT
    return torch.cat([product.flatten(), (vectors.mT @ vectors).flatten(), values.flatten()])


def eig(x: torch.Tensor) -> torch.Tensor:
    """What is determined: the sums of powers of the values, the product, lengths; and that the largest are real."""
    values, vectors = torch.linalg.eig(x)
    small = values / values.abs().amax(-1, keepdim=True)
    sums = torch.stack([(small**k).sum(-1) for k in range(1, x.shape[-1] + 1)], -1)
    product = torch.view_as_real((vectors * values.unsqueeze(-2)) @ torch.linalg.inv(vectors))
    return torch.cat([torch.view_as_real(sums).flatten(), product.flatten(), vectors.abs().square().sum(-2).flatten()])


def ldl(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The factors with their pivots, and a solution."""
    factors, pivots = torch.linalg.ldl_factor(x + x.mT)
    solution = torch.linalg.ldl_solve(factors, pivots, b)
    return torch.cat([factors.flatten(), pivots.to(x.dtype).flatten(), solution.flatten()])


#: symmetric sums without large diagonals: their pivots are blocks of 2 x 2 and far away
PIVOTED = torch.randn(6, 7, 7, generator=torch.Generator().manual_seed(2)) * (1 - torch.eye(7))
CYCLE = torch.eye(5).roll(1, 0)

CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "svd": (lambda x: svd(x, False), (A,)),
    "svd_tall": (lambda x: svd(x, True), (TALL,)),
    "svd_wide": (lambda x: svd(x, True), (WIDE,)),
    "svd_rank_one": (lambda x: svd(x, True), (TALL[:, :1] @ WIDE[:1, :4],)),
    "eigh": (eigh, (A,)),
    "eig": (eig, (A,)),
    "eig_cycle": (lambda x: torch.view_as_real(torch.linalg.eigvals(x) ** 5).sum(0), (CYCLE,)),
    "eig_defective": (lambda x: torch.linalg.eigvals(x.triu()).real.sort()[0], (A.flatten()[:25].reshape(5, 5),)),
    "eig_symmetric": (lambda x: torch.linalg.eigvals(x + x.mT).imag, (A,)),
    "ldl": (ldl, (PIVOTED, torch.randn(6, 7, 2))),
    "qr": (lambda x: torch.cat([t.flatten() for t in torch.linalg.qr(x, mode="complete")]), (TALL,)),
    "solve": (lambda a, b: torch.linalg.solve(a, b), (A + 3 * EYE, B)),
    "solve_right": (lambda a, b: torch.linalg.solve(a, b.mT, left=False), (A + 3 * EYE, B)),
    "inv": (lambda x: torch.linalg.inv(x), (A + 3 * EYE,)),
    "det": (lambda x: torch.linalg.det(x), (A,)),
    "slogdet": (lambda x: torch.stack(torch.linalg.slogdet(x)), (A,)),
    "lu": (lambda x: torch.cat([t.flatten() for t in torch.linalg.lu(x)]), (A,)),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True), (A + 3 * EYE, B)),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + EYE), (A,)),
    "cholesky_solve": (lambda x, b: torch.cholesky_solve(b, torch.linalg.cholesky(x @ x.mT + EYE)), (A, B)),
    "pinv": (lambda x: torch.linalg.pinv(x), (TALL,)),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x), (A,)),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("linalg")
    entries = {name: (function, args) for name, (function, args) in CASES.items()}
    return mycc.load(mycc.compile(entries, out=folder / "linalg.pkg", verify=False))


@pytest.mark.parametrize("name", list(CASES))
def test_linear_algebra(name: str, package: Any) -> None:
    function, args = CASES[name]
    want = function(*(a.double() for a in args)).float()
    torch.testing.assert_close(package.entry(name)(*args), want, rtol=1e-4, atol=1e-4)


def spd(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + EYE


#: with a batch of any size; what torch defines in C++ for fixed sizes alone among them
OF_ANY_BATCH: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "solve": (lambda a, b: torch.linalg.solve(a + 3 * EYE, b), 2),
    "inv": (lambda a: torch.linalg.inv(a + 3 * EYE), 1),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(spd(a))), 2),
    "cholesky_inverse": (lambda a: torch.cholesky_inverse(torch.linalg.cholesky(spd(a))), 1),
    "lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a + 3 * EYE), b), 2),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a / 3, 5), 1),
    "inverse_power": (lambda a: torch.linalg.matrix_power(a + 3 * EYE, -2), 1),
    "qr": (lambda a: torch.cat(torch.linalg.qr(a, mode="complete"), -1), 1),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a + 3 * EYE, b).solution, 2),
    "slogdet": (lambda a: torch.stack(torch.linalg.slogdet(a)), 1),
}


@pytest.fixture(scope="module")
def dynamic_package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, batch = tmp_path_factory.mktemp("linalg"), torch.export.Dim("batch", min=1, max=50)
    entries = {
        name: (function, (A, B)[:count], {}, ({0: batch},) * count) for name, (function, count) in OF_ANY_BATCH.items()
    }
    return mycc.load(mycc.compile(entries, out=folder / "linalg.pkg", verify=False))


@pytest.mark.parametrize("name", list(OF_ANY_BATCH))
def test_any_batch(name: str, dynamic_package: Any) -> None:
    function, count = OF_ANY_BATCH[name]
    for batch in (1, 2, 7, 50):
        generator = torch.Generator().manual_seed(batch)
        args = [torch.randn(batch, 5, n, generator=generator) / 2 for n in (5, 3)[:count]]
        want = function(*(a.double() for a in args)).float()
        torch.testing.assert_close(dynamic_package.entry(name)(*args), want, rtol=1e-3, atol=1e-4)
