"""Samples of special functions, factorisations, windows with places, strides and random operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from mycc.compiler.lower.pointwise.special import POLYNOMIALS, UNARY

from ..helpers.samples import BATCH, I, Sample, T

B = BATCH
#: where torch's own functions are exact enough to compare with: away from zeros of the function
RANGES = {
    "digamma": (2.0, 40.0),
    "erfinv": (-0.999, 0.999),
    "special_ndtri": (0.001, 0.4),
    "special_erfcx": (-3.0, 40.0),
    "special_bessel_j0": (0.1, 2.0),
    "special_bessel_j1": (0.5, 3.0),
    "special_bessel_y0": (1.5, 3.5),
    "special_bessel_y1": (3.0, 5.0),
    "special_spherical_bessel_j0": (0.01, 2.5),
    "special_airy_ai": (-2.0, 9.0),
    **dict.fromkeys((n for n in UNARY if "_k0" in n or "_k1" in n), (0.01, 30.0)),
}


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def special_functions() -> Iterator[Sample]:
    for name in UNARY:
        low, high = RANGES.get(name, (-9.0, 9.0))
        yield Sample(f"aten.{name}.default", (T(B, 37, low=low, high=high),), ulps=16)
    yield Sample("aten.i0.default", (T(3, 7, dtype="f64"),), ulps=64)
    yield Sample("aten.digamma.default", (I(7, low=1, high=30),), ulps=16)
    for name in POLYNOMIALS:
        yield Sample(f"aten.{name}.default", (T(4, 9), I(9, low=0, high=5)), ulps=16, sums=True, note="whole degrees")
        yield Sample(f"aten.{name}.n_scalar", (T(B, 9), 4), ulps=16, sums=True)
        yield Sample(f"aten.{name}.x_scalar", (0.7, I(9, low=0, high=5)), ulps=16, sums=True)
    for order in (0, 1, 2, 4):
        yield Sample("aten.polygamma.default", (order, T(B, 17, low=2.0, high=9.0)), ulps=32)
    for name in ("igamma", "igammac"):
        yield Sample(f"aten.{name}.default", (T(B, 17, low=0.5, high=6), T(17, low=0.5, high=6)), ulps=64)
    yield Sample("aten.special_zeta.default", (T(B, 17, low=1.2, high=9), T(17, low=0.5, high=9)), ulps=32)
    yield Sample("aten.special_zeta.other_scalar", (T(B, 17, low=1.2, high=9), 2.5), ulps=32)
    yield Sample("aten.special_zeta.self_scalar", (3.5, T(B, 17, low=0.5, high=9)), ulps=32)
    yield Sample("aten.nextafter.default", (T(B, 9, special=True), T(9)), ulps=0, eager=True)
    yield Sample("aten.frexp.Tensor", (T(B, 19, low=-1000, high=1000),), ulps=0)
    yield Sample("aten.angle.default", (T(B, 19, special=True),), ulps=1)
    yield Sample("aten.signbit.default", (T(B, 19, special=True),))
    yield Sample("aten.signbit.default", (I(9),))
    for name in ("gcd", "lcm"):
        yield Sample(f"aten.{name}.default", (I(B, 9, low=-60, high=60), I(9, low=-60, high=60)))
    for decimals in (0, 2, -1):
        yield Sample("aten.round.decimals", (T(B, 19, low=-99, high=99),), {"decimals": decimals}, eager=True)
    for name in ("max.other", "min.other"):
        yield Sample(f"aten.{name}", (T(B, 9, special=True), T(9)), ulps=0)
    yield Sample("aten.var_mean.default", (T(B, 21), False), ulps=8, sums=True)


def symmetric(x: torch.Tensor) -> torch.Tensor:
    return x @ x.transpose(-1, -2) + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def dominant(x: torch.Tensor) -> torch.Tensor:
    return x + 6 * torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype)


def factorisations() -> Iterator[Sample]:
    def near(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, ulps=256, sums=True)

    yield near("aten.linalg_lu_factor_ex.default", T(B, 5, 5, view=dominant))
    yield near("aten.linalg_lu_factor_ex.default", T(2, 4, 6, view=dominant))
    yield near("aten.lu_unpack.default", T(2, 5, 5), I(2, 5, dtype="i32", low=5, high=5))
    yield near("aten.linalg_cholesky_ex.default", T(2, 5, 5, view=symmetric))
    yield near("aten.linalg_cholesky_ex.default", T(5, 5, view=symmetric), upper=True)
    for upper in (False, True):
        yield near("aten.linalg_solve_triangular.default", T(B, 5, 5, view=dominant), T(B, 5, 3), upper=upper)
    yield near("aten.linalg_solve_triangular.default", T(5, 5), T(2, 3, 5), upper=False, left=False, unitriangular=True)
    yield near("aten.geqrf.default", T(2, 6, 4))
    yield near("aten.geqrf.default", T(4, 6))
    yield near("aten.linalg_householder_product.default", T(2, 6, 4), T(2, 3))
    yield near("aten._linalg_eigh.default", T(2, 5, 5, view=symmetric), "L", False)
    yield near("aten._linalg_svd.default", T(2, 5, 3), False, False)
    yield near("aten._linalg_svd.default", T(3, 6), False, False)
    yield near("aten.linalg_ldl_factor_ex.default", T(2, 6, 6, view=symmetric))
    yield near("aten.linalg_ldl_solve.default", T(2, 5, 5, view=dominant), I(2, 5, dtype="i32", low=5, high=5), T(5, 3))
    yield near("aten.linalg_matrix_exp.default", T(B, 4, 4))


def ties(x: torch.Tensor) -> torch.Tensor:
    """Few different numbers, windows of -inf alone, and NaN that lie side by side."""
    found = x.round()
    found[:, 0, :4] = -torch.inf
    found[:, 1, 2:5, 3:5] = torch.nan
    return found


def windows() -> Iterator[Sample]:
    yield Sample("aten.max_pool2d_with_indices.default", (T(B, 3, 9, 8), [3, 3], [2, 2], [1, 1]), ulps=0)
    yield Sample("aten.max_pool2d_with_indices.default", (T(2, 3, 9, 8), [2, 3], [1, 1], [0, 1], [2, 1]), ulps=0)
    spoilt = T(2, 3, 9, 8, view=ties)
    yield Sample("aten.max_pool2d_with_indices.default", (spoilt, [3, 3], [2, 2], [1, 1]), ulps=0)
    yield Sample("aten.max_pool2d_with_indices.default", (spoilt, [5, 5], [2, 2], [2, 2]), ulps=0)
    yield Sample("aten.max_pool3d_with_indices.default", (T(2, 3, 5, 6, 7), [2, 2, 3], [2, 1, 2], [1, 1, 1]), ulps=0)
    yield Sample("aten.max_pool3d.default", (T(B, 2, 5, 6, 7), [2, 2, 2]), ulps=0)
    rest = ([2, 3, 2], [2, 2, 1], [1, 1, 1])
    yield Sample("aten.avg_pool3d.default", (T(B, 2, 5, 6, 7), *rest), ulps=8, sums=True)
    yield Sample("aten.avg_pool3d.default", (T(2, 5, 6, 7), *rest, True, False), ulps=8, sums=True)
    yield Sample("aten.avg_pool3d.default", (T(2, 5, 6, 7), *rest, False, True, 3), ulps=8, sums=True)
    yield Sample("aten.adaptive_max_pool2d.default", (T(B, 3, 7, 9), [3, 4]), ulps=0)
    yield Sample("aten.adaptive_max_pool3d.default", (T(2, 3, 5, 7, 9), [2, 3, 4]), ulps=0)
    for name in ("_adaptive_avg_pool3d", "adaptive_avg_pool3d"):
        yield Sample(f"aten.{name}.default", (T(B, 3, 5, 7, 9), [2, 3, 4]), ulps=8, sums=True)


def strides() -> Iterator[Sample]:
    for name in ("as_strided", "as_strided_copy"):
        yield Sample(f"aten.{name}.default", (T(5, 6), [3, 4], [7, 2], 1), ulps=0)
        yield Sample(f"aten.{name}.default", (T(30), [4, 3, 2], [2, 1, 5]), ulps=0)
    yield Sample("aten.as_strided_scatter.default", (T(5, 6), T(3, 4), [3, 4], [7, 1], 2), ulps=0)
    yield Sample("aten.unfold.default", (T(B, 21), 1, 4, 3), ulps=0)
    yield Sample("aten.unfold.default", (T(20, 5, special=True), 0, 3, 1), ulps=0)
    yield Sample("aten.unfold.default", (T(4, 9, dtype="bf16"), -1, 9, 2), ulps=0)
    yield Sample("aten.unfold.default", (T(), 0, 1, 1), ulps=0, note="zero-dim")


def random_numbers() -> Iterator[Sample]:
    f32 = {"dtype": torch.float32}

    def shape_only(operator: str, *args: Any, **kwargs: Any) -> Sample:
        return Sample(operator, args, kwargs, note="only shape")

    for name in ("rand", "randn"):
        yield shape_only(f"aten.{name}.default", [3, 5], **f32)
        yield shape_only(f"aten.{name}_like.default", T(B, 5))
    yield shape_only("aten.randint.default", 9, [3, 5])
    yield shape_only("aten.randint.low", -3, 9, [3, 5])
    yield shape_only("aten.randint_like.default", I(B, 5), 9)
    yield shape_only("aten.randint_like.low_dtype", I(B, 5), -2, 9)
    yield shape_only("aten.normal.float_float", 1.0, 2.0, [3, 5])
    yield shape_only("aten.normal.Tensor_Tensor", T(B, 5), T(B, 5, low=0.5))
    yield shape_only("aten.normal.Tensor_float", T(B, 5), 2.0)
    yield shape_only("aten.normal.float_Tensor", 1.0, T(B, 5, low=0.5))
    yield shape_only("aten.bernoulli.default", T(B, 5, low=0, high=1))
    yield shape_only("aten.bernoulli.p", T(B, 5), 0.3)
    yield shape_only("aten.multinomial.default", T(B, 9, low=0.1), 4)
    yield shape_only("aten.multinomial.default", T(9, low=0.1), 40, True)


FAMILIES = (special_functions, factorisations, windows, strides, random_numbers)
