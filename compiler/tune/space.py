"""What may be chosen for each family of kernels: parameters, and the candidates that differ from the cost model's plan.

Parameters of code generation are fields of a struct of runtime/include/mycc (GemmTuning, ConvTuning, AttentionTuning)
and of the row loops' task size; those of the lowering change the layout of weights, and so hold for all targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..ir.index import product
from ..ir.nodes import AnyNode, Attention, Conv, Gemm, Map, Nest, Reduce
from .choices import Choice, Value

__all__ = ["FAMILIES", "Family", "Parameter", "Situation", "candidates", "family_of", "split"]

Stage = Literal["lower", "codegen"]


@dataclass(frozen=True)
class Situation:
    """What the candidates depend on beside the kernel: threads of a run, and the Winograd algorithms allowed."""

    threads: int
    winograd: str = "f23"


@dataclass(frozen=True)
class Parameter:
    """name: a field of the family's struct; default: what the cost model takes, 0 where that depends on the kernel."""

    name: str
    stage: Stage
    default: Value
    meaning: str


@dataclass(frozen=True)
class Family:
    """A family of kernels.

    nodes: the nodes that it is made of; struct: of its parameters in C++, "" when they are none;
    tries: the values that are worth a measurement for a node.
    """

    name: str
    nodes: tuple[type, ...]
    struct: str
    parameters: tuple[Parameter, ...]
    tries: Callable[[AnyNode, Situation], Iterator[dict[str, Value]]]


# -- products ---------------------------------------------------------------------------------------------------------

GEMM_DEPTH, GEMM_GROUP, GEMM_BLOCK = 384, 24 << 10, 320 << 10


def _gemm(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Gemm)
    k, m = node.k.constant, node.dims[-2].extent.constant
    if m == 1:
        return  # read once, at the speed of memory
    known = {_pieces(k, GEMM_DEPTH)}
    for depth in (256, 192, 512, 768):
        if _pieces(k, depth) not in known:
            known.add(_pieces(k, depth))
            yield {"depth": depth}
    for size in (16 << 10, 40 << 10):
        yield {"group_bytes": size}
    longest = 4 * min(k or GEMM_DEPTH, GEMM_DEPTH)
    for size in (160 << 10, 640 << 10):
        if m is None or m > min(size, GEMM_BLOCK) // longest:
            yield {"block_bytes": size}


def _pieces(k: int | None, depth: int) -> int:
    """Depth blocks of a product; its plan depends on their number alone."""
    return -depth if k is None else -(-k // depth)


# -- convolutions -----------------------------------------------------------------------------------------------------

ALGORITHMS = {"off": ("direct",), "f23": ("direct", "winograd2"), "f43": ("direct", "winograd2", "winograd4")}


def _conv(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Conv)
    window = node.window
    if (
        len(window.kernel) == 2
        and set(window.kernel) == {3}
        and {*window.stride, *window.dilation, window.groups} == {1}
    ):
        for algorithm in ALGORITHMS[situation.winograd]:
            if algorithm != getattr(node, "algorithm", "direct"):
                yield {"algorithm": algorithm}


# -- attention --------------------------------------------------------------------------------------------------------


def _attention(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Attention)
    rows, keys = product(v.extent for v in node.dims[1:3]).constant, node.keys.constant
    if rows is not None and rows <= 8:
        return
    for block in (128, 256, 768):
        if keys is None or keys > min(block, 384):
            yield {"key_block": block}
    for size in (12 << 10, 48 << 10):
        yield {"chunk_floats": size}


# -- loops over rows --------------------------------------------------------------------------------------------------


def _rows(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    """Tasks only matter where threads share them."""
    if situation.threads > 1:
        for size in (4 << 10, 64 << 10):
            yield {"task": size}


FAMILIES = (
    Family("gemm", (Gemm,), "GemmTuning", (
        Parameter("depth", "codegen", GEMM_DEPTH, "longest block of k; sums of blocks are added up"),
        Parameter("group_bytes", "codegen", GEMM_GROUP, "panels of a group, which stay in the first cache"),
        Parameter("block_bytes", "codegen", GEMM_BLOCK, "rows of a block, which stay in the second cache"),
    ), _gemm),
    Family("conv", (Conv,), "", (
        Parameter("algorithm", "lower", "", "direct, winograd2 or winograd4 (with codegen.winograd=f43)"),
    ), _conv),
    Family("attention", (Attention,), "AttentionTuning", (
        Parameter("key_block", "codegen", 384, "most keys of a block of the online softmax"),
        Parameter("chunk_floats", "codegen", 24 << 10, "queries of a task"),
    ), _attention),
    Family("rows", (Nest, Reduce, Map), "", (
        Parameter("task", "codegen", 16 << 10, "elements of a task that a thread takes"),
    ), _rows),
)  # fmt: skip


def family_of(node: AnyNode) -> Family | None:
    return next((family for family in FAMILIES if isinstance(node, family.nodes)), None)


def candidates(node: AnyNode, situation: Situation) -> tuple[Choice, ...]:
    """Choices to measure against the cost model's, for a kernel; may be empty."""
    family = family_of(node)
    return tuple(Choice.of(values) for values in family.tries(node, situation)) if family is not None else ()


def split(choice: Choice, stage: Stage) -> Choice:
    """The part of a choice that a stage reads."""
    names = {parameter.name for family in FAMILIES for parameter in family.parameters if parameter.stage == stage}
    return Choice(tuple((name, value) for name, value in choice.values if name in names))


def known(names: Sequence[str]) -> bool:
    """Whether every name is a parameter."""
    return set(names) <= {parameter.name for family in FAMILIES for parameter in family.parameters}
