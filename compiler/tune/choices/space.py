"""What may be chosen for each family of kernels: parameters, and the candidates that differ from the cost model's plan.

Parameters of code generation are fields of a struct of runtime/include/mycc (GemmTuning, ConvTuning, AttentionTuning)
and of the row loops' task size; those of the lowering change the layout of weights, and so hold for all targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...ir.index import product
from ...ir.nodes import Map, Nest, Reduce
from ...ir.program import AnyNode
from ...ir.structured import (
    WINOGRAD_FORMS,
    Algorithm,
    Attention,
    Conv,
    Gemm,
    Window,
    WinogradForm,
)
from .choices import Choice, Value

__all__ = [
    "ALGORITHMS",
    "FAMILIES",
    "Family",
    "Parameter",
    "Situation",
    "candidates",
    "family_of",
    "split",
    "unknown_part",
]

Stage = Literal["lower", "codegen"]


@dataclass(frozen=True)
class Situation:
    """What the candidates depend on beside the kernel: threads of a run, and the Winograd algorithms allowed."""

    threads: int
    winograd: str = "f33"


@dataclass(frozen=True)
class Parameter:
    """name: a field of the family's struct; values: all that it may take in a choice."""

    name: str
    stage: Stage
    values: tuple[Value, ...]
    meaning: str


@dataclass(frozen=True)
class Family:
    """A family of kernels.

    name: the first word of its kernels' keys, up to a hyphen; nodes: the nodes that it is made of;
    tries: the values that are worth a measurement for a node.
    """

    name: str
    nodes: tuple[type, ...]
    parameters: tuple[Parameter, ...]
    tries: Callable[[AnyNode, Situation], Iterator[dict[str, Value]]]


# -- products ---------------------------------------------------------------------------------------------------------

#: the first of each is the cost model's
GEMM_DEPTHS = (256, 384, 192, 512, 768)
GEMM_GROUPS = (24 << 10, 16 << 10, 40 << 10)
GEMM_BLOCKS = (192 << 10, 96 << 10, 384 << 10)


def _gemm(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Gemm)
    k, m = node.k.constant, node.dims[-2].extent.constant
    if m == 1:
        return  # read once, at the speed of memory
    known = {_pieces(k, GEMM_DEPTHS[0])}
    for depth in GEMM_DEPTHS[1:]:
        if _pieces(k, depth) not in known:
            known.add(_pieces(k, depth))
            yield {"depth": depth}
    for size in GEMM_GROUPS[1:]:
        yield {"group_bytes": size}
    longest = 4 * min(k or GEMM_DEPTHS[0], GEMM_DEPTHS[0])
    for size in GEMM_BLOCKS[1:]:
        if m is None or m > min(size, GEMM_BLOCKS[0]) // longest:
            yield {"block_bytes": size}


def _pieces(k: int | None, depth: int) -> int:
    """Depth blocks of a product; its plan depends on their number alone."""
    return -depth if k is None else -(-k // depth)


# -- convolutions -----------------------------------------------------------------------------------------------------

#: what may be chosen for a convolution of 3x3 taps or more, by the option codegen.winograd
ALGORITHMS: dict[str, tuple[Algorithm, ...]] = {
    "off": ("direct",),
    "f23": ("direct", "winograd2", "winograd2s2"),
    "f33": ("direct", "winograd2", "winograd2s2", "winograd3taps", "winograd3"),
    "f43": ("direct", "winograd2", "winograd2s2", "winograd3taps", "winograd3", "winograd4"),
}


LEAST_SAVED = 1.4  # times fewer products: the transforms take time too


LEAST_IN_GROUP = 16  # channels of one of several groups


def algorithms(option: str, window: Window, channels: int) -> tuple[Algorithm, ...]:
    """Those of ALGORITHMS[option] that can compute a window; channels: inputs or outputs of a group, what is less."""
    if window.groups > 1 and channels < LEAST_IN_GROUP:
        return ("direct",)
    return tuple(a for a in ALGORITHMS[option] if a == "direct" or _fits(WINOGRAD_FORMS[a], window))


def _fits(form: WinogradForm, window: Window) -> bool:
    kernel = window.kernel[-2:]
    dense = min(kernel) >= 3 and window.dilation[-2:] == (1, 1)
    whole = kernel == (3, 3) or not form.taps
    return dense and whole and window.stride[-2:] == (form.stride,) * 2 and form.saved(kernel) >= LEAST_SAVED


CONV_DEPTHS = (384, 128, 256, 512)
CONV_PANELS = (160 << 10, 80 << 10, 320 << 10)
CONV_PIXELS = (256, 128, 512)


def _conv(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Conv)
    window = node.window
    if node.algorithm in ("grouped", "nchw", "integer"):
        return
    own = "direct" if node.algorithm == "transposing" else node.algorithm
    least = min(node.in_shape[-1].constant or 0, node.channel.extent.constant or 0) // window.groups
    for algorithm in algorithms(situation.winograd, window, least):
        if algorithm != own:
            yield {"algorithm": algorithm}
    if own != "direct" or node.depthwise:
        return
    taps, channels = math.prod(window.kernel), node.in_shape[-1].constant
    for depth in CONV_DEPTHS[1:]:
        if channels is None or taps * channels > min(depth, CONV_DEPTHS[0]):
            yield {"depth": depth}
    for size in CONV_PANELS[1:]:
        yield {"panel_bytes": size}
    for pixels in CONV_PIXELS[1:]:
        yield {"pixels": pixels}


# -- attention --------------------------------------------------------------------------------------------------------


KEY_BLOCKS, CHUNKS = (384, 256, 128), (96 << 10, 24 << 10, 48 << 10)


def _attention(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    assert isinstance(node, Attention)
    rows, keys = product(v.extent for v in node.dims[1:3]).constant, node.keys.constant
    if rows is not None and rows <= 8:
        return
    for block in KEY_BLOCKS[1:]:
        if keys is None or keys > block:
            yield {"key_block": block}
    for size in CHUNKS[1:]:
        yield {"chunk_floats": size}


# -- loops over rows --------------------------------------------------------------------------------------------------


TASKS = (16 << 10, 4 << 10, 64 << 10)


def _rows(node: AnyNode, situation: Situation) -> Iterator[dict[str, Value]]:
    """Tasks only matter where threads share them."""
    if situation.threads > 1:
        for size in TASKS[1:]:
            yield {"task": size}


FAMILIES = (
    Family("gemm", (Gemm,), (
        Parameter("depth", "codegen", GEMM_DEPTHS, "longest block of k; sums of blocks are added up"),
        Parameter("group_bytes", "codegen", GEMM_GROUPS, "panels of a group, which stay in the first cache"),
        Parameter("block_bytes", "codegen", GEMM_BLOCKS, "rows of a block, which stay in the second cache"),
    ), _gemm),
    Family("conv", (Conv,), (
        Parameter("algorithm", "lower", ALGORITHMS["f43"], "how a convolution of 3x3 taps or more is computed"),
        Parameter("depth", "codegen", CONV_DEPTHS, "longest block of taps x channels; sums of blocks are added up"),
        Parameter("panel_bytes", "codegen", CONV_PANELS, "weights of a group, which stay in the second cache"),
        Parameter("pixels", "codegen", CONV_PIXELS, "output pixels of a block"),
    ), _conv),
    Family("attention", (Attention,), (
        Parameter("key_block", "codegen", KEY_BLOCKS, "most keys of a block of the online softmax"),
        Parameter("chunk_floats", "codegen", CHUNKS, "queries of a task"),
    ), _attention),
    Family("rows", (Nest, Reduce, Map), (
        Parameter("task", "codegen", TASKS, "elements of a task that a thread takes"),
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


def unknown_part(key: str, choice: Choice) -> str | None:
    """The first part of a choice that the kernel's family does not have: `depth 7`; None: all is known."""
    name = key.partition(" ")[0].partition("-")[0]
    values = {p.name: p.values for family in FAMILIES if family.name == name for p in family.parameters}
    wrong = (f"{name} {value}" for name, value in choice.values if value not in values.get(name, ()))
    return next(wrong, None)
