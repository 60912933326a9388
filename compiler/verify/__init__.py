"""Verification: the float64 reference of a captured graph, and the comparison of a package with it."""

from .compare import error
from .reference import eager, reference
from .verify import CaseResult, VerifyResult, verify

__all__ = ["CaseResult", "VerifyResult", "eager", "error", "reference", "verify"]
