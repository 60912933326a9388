"""Fixtures of the tests of operators, which run kernels for GPUs through Triton's interpreter too."""

from __future__ import annotations

from ..gpu.conftest import interpreter  # noqa: F401
