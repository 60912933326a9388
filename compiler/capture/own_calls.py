"""Calls of operators of the user's own that write to their arguments: which tensors those are, and what comes of them.

    step(p, m, lr)      ->      y, new_m = mycc::ns__step(p, m, lr); everything later reads new_m for m

As torch.export shows them, or as torch's own functionalisation does (auto_functionalized).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ..model.operators.functional import tensors_of, written_arguments

__all__ = ["OwnCall", "WrongCall"]

T = TypeVar("T")


class WrongCall(Exception):
    """A call that has no functional form."""


class OwnCall(Generic[T]):
    """One call. T: what stands for a tensor of the program. functionalised: torch has done it: the results are there
    already for the new values, and the arguments stay as they are."""

    def __init__(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """args, kwargs: of the node."""
        self.functionalised = not isinstance(node.target, OpOverload)
        self.operator: OpOverload = args[0] if self.functionalised else node.target  # type: ignore[assignment]
        self.args: Sequence[Any] = () if self.functionalised else args
        self.kwargs = kwargs
        val: Any = node.meta.get("val")
        self._val = val
        returns = len(self.operator._schema.returns)
        self._results = val[:returns] if self.functionalised else val
        self._written = written_arguments(self.operator, self.args, kwargs)
        self.name = str(self.operator).removesuffix(".default").replace(".", "::", 1)

    @property
    def written(self) -> list[T]:
        """The tensors that the operator writes to."""
        return tensors_of(self._written)

    @property
    def values(self) -> list[torch.Tensor]:
        """The operator's own results, as fake tensors."""
        found = tensors_of([("", self._results)])
        if not all(isinstance(v, torch.Tensor) for v in found):
            raise WrongCall(f"{self.name}, which writes to its arguments, gives a number")
        return found

    def shared(self, same: Any) -> str | None:
        """The name of an argument that is written to and shares memory with another; same(a, b): whether two do."""
        every = tensors_of([("", [*self.args, *self.kwargs.values()])])
        tensors = [t for t in every if isinstance(t, tuple({type(w) for w in self.written}))]
        for name, value in self._written:
            for t in tensors_of([("", value)]):
                if sum(same(t, other) for other in tensors) > 1:
                    return name
        return None

    def structure(self, parts: Iterator[T]) -> Any:
        """What the node gives, made of the results and then of the new values."""
        if not self.functionalised:
            return pytree.tree_map(lambda _: next(parts), self._val)
        return [pytree.tree_map(lambda v: None if v is None else next(parts), v) for v in self._val]
