"""The evaluator of the loop IR: what a program means, in numpy and float64 (docs/decisions/0109-an-evaluator.md)."""

from .numbers import CallFails, Undefined
from .program import evaluate

__all__ = ["CallFails", "Undefined", "evaluate"]
