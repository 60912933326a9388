"""From an exported program to one flat functional graph.

One walk over torch.export's graph copies it node by node. Regions under set_grad are inlined, assertions become
mycc::assert_true (assertions.py), and in-place operators become functional ones:

    y = relu_(x)                 y = relu(x)
    z = add(x, 1)        ->      z = add(y, 1)          every later use of x reads the new value

A write through a view rebuilds the base, later uses of other views of it are taken again from the new base:

    v = select(x, 0, 0)          w = mul(select(x, 0, 0), 2)
    mul_(v, 2)           ->      x1 = select_scatter(x, w, 0, 0)
    z = add(x, 1)                z = add(x1, 1)

Which tensors share memory is read from the storages of the fake tensors that torch.export left in meta["val"]. What
this cannot say (a write to the parts of complex numbers, autocast regions) raises NeedsRetrace, for torch's own
functionalisation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from ..model.assertions import ASSERTIONS, Assertion, AssertionRefused, assertions_of
from ..model.control import CONTROL
from ..model.fake import recording_fake
from ..model.graph import ModelGraph
from ..model.operators.functional import functional_twin
from ..model.operators.triton_kernels import remember
from .bodies import copy_control
from .flex_attention import FLEX_ATTENTION, VMAP, operands_of, plain_attention, unread_nodes
from .inplace import functional_form, functional_item, rebuild_base, rebuild_by_strides, rebuild_expanded
from .own_calls import OwnCall, WrongCall
from .result_views import piece_of, plain_view, strided_view
from .running_statistics import instance_statistics
from .slices import slice_by_places
from .sparse import NoSparseForm, Sparse, is_sparse, sparse_call
from .strides import overlaps, partly_overlap
from .tensors import NeedsRetrace, RefusedNode, Tensor, bind, is_expanded, storages
from .triton_calls import KERNEL_CALLS, KernelArguments, NoKernel, opened
from .varlen_attention import varlen_attention

__all__ = [
    "DROPOUTS", "INLINED", "SHARED", "WRITE_A_COPY", "FunctionalCopy", "NeedsRetrace", "RefusedNode", "Tensor",
    "overwrites_copies", "stops_derivatives",
]  # fmt: skip

aten = torch.ops.aten

_IDENTITIES = {
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.lift.default,
    aten.alias.default,
    aten.detach.default,
    aten.detach_.default,
}
#: operators that eager torch lets write to tensors whose elements share memory
_INTO_EXPANDED = {
    aten.index_put_.default,
    aten.masked_fill_.Scalar,
    aten.masked_fill_.Tensor,
    aten.index_fill_.int_Scalar,
    aten.index_fill_.int_Tensor,
}
_STOPS = {aten.detach.default, aten.detach_.default}
SHARED = "the model writes to a tensor whose elements share memory, as expand makes them"
SHIFTED = "the model writes to a part of a tensor while it reads another part that overlaps it, which eager refuses"
READ_A_COPY = "Read a copy of the other part: x.clone()."
WRITE_A_COPY = "Write to a copy of it: x.clone()."
_FILLS = {aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default}
DROPOUTS = {
    aten.dropout.default,
    aten.dropout_.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
}
_SET_GRAD, _AUTOCAST = "wrap_with_set_grad_enabled", "wrap_with_autocast"
INLINED = {_SET_GRAD, _AUTOCAST}  # higher-order operators that FunctionalCopy knows
_PART = torch.ops.export.access_subclass_inner_tensor.default
_COPIES = {aten.lift_fresh_copy.default}


class FunctionalCopy:
    """Copies graphs into `graph`, functional: `copy` gives the values of a graph's outputs for the given inputs."""

    def __init__(
        self,
        graph: fx.Graph,
        regions: dict[str, ModelGraph] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        part: Callable[[Tensor, fx.Node], Tensor] | None = None,
        stops: bool = False,
    ) -> None:
        """regions: takes the bodies of control flow. constants: those that get_attr nodes name. part: the tensor that a
        node takes of a constant that is made of several. stops: whether to keep what stops derivatives, as detach()."""
        self.graph = graph
        self.regions = {} if regions is None else regions
        self.constants = {} if constants is None else constants
        self.part = part
        self.stops = stops
        self.assertions: list[Assertion] = []
        self.written: dict[Tensor, fx.Node] = {}  # tensors from outside, each with the first node that writes to it
        self.found: dict[fx.Node, Any] = {}  # what each node of the graphs that were copied has become

    def inner(self, graph: fx.Graph) -> FunctionalCopy:
        """A copier for the body of a branch or loop."""
        return FunctionalCopy(graph, self.regions, self.constants, stops=self.stops)

    def value(self, tensor: Tensor) -> fx.Node:
        """The node that holds a tensor's value at this point; a view of memory written since is taken again."""
        if tensor.stale:
            assert tensor.parent is not None, "only views go stale"
            tensor.node = tensor.retaken(self.graph, self.value(tensor.parent))
            tensor.stale = False
        return tensor.node

    def nodes(self, value: Any) -> Any:
        """Tensors as the nodes that hold their values, in tuples and lists too."""
        if isinstance(value, Tensor):
            return self.value(value)
        if isinstance(value, (tuple, list)):
            return type(value)(self.nodes(v) for v in value)
        return value

    # -- copying --------------------------------------------------------------------------------------------------

    def copy(self, module: fx.GraphModule, inputs: Sequence[Any], constant: Callable[[str], Tensor]) -> Any:
        """Copies the nodes of `module` with its placeholders bound to `inputs` (a Tensor or a Python value each).

        constant(name) gives the tensor that `module` holds as an attribute. Returns the output's structure with a
        Tensor for every tensor node.
        """
        env = self.found
        values = iter(inputs)
        unread = unread_nodes(module.graph)
        for node in module.graph.nodes:
            if node in unread:
                continue
            if node.op == "placeholder":
                env[node] = next(values)
            elif node.op == "get_attr":
                attribute = getattr(module, str(node.target), None)
                env[node] = attribute if isinstance(attribute, fx.GraphModule) else constant(str(node.target))
            elif node.op == "output":
                return bind(node.args[0], env)
            else:
                env[node] = self._call(node, env, constant)
        raise RuntimeError("a graph without an output")

    def _call(self, node: fx.Node, env: dict[fx.Node, Any], constant: Callable[[str], Tensor]) -> Any:
        target = node.target
        if target in ASSERTIONS:
            try:
                self.assertions += assertions_of(self.graph, node, self.nodes(bind(node.args, env)))
            except AssertionRefused as refused:
                raise RefusedNode(node, str(refused), "Say it with .all() or .any().") from None
            return None
        if isinstance(target, HigherOrderOperator):
            return self._region(node, env, constant)
        args = bind(node.args, env)
        if target is operator.getitem and isinstance(args[0], (tuple, list, dict)):
            return args[0][args[1]]
        if target is _PART and self.part is not None:
            return self.part(args[0], node)
        if target is operator.getitem and isinstance(args[0], Tensor) and isinstance(args[1], int):
            piece = piece_of(self.graph, node, args[0], args[1])
            if piece is not None:
                return piece
        if target in _COPIES and isinstance(args[0], Tensor) and args[0].node.op == "get_attr":
            fresh = self.graph.get_attr(str(args[0].node.target))  # torch.tensor([...]) in forward: may be written
            fresh.meta = dict(node.meta)
            return Tensor(fresh)
        if any(isinstance(a, Sparse) for a in args) or is_sparse(node.meta.get("val")):
            return self._sparse(node, args, bind(node.kwargs, env), constant)
        if self.stops and target in _STOPS:
            return self._stopped(args[0], node)
        if target in _IDENTITIES or self._idle_dropout(node):
            return args[0]
        body = opened(node) or varlen_attention(node)
        if body is not None:
            return self.copy(body, [env[n] for n in node.all_input_nodes], constant)
        kwargs = {key: self.nodes(bind(value, env)) for key, value in node.kwargs.items()}
        if isinstance(target, OpOverload) and target._schema.is_mutable:
            if target.namespace != "aten":
                return self._own_operator(node, args, bind(node.kwargs, env))
            return self._write(node, args, kwargs)
        if target is aten.batch_norm.default and node.args[5] and isinstance(args[3], Tensor):
            return self._batch_norm(node, args)
        if target is aten.instance_norm.default and node.args[5] and isinstance(args[3], Tensor):
            return self._instance_norm(node, args, constant)
        if getattr(target, "__module__", "") == VMAP:
            raise NeedsRetrace("a function that torch.vmap maps")
        if target is aten.as_strided.default:
            strided = strided_view(self.graph, node, args[0], self.value(args[0].root()), self.nodes(args[1:]))
            if strided is not None:
                return strided
        new = slice_by_places(self.graph, node, self.nodes(args)) or plain_view(self.graph, node, self.nodes(args))
        if new is None:
            new = self.graph.create_node("call_function", target, self.nodes(args), kwargs, name=node.name)
            new.meta = dict(node.meta)
        return self._result(node, new, env)

    def _sparse(
        self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], constant: Callable[[str], Tensor]
    ) -> Any:
        try:
            return sparse_call(self, node, args, kwargs, constant)
        except NoSparseForm as refused:
            hint = "Products of a sparse matrix with a dense one, their sums with dense ones, and to_dense() compile."
            raise RefusedNode(node, f"the model has {refused}", hint) from None

    @staticmethod
    def _result(node: fx.Node, new: fx.Node, env: dict[fx.Node, Any]) -> Tensor:
        """The tensor that `new` makes, a view when torch.export saw it share memory with an argument."""
        mine = storages(node.meta.get("val"))
        for source in node.all_input_nodes if mine else ():
            parent = env[source]
            if isinstance(parent, Tensor) and mine & storages(source.meta.get("val")):
                return parent.view(new, new if source is node.args[0] else None)
        return Tensor(new)

    @staticmethod
    def _idle_dropout(node: fx.Node) -> bool:
        if node.target not in DROPOUTS:
            return False
        probability, train = _argument(node, 1, "p"), _argument(node, 2, "train")
        return not (train and probability)

    def _region(self, node: fx.Node, env: dict[fx.Node, Any], constant: Callable[[str], Tensor]) -> Any:
        """A higher-order operator that only sets grad mode or switches autocast off, inlined."""
        name = str(node.target)
        if name == _SET_GRAD:
            body, operands = node.args[1], node.args[2:]
            if self.stops and not node.args[0]:
                given = [self._stopped(v, node) if isinstance(v, Tensor) else v for v in bind(operands, env)]
                return self.copy(env[body], given, constant)  # type: ignore[index]
        elif name == _AUTOCAST:
            if node.args[2]:
                raise NeedsRetrace("an autocast region")
            body, operands = node.args[4], node.args[5:]
        elif name in CONTROL:
            return copy_control(self, node, env, constant)
        elif name in KERNEL_CALLS:
            return self._triton_kernel(node, env)
        elif name == FLEX_ATTENTION:
            read = operands_of(node)
            bodies = {n: env[n] for n in read if isinstance(env[n], fx.GraphModule)}
            given = [env[n] for n in read if n not in bodies]
            return self.copy(plain_attention(node, bodies), given, constant)
        elif name.startswith("auto_functionalized"):
            return self._own_operator(node, bind(node.args, env), bind(node.kwargs, env))
        else:
            raise RefusedNode(node, f"torch.ops.higher_order.{name} cannot be compiled")
        return self.copy(env[body], bind(operands, env), constant)  # type: ignore[index]

    def _stopped(self, tensor: Tensor, node: fx.Node) -> Tensor:
        """The tensor as a constant for derivatives."""
        value = self.value(tensor)
        if not value.meta["val"].is_floating_point():
            return tensor
        new = self.graph.call_function(aten.detach.default, (value,))
        new.meta = {**node.meta, "val": value.meta["val"]}
        return tensor.view(new, new)

    # -- writes ---------------------------------------------------------------------------------------------------

    def _write(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: OpOverload = node.target  # type: ignore[assignment]
        old = args[0] if args else None
        if target is aten.set_.source_Tensor and isinstance(old, Tensor):
            return self._replaced(node, old, args[1])
        if isinstance(old, (list, tuple)) and _writes_first_only(target):
            return self._write_list(node, old, args, kwargs)
        if not isinstance(old, Tensor) or not _writes_first_only(target):
            raise NeedsRetrace(f"{target} writes to more than its first argument")
        reshapes = torch.Tag.inplace_view in target.tags  # transpose_ and its like change the shape, no values
        if not reshapes and target not in _INTO_EXPANDED and is_expanded(old.node.meta.get("val")):
            raise RefusedNode(node, SHARED, WRITE_A_COPY)
        self._check_apart(node, old, args)
        new = functional_form(self.graph, node, self.nodes(args), kwargs)
        if new is None:
            raise NeedsRetrace(f"{target} has no functional form")
        if reshapes:
            return old.view(new, new)
        self.update(old, new, node)
        return old

    @staticmethod
    def _replaced(node: fx.Node, old: Tensor, new: Tensor) -> Tensor:
        """x.set_(y): x is another name of y from here on, where nobody else sees its memory."""
        if old.root().outside or old.root() is not old or any(view is not old for view in old.below()):
            message = "the model gives other memory to a tensor that its caller, a buffer or a view holds, too"
            hint = "It comes of set_(), or of out= where the run finds the size. Return the result instead."
            raise RefusedNode(node, message, hint)
        return new

    def _check_apart(self, node: fx.Node, written: Tensor, args: Sequence[Any]) -> None:
        """Raises RefusedNode where an operator of single elements reads others that it has written, as eager does."""
        if torch.Tag.pointwise not in node.target.tags and node.target is not aten.copy_.default:  # type: ignore[union-attr]
            return
        for read in args[1:]:
            same = isinstance(read, Tensor) and read is not written and read.root() is written.root()
            if same and partly_overlap(written.node.meta.get("val"), read.node.meta.get("val")):
                raise RefusedNode(node, SHIFTED, READ_A_COPY)

    def _write_list(self, node: fx.Node, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> Sequence[Tensor]:
        """An operator that writes to each tensor of a list: one after the other, since they may share memory."""
        for i, old in enumerate(tensors):
            new = functional_item(self.graph, node, i, self.nodes(args), kwargs)
            if new is None:
                raise NeedsRetrace(f"{node.target} has no functional form")
            self.update(old, new, node)
        return tensors

    def _own_operator(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An operator of the user's own that writes to its arguments: a call of its functional twin."""
        call: OwnCall[Tensor] = OwnCall(node, args, kwargs)
        try:
            values = call.values
        except WrongCall as wrong:
            raise RefusedNode(node, str(wrong), "Give it as a tensor.") from None
        name = call.shared(lambda a, b: a.root() is b.root())
        if name is not None:
            message = f"{call.name} writes to '{name}', which shares memory with another of its arguments"
            raise RefusedNode(node, message, "Give it a copy of one of them: x.clone().")
        values = [*values, *(_unwritten(self.value(t).meta["val"]) for t in call.written)]
        named = {key: self.nodes(value) for key, value in call.kwargs.items()}
        new = self.graph.call_function(functional_twin(call.operator), self.nodes(tuple(call.args)), named)
        new.meta = {**node.meta, "val": values, "mycc_origins": ((node.name, str(call.operator)),)}
        parts = []
        for place, value in enumerate(values):
            part = self.graph.call_function(operator.getitem, (new, place))
            part.meta = {**node.meta, "val": value}
            parts.append(part)
        if not call.functionalised:
            for tensor, part in zip(call.written, parts[len(values) - len(call.written) :], strict=True):
                self.update(tensor, part, node)
        return call.structure(iter([Tensor(part) for part in parts]))

    def _triton_kernel(self, node: fx.Node, env: dict[fx.Node, Any]) -> dict[str, Tensor]:
        """A call of a Triton kernel: mycc::triton_kernel, whose results are the new values of what it writes to."""
        try:
            given = KernelArguments(node)
            number = remember(given.call())
        except NoKernel as refused:
            raise RefusedNode(node, refused.message, refused.hint) from None
        tensors: list[Tensor] = [env[n] for n in given.tensors]
        values = [given.tensors[i].meta["val"] for i in given.written]
        operands = (
            self.nodes(tensors),
            *(self.nodes(bind(list(v), env)) for v in (given.grid, given.sizes)),
            number,
        )
        new = self.graph.call_function(torch.ops.mycc.triton_kernel.default, operands)
        new.meta = {**node.meta, "val": values, "mycc_origins": (given.name,)}
        updates: dict[str, Tensor] = {}
        for place, i in enumerate(given.written):
            part = self.graph.call_function(operator.getitem, (new, place))
            part.meta = {**node.meta, "val": values[place]}
            if str(node.target) == KERNEL_CALLS[0]:
                self.update(tensors[i], part, node)
            updates[given.names[i]] = Tensor(part)
        return {name: updates.get(name, tensors[i]) for i, name in enumerate(given.names)}

    def _batch_norm(self, node: fx.Node, args: Any) -> Tensor:
        """Batch norm in training mode, which also writes to its running statistics."""
        x, weight, bias, mean, variance, _, momentum, eps, _ = args
        operands = self.nodes((x, weight, bias, mean, variance))
        statistics = [operands[3].meta["val"], operands[4].meta["val"]]
        target = aten._native_batch_norm_legit_functional.default
        with recording_fake(statistics[0].fake_mode):
            fakes = [n.meta["val"] if n is not None else None for n in operands]
            values = target(*fakes, True, momentum, eps)
        new = self.graph.call_function(target, (*operands, True, momentum, eps))
        new.meta = {**node.meta, "val": values}
        parts = []
        for i, like in ((0, values[0]), (3, statistics[0]), (4, statistics[1])):
            part = self.graph.call_function(operator.getitem, (new, i))
            part.meta = {**node.meta, "val": values[i]}
            if values[i].dtype != like.dtype:  # of halves, torch's definition has statistics in float32
                part = self.graph.call_function(aten.to.dtype, (part, like.dtype))
                part.meta = {**node.meta, "val": like}
            parts.append(part)
        elements = operands[0].meta["val"].numel()
        if not isinstance(elements, int) or elements:  # of nothing there are no statistics
            self.update(mean, parts[1], node)
            self.update(variance, parts[2], node)
        return Tensor(parts[0])

    def _instance_norm(self, node: fx.Node, args: Any, constant: Callable[[str], Tensor]) -> Tensor:
        """Instance norm by the statistics of its input, which also writes to the running ones."""
        x, weight, bias, mean, variance, *rest = args
        updated = self.copy(instance_statistics(node), [x, mean, variance], constant)
        new = self.graph.call_function(aten.instance_norm.default, (*self.nodes((x, weight, bias)), None, None, *rest))
        new.meta = dict(node.meta)
        for old, now in zip((mean, variance), updated, strict=True):
            self.update(old, self.value(now), node)
        return Tensor(new)

    def update(self, tensor: Tensor, new: fx.Node, by: fx.Node) -> None:
        """Gives a tensor a new value, and with it everything that it is a view of; its other views become stale.

        by: the operator that writes it."""
        if tensor.root().outside:
            self.written.setdefault(tensor.root(), by)
        for view in tensor.root().below():
            if view is not tensor and view.taken_by is None:
                raise NeedsRetrace("a view of several tensors")
        chain = self._rebuilt(tensor, new, by)
        for view in tensor.root().below():
            view.stale = True
        for owner, node in chain:
            owner.node, owner.stale = node, False

    def _rebuilt(self, tensor: Tensor, new: fx.Node, by: fx.Node) -> list[tuple[Tensor, fx.Node]]:
        """A tensor and what it is a view of, each with the value that a write leaves in it; the root at least."""
        chain = [(tensor, new)]
        value, part = new, tensor
        while part.parent is not None:
            assert part.taken_by is not None
            if part.taken_by.target is aten.expand.default and not _accumulates(by):
                through_a_view = part is not tensor and is_expanded(tensor.node.meta.get("val"))
                if by.target is aten.index_put_.default and through_a_view:  # which copies it writes is not known
                    raise RefusedNode(by, SHARED, WRITE_A_COPY)
                rebuilt = rebuild_expanded(self.graph, self.value(part.parent), part.taken_by, value)
                if rebuilt is None:
                    raise RefusedNode(by, SHARED, WRITE_A_COPY)
                chain = []  # the copies of `new` may differ: views are taken again
            else:
                rebuilt = rebuild_base(self.graph, self.value(part.parent), part.taken_by, value)
            if rebuilt is None:
                whole = self._by_strides(tensor, new, by)
                if whole is None:
                    raise NeedsRetrace(f"a write through {part.taken_by.target}")
                return [(tensor, new), (tensor.root(), whole)]
            value, part = rebuilt, part.parent
            chain.append((part, value))
        return chain

    def _by_strides(self, tensor: Tensor, new: fx.Node, by: fx.Node) -> fx.Node | None:
        """What a write to a view leaves in its root, by its strides there; None where these are not known."""
        taken = [t.taken_by for t in tensor.chain() if t.parent is not None]
        if not all(node is not None and node.op == "call_function" for node in taken):
            return None
        assert taken[0] is not None
        uniform = by.target in _FILLS
        value = taken[0].meta["val"]
        if not uniform and not is_expanded(value) and overlaps(value):
            raise RefusedNode(by, "the model writes to a tensor whose elements share memory", WRITE_A_COPY)
        return rebuild_by_strides(self.graph, self.value(tensor.root()), taken[0], new, uniform)


def stops_derivatives(node: fx.Node) -> bool:
    """Whether a node is detach() or a region under torch.no_grad()."""
    return node.target in _STOPS or (str(node.target) == _SET_GRAD and not node.args[0])


def overwrites_copies(node: fx.Node) -> bool:
    """Whether a node writes to an expanded tensor without adding: torch's functional form is wrong there, as it sums
    the changes of all copies."""
    if node.target not in _INTO_EXPANDED or _accumulates(node):
        return False
    return isinstance(node.args[0], fx.Node) and is_expanded(node.args[0].meta.get("val"))


def _accumulates(node: fx.Node) -> bool:
    """Whether a write adds to what its elements held."""
    return node.target is aten.index_put_.default and bool(_argument(node, 3, "accumulate"))


def _unwritten(like: torch.Tensor) -> torch.Tensor:
    """A fake tensor for a new value of another."""
    with like.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)


def _writes_first_only(op: OpOverload) -> bool:
    written = [i for i, a in enumerate(op._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    return written == [0]


def _argument(node: fx.Node, position: int, name: str) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)
