"""All lowerings: importing this module enters every family into the registry."""

# ruff: noqa: F401
from .contract import (
    attention,
    conv,
    conv_gradient,
    conv_transpose,
    float8,
    grouped,
    matmul,
    quantised,
    quantised_conv,
    recurrent,
)
from .core import assertions, triton_kernels
from .indexing import data_sizes, gather, scatter, search, sort, strided, views, vision
from .linalg import fourier, linalg, sequences
from .pointwise import bits, create, pointwise, quotients, special
from .random import dropout, random
from .reduce import norm, pool, pool_nd, reduce, scan
