"""The layers of a captured graph whose weights can be quantised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from ..graph.node import Node
from ..graph.patterns import arg, is_constant, is_op
from ..model.graph import ModelGraph
from ..model.origins import FromModel, Origin
from ..model.source_lines import module_of

Kind = Literal["linear", "embedding", "convolution"]
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
#: layers whose weights have no form of integers
_FLOAT_LAYERS = (
    "lstm", "gru", "rnn_tanh", "rnn_relu", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "bilinear",
    "_embedding_bag", "embedding_bag", "bmm", "baddbmm",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A weight and the operators that read it.

    Attributes:
        name: of the module that reads it, or else of the weight.
        target: the weight's name among the constants of the graph.
        kind: what reads it; of an embedding that is an output head too, "linear".
        weight: [N, K], [N, C, ...] of a convolution, of an embedding [rows, K].
        readers: the operators, with the position of the weight among their arguments.
        transposed: the weight lies as [K, N] in the model.
    """

    name: str
    target: str
    kind: Kind
    weight: torch.Tensor
    readers: tuple[tuple[Node, int], ...]
    transposed: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Both names that a user may know it by."""
        return self.name, self.target

    @property
    def matrix(self) -> torch.Tensor:
        """[N, columns]."""
        weight = self.weight.detach()
        return weight.t() if self.transposed else weight.flatten(1)


@dataclass(frozen=True)
class Left:
    """A weight that stays as it is, and why."""

    name: str
    reason: str


def find_layers(graph: ModelGraph) -> tuple[list[Layer], list[Left]]:
    """The weights in the order of the graph that linear layers, embeddings and convolutions read; and matrices of
    floats that something else reads."""
    found: list[Layer] = []
    left: list[Left] = []
    for node in graph.module.graph.nodes:
        if node.op != "get_attr" or str(node.target) not in graph.constants:
            continue
        tensor = graph.constants[str(node.target)]
        if tensor.dim() < 2 or not tensor.is_floating_point() or not tensor.numel():
            continue
        layer = _layer(node, tensor)
        if isinstance(layer, Layer):
            found.append(layer)
        elif layer is not None:
            left.append(layer)
    order = {node: i for i, node in enumerate(graph.module.graph.nodes)}
    in_order = sorted(found, key=lambda x: min(order[node] for node, _ in x.readers))
    return _with_own_names(in_order, graph.origins), list(dict.fromkeys(left))


def _layer(node: Node, tensor: torch.Tensor) -> Layer | Left | None:
    target = str(node.target)
    reads = [_reader(user, through) for user, through in _users(node)]
    known = [read for read in reads if read is not None]
    if not known:
        other = next((user for user, _ in _users(node) if getattr(user.target, "_opname", "") in _FLOAT_LAYERS), None)
        return None if other is None else Left(module_of(other) or target, f"{other.target} takes floats alone")
    name = module_of(known[0][0]) or target
    others = [user for (user, _), read in zip(_users(node), reads, strict=True) if read is None]
    if others:
        return Left(name, f"{others[0].target} reads it too")
    if tensor.dtype not in _FLOATS:
        return Left(name, f"it is of {str(tensor.dtype).removeprefix('torch.')}")
    if len({odd for _, _, _, odd in known}) > 1:
        return Left(name, "it is read in both directions")
    kinds = [kind for _, _, kind, _ in known]
    kind: Kind = "linear" if "linear" in kinds else kinds[0]
    if "convolution" in kinds and len(set(kinds)) > 1:
        return Left(name, "a convolution and another layer read it")
    readers = tuple((reader, place) for reader, place, _, _ in known)
    return Layer(name, target, kind, tensor, readers, known[0][3])


def _users(node: Node) -> list[tuple[Node, Node]]:
    """The operators that read a constant, through transpositions, with what they read."""
    found: list[tuple[Node, Node]] = []
    for user in node.users:
        transposed = is_op(user, "t", "numpy_T") or (
            is_op(user, "transpose", "permute") and user.meta["val"].dim() == 2
        )
        found += _users(user) if transposed else [(user, node)]
    return found


def _reader(user: Node, read: Node) -> tuple[Node, int, Kind, bool] | None:
    """How an operator reads a weight: at which place, as what, and whether it has to be [K, N] in the model."""
    through = _turns(read)
    if is_op(user, "linear") and user.args[1] is read and user.args[0] is not read and _bias(user, 2) is not read:
        return user, 1, "linear", through
    place = 2 if is_op(user, "addmm") else 1
    if is_op(user, "mm", "matmul", "addmm") and user.args[place] is read and not _reads_before(user, read, place):
        plain = not is_op(user, "addmm") or [arg(user, 3, "beta", 1), arg(user, 4, "alpha", 1)] == [1, 1]
        return (user, place, "linear", not through) if plain else None
    if is_op(user, "embedding") and user.args[0] is read and not through:
        return user, 0, "embedding", False
    if is_op(user, *_CONVOLUTIONS) and user.args[1] is read and user.args[0] is not read:
        return user, 1, "convolution", False
    return None


def _bias(user: Node, place: int) -> Any:
    return arg(user, place, "bias")


def _reads_before(user: Node, read: Node, place: int) -> bool:
    return any(a is read for a in user.args[:place])


def _turns(read: Node) -> bool:
    """Whether what an operator reads is the transposed constant."""
    odd = False
    while not is_constant(read):
        dims = read.args[1:] if is_op(read, "transpose") else arg(read, 1, default=[1, 0])
        odd ^= [d % 2 for d in dims] != [0, 1]
        read = read.args[0]
    return odd


def _with_own_names(layers: list[Layer], origins: Mapping[str, Origin]) -> list[Layer]:
    """Layers of one module are told apart by their weights: attention.in_proj_weight and attention.out_proj."""
    count: Mapping[str, int] = Counter(layer.name for layer in layers)

    def own(layer: Layer) -> str:
        origin = origins.get(layer.target)
        named = origin.names[0] if isinstance(origin, FromModel) else f"{layer.name}.{layer.target}"
        return named.removesuffix(".weight")

    return [replace(x, name=own(x)) if count[x.name] > 1 else x for x in layers]
