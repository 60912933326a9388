"""Calls of functions: routines of a header, kernels of the user's, assertions."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import KernelView


@dataclass(frozen=True)
class RoutineKernel(KernelView):
    """A function of a header on each of `count` blocks; `arguments` are texts in terms of `block`."""

    function: str
    count: str
    work: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class TensorView:
    """A mycc_tensor: C++ texts of its address, shape and strides, and DLPack's code and bits of its dtype."""

    address: str
    code: int
    bits: int
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class NumberView:
    """A mycc_number: the field that holds it, and its C++ text."""

    field: str
    value: str


@dataclass(frozen=True)
class CustomKernel(KernelView):
    """A C++ function of the user's on whole tensors, and the translation unit that defines it."""

    function: str
    outputs: tuple[TensorView, ...]
    inputs: tuple[TensorView, ...]
    numbers: tuple[NumberView, ...]
    source: str


@dataclass(frozen=True)
class AssertKernel(KernelView):
    """condition: the name of the flag; text: the C++ string literal to fail with."""

    condition: str
    text: str
