"""Special functions of the operator table: name, operands, torch's function, C++ of kernels/math/special.h."""

from __future__ import annotations

#: name, number of operands, torch's function
SPECIAL_FUNCTIONS: tuple[tuple[str, int, str], ...] = (
    ("digamma", 1, "special.digamma"),
    ("erfinv", 1, "special.erfinv"),
    ("ndtri", 1, "special.ndtri"),
    ("erfcx", 1, "special.erfcx"),
    ("i0", 1, "special.i0"),
    ("i0e", 1, "special.i0e"),
    ("i1", 1, "special.i1"),
    ("i1e", 1, "special.i1e"),
    ("k0", 1, "special.modified_bessel_k0"),
    ("k1", 1, "special.modified_bessel_k1"),
    ("scaled_k0", 1, "special.scaled_modified_bessel_k0"),
    ("scaled_k1", 1, "special.scaled_modified_bessel_k1"),
    ("j0", 1, "special.bessel_j0"),
    ("j1", 1, "special.bessel_j1"),
    ("y0", 1, "special.bessel_y0"),
    ("y1", 1, "special.bessel_y1"),
    ("spherical_j0", 1, "special.spherical_bessel_j0"),
    ("airy_ai", 1, "special.airy_ai"),
    ("frexp_mantissa", 1, ""),
    ("frexp_exponent", 1, ""),
    ("zeta", 2, "special.zeta"),
    ("polygamma", 2, ""),
    ("igamma", 2, "special.gammainc"),
    ("igammac", 2, "special.gammaincc"),
    ("nextafter", 2, "nextafter"),
    ("chebyshev_t", 2, "special.chebyshev_polynomial_t"),
    ("chebyshev_u", 2, "special.chebyshev_polynomial_u"),
    ("chebyshev_v", 2, "special.chebyshev_polynomial_v"),
    ("chebyshev_w", 2, "special.chebyshev_polynomial_w"),
    ("shifted_chebyshev_t", 2, "special.shifted_chebyshev_polynomial_t"),
    ("shifted_chebyshev_u", 2, "special.shifted_chebyshev_polynomial_u"),
    ("shifted_chebyshev_v", 2, "special.shifted_chebyshev_polynomial_v"),
    ("shifted_chebyshev_w", 2, "special.shifted_chebyshev_polynomial_w"),
    ("hermite_h", 2, "special.hermite_polynomial_h"),
    ("hermite_he", 2, "special.hermite_polynomial_he"),
    ("laguerre_l", 2, "special.laguerre_polynomial_l"),
    ("legendre_p", 2, "special.legendre_polynomial_p"),
)

_CHEBYSHEV = tuple(f"{shifted}chebyshev_{kind}" for shifted in ("", "shifted_") for kind in "tuvw")
#: functions that take numbers of their own type, whose range decides; others compute in float64
OF_THEIR_TYPE = frozenset(("nextafter", "hermite_h", "hermite_he", "laguerre_l", "legendre_p", *_CHEBYSHEV))
