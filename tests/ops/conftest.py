"""Fixtures of the tests of operators, which run kernels for GPUs through Triton's interpreter too."""

from ..gpu.conftest import interpreter  # noqa: F401
