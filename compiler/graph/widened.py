"""Quantised weights that are floats all the same: in the package, or made so in every call."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from ..ir.layouts import RUNS, fills_lines, line_values, run_of
from ..machine.targets import Family
from ..model.graph import ModelGraph, dtype_name
from ..model.operators.quantised import ZEROS
from ..model.source_lines import module_of, place_of
from .fold.constants import INTEGERS, NARROW, SMALL
from .node import Node
from .patterns import is_constant, is_op

__all__ = ["widened_weights"]

_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
#: operators that read a matrix of weights, and where it stands among their arguments
_READERS = {
    "linear": (1,), "mm": (0, 1), "matmul": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), (1,)),
    **dict.fromkeys(_TRANSPOSED, (1,)),
}  # fmt: skip

#: products of weights with scales by groups, and where the weight stands among their arguments
_GROUPED = {"mycc.grouped_mm.default": 1, "mycc.grouped_int_mm.default": 2}
#: products of weights of float8, and the byte of its NaN without the sign
_FLOAT8 = ("mycc.float8_mm.default", "mycc.grouped_mm.default")
_NAN = 0x7F


def widened_weights(graph: ModelGraph, families: Collection[Family] = frozenset({"cpu"})) -> list[str]:
    """A sentence for each layer that takes its quantised weight as floats, of the graph behind the passes."""
    found = dict.fromkeys(_sentences(graph))
    if "cpu" in families:
        found.update(dict.fromkeys(_not_numbers(graph)))
    found.update(dict.fromkeys(_by_groups(graph, families)))
    for region in graph.regions.values():
        found.update(dict.fromkeys(widened_weights(region, families)))
    return list(found)


def _not_numbers(graph: ModelGraph) -> Iterator[str]:
    """Of each layer whose weight is of float8 with NaN, for which kernels of CPUs do not look."""
    for node in graph.module.graph.nodes:
        weight = node.args[1] if str(node.target) in _FLOAT8 else None
        if not isinstance(weight, Node) or not is_constant(weight) or weight.meta["val"].numel() <= SMALL:
            continue
        raw = graph.constants[str(weight.target)]
        is_float8 = raw.dtype in (torch.uint8, torch.float8_e4m3fn) and (len(node.args) < 5 or node.args[4] == 8)
        if is_float8 and bool((raw.view(torch.uint8) & _NAN == _NAN).any()):
            name = module_of(node) or str(weight.target)
            yield f"the float8 weight of '{name}' holds NaN: CPUs multiply it in loops, as floats ({place_of(node)})"


def _by_groups(graph: ModelGraph, families: Collection[Family]) -> Iterator[str]:
    """Of each layer whose groups have a size, or whose scales and zeros are such, that no kernel reads them."""
    for node in graph.module.graph.nodes:
        first = _GROUPED.get(str(node.target))
        if first is None or not is_constant(node.args[first]):
            continue
        weight, scales, zeros, bits, group = node.args[first : first + 5]
        name, k = module_of(node) or str(weight.target), scales.meta["val"].shape[1] * group
        beside = f"the weight of '{name}' is multiplied in loops, as floats that are made in every call:"
        if not is_constant(scales) or not (zeros is None or is_constant(zeros)):
            yield f"{beside} its scales are computed ({place_of(node)})"
        elif zeros is not None and zeros.meta["val"].dtype not in ZEROS:
            yield f"{beside} its zeros are {dtype_name(zeros.meta['val'].dtype)} ({place_of(node)})"
        elif "cpu" in families and not fills_lines(group, k, bits):
            takes = f"CPUs take groups of a multiple of {line_values(bits)}"
            yield f"{beside} it has a scale for each {group} values, and {takes} ({place_of(node)})"
        elif "cuda" in families and not run_of(group, k, first > 1):
            takes = f"GPUs take groups of a multiple of {RUNS[-2 if first > 1 else -1]}"
            yield f"{beside} it has a scale for each {group} values, and {takes} ({place_of(node)})"


def _sentences(graph: ModelGraph) -> Iterator[str]:
    constant: set[Node] = set()
    for node in graph.module.graph.nodes:
        if is_constant(node) or (node.op == "call_function" and all(n in constant for n in node.all_input_nodes)):
            constant.add(node)
        for place in _READERS.get(node.target._opname, ()) if is_op(node, *_READERS) else ():
            weight = node.args[place] if place < len(node.args) else None
            if not isinstance(weight, Node) or weight not in constant or weight.meta["val"].numel() <= SMALL:
                continue
            name, where = module_of(node) or str(weight.target), place_of(node)
            if is_constant(weight) and weight.meta.get(INTEGERS) is not None:
                kind, floats = dtype_name(weight.meta[INTEGERS]), dtype_name(weight.meta["val"].dtype)
                yield f"the quantised weight of '{name}' ({kind}) is kept as {floats}: {_reason(node)} ({where})"
                continue
            stored = _integers(weight)
            if stored is not None:
                own = graph.constants.get(str(stored.target))
                kind = dtype_name(own.dtype) if own is not None else "integers"
                name = module_of(node) or str(stored.target)
                yield f"the weight of '{name}' is kept as {kind} and widened to floats in every call ({where})"


def _reason(node: Node) -> str:
    if is_op(node, *_TRANSPOSED) or (is_op(node, "convolution") and node.args[6]):
        return "transposed convolutions have no kernels of integers"
    if is_op(node, "conv1d", "conv2d", "conv3d", "convolution"):
        return "convolutions of integers take maps of 8 bits, and weights with a scale by output and no zero points"
    return "its scales are not those of rows or of groups in a row"


def _integers(weight: Node) -> Node | None:
    """The constant of integers that a weight is computed from; None for one of floats."""
    pending, seen = [weight], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_constant(node) and node.meta["val"].dtype in NARROW and node.meta["val"].numel() > SMALL:
            return node
        pending += node.all_input_nodes
    return None
