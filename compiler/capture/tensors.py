"""Tensors of a program while its graph is made functional: the value of each, and which are views of which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..model.control import MUTABLE
from .inplace import take_view

__all__ = ["NeedsRetrace", "RefusedNode", "Tensor", "bind", "is_expanded", "is_fixed", "storages"]


class NeedsRetrace(Exception):
    """The graph holds something that only torch's own functionalisation can rewrite."""


class RefusedNode(Exception):
    """A node that no package can run."""

    def __init__(self, node: fx.Node, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint


@dataclass(eq=False)
class Tensor:
    """A tensor of the program: the node that holds its value now, and what it is a view of.

    Attributes:
        node: its value, out of date when `stale`.
        parent, taken_by: the tensor this is a view of, and the node that took the view.
        outside: an input, parameter or buffer: whoever copies the graph asks for its value at the end.
    """

    node: fx.Node
    parent: Tensor | None = None
    taken_by: fx.Node | None = None
    outside: bool = False
    stale: bool = False
    views: list[Tensor] = field(default_factory=list)

    def root(self) -> Tensor:
        """The tensor that owns the memory."""
        return self if self.parent is None else self.parent.root()

    def chain(self) -> Iterator[Tensor]:
        """The tensor, what it is a view of, and so on to the root."""
        yield self
        if self.parent is not None:
            yield from self.parent.chain()

    def below(self) -> Iterator[Tensor]:
        """The views of it, and the views of those."""
        for view in self.views:
            yield view
            yield from view.below()

    def view(self, node: fx.Node, taken_by: fx.Node | None) -> Tensor:
        """A view of this tensor."""
        made = Tensor(node, self, taken_by)
        self.views.append(made)
        return made

    def retaken(self, graph: fx.Graph, base: fx.Node) -> fx.Node:
        """The view's value once more, of a new value of what it is a view of."""
        assert self.taken_by is not None, "update refuses views without an operator"
        return take_view(graph, self.taken_by, base)


def storages(value: object) -> set[int]:
    """Identities of the memory behind a fake tensor, or behind several."""
    if isinstance(value, torch.Tensor):
        return {value.untyped_storage()._cdata}
    if isinstance(value, (tuple, list)):
        return {s for v in value for s in storages(v)}
    return set()


def is_expanded(value: object) -> bool:
    """Whether many elements of a fake tensor are one in memory."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    return any(
        isinstance(step, int) and step == 0 and not (isinstance(size, int) and size < 2)
        for size, step in zip(value.shape, value.stride(), strict=True)
    )


def is_fixed(tensor: Tensor) -> bool:
    """A parameter or constant that is the same in every call."""
    return tensor.node.op == "get_attr" and not tensor.node.meta.get(MUTABLE)


def bind(value: Any, env: dict[fx.Node, Any]) -> Any:
    """An argument structure with what env holds in place of its nodes."""
    if isinstance(value, fx.Node):
        return env[value]
    if isinstance(value, (tuple, list)):
        return type(value)([bind(v, env) for v in value])
    if isinstance(value, dict):
        return {k: bind(v, env) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(bind(v, env) for v in (value.start, value.stop, value.step)))
    return value
