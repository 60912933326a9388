"""Signs of zero, infinities and NaN in GPU kernels, through Triton's interpreter, equal to torch's on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

NAN, INF = math.nan, math.inf
VALUES = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.5])
ONE = torch.tensor(-0.0)
LEAST = torch.full((2, 4), -0.0)
PLACES = torch.tensor([0, 1])

#: function, inputs, and what torch gives on a GPU
CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], list[float] | float]] = {
    "neg": (torch.neg, (VALUES,), [-0.0, 0.0, -1.0, 1.0, -INF, INF, NAN, -2.5]),
    "-0 as a number": (lambda x: torch.where(x > 0, x, -0.0), (VALUES[:4],), [-0.0, -0.0, 1.0, -0.0]),
    "sum of -0": (lambda x: x.sum(1), (LEAST,), [0.0, 0.0]),
    "mean of -0": (lambda x: x.mean(1), (LEAST,), [0.0, 0.0]),
    "product of one": (torch.prod, (ONE,), -0.0),
    "largest of one": (torch.amax, (ONE,), -0.0),
    "log_softmax of one": (lambda x: F.log_softmax(x, 0), (ONE,), 0.0),
    "logcumsumexp of one": (lambda x: torch.logcumsumexp(x, 0), (ONE,), -0.0),
    "nll_loss": (lambda x, at: F.nll_loss(x, at, reduction="none"), (torch.zeros(2, 3), PLACES), [-0.0, -0.0]),
    "digamma": (torch.digamma, (VALUES[:2],), [-INF, INF]),
    "polygamma": (lambda x: torch.polygamma(0, x), (VALUES[:2],), [-INF, INF]),
    "i1e": (torch.special.i1e, (VALUES[[0, 1, 4, 5]],), [0.0, 0.0, 0.0, -0.0]),
    "log_ndtr": (torch.special.log_ndtr, (VALUES[4:6],), [-0.0, -INF]),
    "nextafter": (torch.nextafter, (VALUES[:2], torch.tensor(-0.0)), [-0.0, -0.0]),
    "polynomial": (torch.special.hermite_polynomial_he, (VALUES[:2], torch.tensor(1.0)), [0.0, -0.0]),
    "zeta": (torch.special.zeta, (torch.tensor([2.0, 3.4e38]), torch.tensor([1.0, 3.4e38])), [math.pi**2 / 6, NAN]),
    "igamma": (
        torch.special.gammainc,
        (torch.tensor([NAN, NAN, INF, 0.0, 1.0, 3e38]), torch.tensor([0.0, INF, NAN, NAN, INF, 3e38])),
        [0.0, 1.0, 0.0, NAN, 1.0, 0.5],
    ),
    "gelu in 16 bits": (lambda x: F.gelu(x.half()).float(), (VALUES[[0, 4, 5, 6]],), [0.0, INF, -0.0, NAN]),
    "shifts to the left": (
        lambda x, n: (x.to(torch.int64) << n.to(torch.int64)).float(),
        (torch.tensor([1.0, 3.0, 1.0, -1.0, 5.0]), torch.tensor([4.0, 63.0, 64.0, -1.0, 70.0])),
        [16.0, -(2.0**63), 0.0, 0.0, 0.0],
    ),
    "shifts to the right": (
        lambda x, n: (x.to(torch.int64) >> n.to(torch.int64)).float(),
        (torch.tensor([64.0, -64.0, 7.0, -7.0, -1.0]), torch.tensor([4.0, 2.0, 64.0, 64.0, -1.0])),
        [4.0, -16.0, 0.0, -1.0, -1.0],
    ),
    "igammac": (
        torch.special.gammaincc,
        (torch.tensor([NAN, NAN, INF, 0.0, 1.0, 3e38]), torch.tensor([0.0, INF, NAN, NAN, INF, 3e38])),
        [1.0, 0.0, 1.0, NAN, 0.0, 0.5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_at_edges(name: str, interpreter: TritonInterpreter) -> None:
    function, inputs, wanted = CASES[name]
    (found,) = run_interpreted(device_program(Call1(function).eval(), inputs), interpreter, inputs)
    want = torch.tensor(wanted)
    torch.testing.assert_close(found, want, equal_nan=True)
    known = ~want.isnan()
    assert torch.equal(found.signbit()[known], want.signbit()[known])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32])
def test_products_of_types_without_tensor_cores(dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    """Sums of products in the type itself: exact for integers."""
    torch.manual_seed(0)
    a, b, c = (torch.randint(-9, 9, shape).to(dtype) for shape in ((5, 40), (40, 33), (33,)))
    model = Call1(lambda a, b, c: torch.cat([a @ b, torch.addmm(c, a, b), F.linear(a, b.t())])).eval()
    (found,) = run_interpreted(device_program(model, (a, b, c)), interpreter, (a, b, c))
    assert torch.equal(found, model(a, b, c))
