"""Calls of aten's overloads with arguments made from their schemas, many of them in one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower.core.driver import unsupported
from mycc.compiler.verify import eager
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree


def floats(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))) * 0.8 + 0.1


def whole(shape: tuple[int, ...]) -> Tensor:
    return torch.randint(1, 3, shape, generator=torch.Generator().manual_seed(len(shape)))


def truths(shape: tuple[int, ...]) -> Tensor:
    return floats(shape) < 0.5


KINDS: tuple[tuple[Callable[[tuple[int, ...]], Tensor], Any], ...] = ((floats, 0.3), (whole, 2), (truths, True))
BY_TYPE = {"int": 1, "SymInt": 1, "bool": False, "float": 0.3, "str": "sum", "List[int]": [3, 3], "number": 0.3}
#: arguments, by the name of the operator or of the argument, that are not those of its type
SPECIAL: dict[str, Any] = {
    "dim": 0,
    "dim0": 0,
    "dim1": 1,
    "index": torch.tensor([[0, 2, 1], [1, 0, 2], [2, 1, 0]]),
    "condition": truths((3, 3)),
    "mask": truths((3, 3)),
    "indices": [torch.tensor([0, 2])],
    "batch1": floats((2, 3, 3)),
    "batch2": floats((2, 3, 3)),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "addbmm_": (floats((3, 3)), floats((2, 3, 3)), floats((2, 3, 3))),
    "addmv_": (floats((3,)), floats((3, 3)), floats((3,))),
    "addr_": (floats((3, 3)), floats((3,)), floats((3,))),
    "baddbmm_": (floats((2, 3, 3)), floats((2, 3, 3)), floats((2, 3, 3))),
    "index_add_": (floats((3, 3)), 0, torch.tensor([0, 2, 2]), floats((3, 3))),
    "index_copy_": (floats((3, 3)), 0, torch.tensor([0, 2, 1]), floats((3, 3))),
    "index_fill_": (floats((3, 3)), 0, torch.tensor([0, 2])),
    "index_reduce_": (floats((3, 3)), 0, torch.tensor([0, 2, 2]), floats((3, 3)), "amax"),
    "index_put_": (floats((3, 3)), [torch.tensor([0, 2])], floats((2, 3))),
    "masked_scatter_": (floats((3, 3)), truths((3, 3)), floats((3, 3))),
    "scatter_reduce_": (floats((3, 3)), 0, SPECIAL["index"], floats((3, 3)), "amax"),
    "bucketize.Scalar": (0.3, floats((4,)).sort().values),
    "searchsorted.Scalar": (floats((4,)).sort().values, 0.3),
    **{f"{name}space.Scalar_Tensor": (0.3, floats(()), 4) for name in ("lin", "log")},
    **{f"{name}space.Tensor_Scalar": (floats(()), 1.5, 4) for name in ("lin", "log")},
    "put_": (floats((3, 3)), torch.tensor([1, 4]), floats((2,))),
    "renorm_": (floats((3, 3)), 2.0, 0, 1.0),
    "embedding_renorm_": (floats((3, 3)), torch.tensor([0, 2]), 0.5, 2.0),
    "squeeze_.dims": (floats((3, 1)), [1]),
    "clamp_.Tensor": (floats((3, 3)), floats((3, 3)), floats((3, 3)) + 0.2),
    "clamp_": (floats((3, 3)), 0.2, 0.5),
    "clip_.Tensor": (floats((3, 3)), floats((3, 3)), floats((3, 3)) + 0.2),
    "clip_": (floats((3, 3)), 0.2, 0.5),
    "float_power_.Scalar": (floats((3, 3)).double(), -0.5),
    "float_power_.Tensor": (floats((3, 3)).double(), floats((3, 3)) * 3),
    "masked_fill_.Scalar": (floats((3, 3)), truths((3, 3)), -1.5),
    "masked_fill_.Tensor": (floats((3, 3)), truths((3, 3)), floats(())),
    "swapaxes_": (floats((3, 3)), 0, 1),
    "swapdims_": (floats((3, 3)), 0, 1),
}
ZERO_DIM = {"fill.Tensor", "index_fill.int_Tensor", *(f"_foreach_{n}.Tensor" for n in ("add", "mul", "div"))}
FLOOR = {"rounding_mode": "floor"}
#: keyword arguments that a call needs, in place or not
NAMED: dict[str, dict[str, Any]] = {
    "scatter.reduce": {"reduce": "multiply"},
    "scatter.value_reduce": {"reduce": "add"},
    "round.decimals": {"decimals": 1},
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode", "divide.Scalar_mode"), FLOOR),
}


def arguments(op: OpOverload, kind: tuple[Callable[[tuple[int, ...]], Tensor], Any]) -> list[Any]:
    """What a call is tried with: tensors of one kind, and numbers that fit them."""
    tensor, number = kind
    key = str(op).removeprefix("aten.").removesuffix(".default")
    special = ARGUMENTS.get(key, ARGUMENTS.get(f"{op._opname.removesuffix('_')}_", ()))
    given: list[Any] = []
    for i, argument in enumerate(op._schema.arguments):
        type_ = str(argument.type)
        if i < len(special):
            given.append(special[i])
        elif argument.has_default_value() or argument.kwarg_only:
            continue
        elif argument.name in SPECIAL:
            given.append(SPECIAL[argument.name])
        elif type_ == "Tensor":
            scalar = i > 0 and key.replace("_.", ".") in ZERO_DIM
            given.append(tensor((2,)) if argument.name == "scalars" else tensor(()) if scalar else tensor((3, 3)))
        elif type_ == "List[Tensor]":
            given.append([tensor((3, 3)), tensor((3, 3)) + tensor((3, 3))])
        elif type_ == "List[number]":
            given.append([number, number])
        else:
            given.append(number if type_ == "number" else BY_TYPE.get(type_))
    return given


class Call:
    """A call of an overload on copies of its tensors: what it returns, or leaves in its first argument."""

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        refused: Exception | None = None
        for kind in KINDS:
            self.leaves, self.spec = pytree.tree_flatten(arguments(op, kind))
            self.tensors = [x for x in self.leaves if isinstance(x, Tensor)]
            try:
                self(*self.tensors)
            except (RuntimeError, IndexError, TypeError) as error:
                refused = error
            else:
                return
        raise AssertionError(f"no arguments for {op}: {refused}")

    def __call__(self, *values: Tensor) -> list[Tensor]:
        rest = iter(values)
        leaves = [next(rest).clone() if isinstance(x, Tensor) else x for x in self.leaves]
        args = pytree.tree_unflatten(leaves, self.spec)
        function = getattr(torch, self.op._opname, None) if self.op._opname.startswith("_foreach_") else None
        result = (function or self.op)(*args, **NAMED.get(str(self.op).removeprefix("aten.").replace("_.", "."), {}))
        return pytree.tree_leaves(args[0] if self.op._schema.is_mutable else result)


def same_as_eager(calls: Sequence[Call]) -> None:
    """Captures the calls as one model; after the graph passes mycc lowers all of it, and the values are eager's."""
    tensors = tuple(t for call in calls for t in call.tensors)

    def model(*values: Tensor) -> list[list[Tensor]]:
        rest = iter(values)
        return [call(*(next(rest) for _ in call.tensors)) for call in calls]

    result = run_graph_passes(capture(model, tensors))
    assert not unsupported(result)
    found = iter(eager(result, tensors))
    for call, want in zip(calls, model(*tensors), strict=True):
        for expected in want:
            torch.testing.assert_close(next(found), expected, equal_nan=True, msg=lambda m, c=call: f"{c.op}: {m}")
