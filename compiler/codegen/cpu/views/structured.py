"""Kernels written by hand, whose elements are finished by an epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from ..scope import Param
from .kernel import KernelView, TunedKernel
from .loops import Lanes


@dataclass(frozen=True)
class Epilogue:
    """How a structured kernel finishes elements (z, m, n .. n + count - 1).

    ahead: fetches what 16 of them need from memory, for the elements from `column` on.
    added: the fields of mycc::Added for them, when only a bias and a residual are added.
    results: otherwise where they go, and the step to the next row.
    sums: what is finished: one sum of each element, or more where columns are finished together; sum_type and
        sum_vector: of each.
    """

    decode: tuple[str, ...]
    lanes: Lanes
    prefetch: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    results: tuple[str, str] | None = None
    sums: tuple[str, ...] = ("acc",)
    sum_type: str = "float"
    sum_vector: str = "vf32"


@dataclass(frozen=True)
class GemmKernel(TunedKernel):
    """A matrix product; texts are C++ expressions."""

    fields: tuple[tuple[str, str], ...]  # of the argument struct, in its order
    epilogue: Epilogue
    function: str = "gemm"  # of a product with packed weights
    arguments: str = "GemmArgs"  # the argument struct of a product with packed weights
    form: str = ""  # template arguments of a convolution of Winograd's or of integers


@dataclass(frozen=True)
class ChainLink:
    """A convolution of a chain: its part ("expand", "depthwise" or "project"), its ConvArgs and its epilogue.

    inside: the epilogue writes into scratch memory. params: those of the kernel that the epilogue needs.
    """

    part: str
    fields: tuple[tuple[str, str], ...]
    epilogue: Epilogue
    inside: bool
    params: tuple[Param, ...]


@dataclass(frozen=True)
class ChainKernel(KernelView):
    """Convolutions one after the other."""

    links: tuple[ChainLink, ...]

    def link(self, part: str) -> ChainLink | None:
        """None where the part is missing."""
        return next((link for link in self.links if link.part == part), None)


@dataclass(frozen=True)
class AttentionKernel(TunedKernel):
    """Attention or its gradient, a function of C++; score: how a scaled score is changed, arguments: the struct of the
    fields, skips: whether blocks of keys that the score hides are left out."""

    fields: tuple[tuple[str, str], ...]
    arguments: str
    score: Epilogue | None
    function: str = "attention"
    skips: bool = False
