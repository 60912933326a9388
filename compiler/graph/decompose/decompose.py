"""Pass: operators that the lowering does not take whole, as operators that it does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from ....runtime.errors import CompileError
from ...capture.assumptions import body_holds
from ...model.fake import recording_fake
from ...model.operators.kept import CUSTOM
from ...model.origins import FIXED
from ...model.source_lines import origin
from ..complex.parts import has_rule
from ..node import Node
from ..patterns import arg, op
from ..updates import MARK
from ..work import Work
from .all_families import DECOMPOSITIONS
from .definitions import NoDecomposition
from .derived_definitions import derived_definition

#: identities and casts, which the normalising pass behind this one takes care of
_NORMALIZED = ("clone", "alias", "detach", "contiguous", "lift", "lift_fresh", "lift_fresh_copy", "to", "type_as")

#: attention that the lowering takes in float32 and without dropout: the place of the probability among its arguments
_DROPOUT = {
    "scaled_dot_product_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 3,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 6,
}

#: our own, which the lowering takes in float32: the recognition of attention decides what the first two become
_OWN_ATTENTION = (
    "mycc.attention.default",
    "mycc.softmax_values.default",
    "mycc.trained_attention.default",
    "mycc.attention_gradient.default",
)

OpOverload = torch._ops.OpOverload
_ROUNDS = 8  # a decomposition may bring in operators that have one themselves


def decompose(work: Work, kept: Collection[str]) -> dict[str, int]:
    """y = einsum("bhqd,bhkd->bhqk", [q, k])     ->     y = matmul(q, permute(k, [0, 1, 3, 2]))
       y = glu(x, -1)                            ->     a, b = split(x, ...); y = mul(a, sigmoid(b))

    First from our own table (definitions.py), then from the operator's own composite definition, then from torch's
    decompositions. Each is traced once on fake tensors, with the size symbols of the capture. Needs NORMAL
    (else it would trace identities); establishes KEPT_ONLY as far as decompositions exist: what is left is reported by
    the lowering.

    Args:
        kept: operators, without overload or with one, that stay.
    """
    count = 0
    for _ in range(_ROUNDS):
        nodes = [n for n in work.graph.nodes if _wanted(n, kept)]
        done = sum(decompose_node(work, node) for node in nodes)
        count += done
        if not done:
            break
    return {"decomposed": count} if count else {}


def _wanted(node: Node, kept: Collection[str]) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload) or not node.users:
        return False
    if node.meta.get(MARK):
        return False
    if str(node.target) in CUSTOM:
        return False
    if str(node.target) in _OWN_ATTENTION:
        return _is_float64(node)
    if op(node) in ("index_put", "_unsafe_index_put") and any(_is_mask(i) for i in node.args[1]):
        return True
    if op(node) in _DROPOUT and (_is_float64(node) or arg(node, _DROPOUT[op(node)], "dropout_p", 0.0)):
        return True
    if op(node) == "pad" and arg(node, 2, "mode", "constant") != "constant":
        return not _is_static(node)
    if op(node) == "linear" and not _is_matrix_layer(node):
        return True
    if op(node) == "nextafter" and node.meta["val"].dtype in (torch.float16, torch.bfloat16):
        return True
    if has_rule(node):
        return False
    return op(node) not in kept and op(node) not in _NORMALIZED and str(node.target) not in kept


def _is_float64(node: Node) -> bool:
    value = node.meta["val"]
    return (value if isinstance(value, torch.Tensor) else value[0]).dtype == torch.float64


def _is_matrix_layer(node: Node) -> bool:
    """Whether a linear layer has a matrix of weights, and one number of the bias for each output if any."""
    weight, bias = arg(node, 1, "weight"), arg(node, 2, "bias")
    return weight.meta["val"].dim() == 2 and (bias is None or bias.meta["val"].shape == weight.meta["val"].shape[:1])


def _is_static(node: Node) -> bool:
    """Whether a padding's sizes are all numbers, and none of its sides is cut."""
    sizes = [*node.args[0].meta["val"].shape, *node.args[1]]
    return all(isinstance(n, int) and n >= 0 for n in sizes)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Node) and index.meta["val"].dtype == torch.bool


@cache
def _torch_table() -> dict[Any, Callable[..., Any]]:
    """All of torch's decompositions; core ATen's where both have one."""
    table = {**decomposition_table, **dict(core_aten_decompositions().items())}
    return {target: function for target, function in table.items() if isinstance(target, OpOverload)}


def _definitions(target: OpOverload) -> list[Callable[..., Any]]:
    """What may define an operator, the first before the others; a composite one may call itself again."""
    own = DECOMPOSITIONS.get(f"{target.namespace}.{target._opname}") or DECOMPOSITIONS.get(str(target))
    if own is not None:
        return [own]
    composite = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    found = [target.decompose if composite else None, _torch_table().get(target), derived_definition(target)]
    return [definition for definition in found if definition is not None]


def decompose_node(work: Work, node: Node) -> bool:
    """Puts the definition of an operator in its place; False when none is known."""
    for definition in _definitions(node.target):
        body = _trace_definition(work, node, definition)
        if body is not None:
            _splice(work, node, body)
            return True
    return False


def _trace_definition(work: Work, node: Node, definition: Callable[..., Any]) -> torch.fx.GraphModule | None:
    """The definition on the node's fake arguments, as a graph whose placeholders are its argument nodes."""
    nodes = list(dict.fromkeys(node.all_input_nodes))
    used = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
    key = _body_key(node, definition, nodes, used)
    if key is not None and key in work.bodies:
        return work.bodies[key]

    def run(*values: Any) -> Any:
        env = dict(zip(nodes, values, strict=True))
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
        result = definition(*_plain(args), **_plain(kwargs))
        return _in_types_of(result, node.meta["val"], used)

    body = trace(work, node, run, [n.meta["val"] for n in nodes])
    body = None if body is None or _is_no_progress(body, node) else body
    if key is not None:
        work.bodies[key] = body
    return body


def _body_key(
    node: Node, definition: Callable[..., Any], nodes: Sequence[Node], used: Collection[Any]
) -> tuple[Any, ...] | None:
    """All that a definition's graph depends on: layers that are alike have it traced once. None where a size is no
    number, since the trace then asks about sizes at this line of the model."""
    values = [*(n.meta.get("val") for n in nodes), node.meta["val"]]
    if not all(_is_fixed(v) for v in values):
        return None
    places: dict[Any, str] = {n: f"operand {i}" for i, n in enumerate(nodes)}
    arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: places[n])
    return (node.target, definition, repr(arguments), repr(sorted(used)), *map(_described, values))


def _is_fixed(value: Any) -> bool:
    """Whether a value is known up to the elements of its tensors."""
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset()) if value.layout == torch.strided else (None,)
        return all(isinstance(n, int) for n in sizes)
    if isinstance(value, (tuple, list)):
        return all(map(_is_fixed, value))
    return value is None or isinstance(value, (bool, int, float))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        bits = value.is_conj(), value.is_neg()
        return value.dtype, value.device, tuple(value.shape), value.stride(), value.storage_offset(), bits
    return tuple(map(_described, value)) if isinstance(value, (tuple, list)) else repr(value)


def _in_types_of(result: Any, val: Any, used: Collection[Any]) -> Any:
    """The results in the types that the operator gives: a definition may have promoted its operands to another one.

    Of several, those that nobody uses stay as they are: what an operator keeps for its gradient need not be made.

    Raises:
        ValueError: the definition gives what the operator does not: another shape, parts for complex numbers.
    """
    if isinstance(result, (tuple, list)) and isinstance(val, (tuple, list)):
        pairs = enumerate(zip(result, val, strict=False))
        return tuple(_in_types_of(r, v, ()) if i in used or not used else r for i, (r, v) in pairs)
    if not isinstance(result, torch.Tensor) or not isinstance(val, torch.Tensor):
        return result
    if result.is_complex() != val.is_complex() or not _may_be_equal(result.shape, val.shape):
        found, wanted = (f"{t.dtype}{list(t.shape)}" for t in (result, val))
        raise ValueError(f"a definition gives {found} where its operator gives {wanted}")
    return result.to(val.dtype) if result.dtype != val.dtype else result


def _may_be_equal(a: torch.Size, b: torch.Size) -> bool:
    """Whether shapes agree as far as their sizes are numbers."""
    fixed = ((m, n) for m, n in zip(a, b, strict=False) if isinstance(m, int) and isinstance(n, int))
    return len(a) == len(b) and all(m == n for m, n in fixed)


def trace(work: Work, node: Node, run: Callable[..., Any], values: Sequence[Any]) -> torch.fx.GraphModule | None:
    """The torch operators that `run` calls on fake values, as a functional graph; None: it does not take them.

    Raises:
        CompileError: it is right for the example's sizes only, or refuses them; the message names the line of `node`.
    """
    mode = work.fake_mode()
    before, known = _fixed_symbols(mode), len(_conditions(mode))
    try:
        with recording_fake(mode):
            body = make_fx(run, tracing_mode="real")(*values)
            if _writes(body):
                body = make_fx(dispatch_functionalize(run), tracing_mode="real")(*values)
    except (NoDecomposition, NotImplementedError):  # the second: torch's own say it so
        return None
    except CompileError as refused:
        raise CompileError(refused.message, details=_place(node), hint=refused.hint) from None
    ranges = {symbol: (r.min, r.max) for symbol, r in work.ranges.items()}
    asked = _conditions(mode)[known:]
    if _fixed_symbols(mode) != before or not body_holds(body.graph, node.meta["val"], asked, ranges):
        raise CompileError(
            f"{node.target} has no general decomposition: it works for the example's sizes only",
            details=_place(node),
            hint="Compile with fixed sizes, or rewrite this line of the model.",
        )
    return body


def _place(node: Node) -> list[str]:
    where = origin(node)
    return [str(where)] if where else []


def _plain(value: Any) -> Any:
    """Lists that can be changed, for those of a graph that cannot."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _writes(body: torch.fx.GraphModule) -> bool:
    """Whether a traced definition works in place."""
    return any(isinstance(n.target, OpOverload) and n.target._schema.is_mutable for n in body.graph.nodes)


def _fixed_symbols(mode: Any) -> Mapping[Any, Any]:
    """The size symbols that have been found equal to something else."""
    shape_env = getattr(mode, "shape_env", None)
    return dict(shape_env.replacements) if shape_env is not None else {}


def _conditions(mode: Any) -> list[Any]:
    """What has been asked about sizes until now, and was answered for the example's."""
    shape_env = getattr(mode, "shape_env", None)
    return [guard.expr for guard in shape_env.guards if not _chooses_kernel(guard)] if shape_env is not None else []


def _chooses_kernel(guard: Any) -> bool:
    """Whether torch asked it to choose the kernel of a convolution, which decides the result's memory format."""
    where = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    return where is not None and where.name == "conv" and str(where.filename).endswith("fake_impls.py")


def _is_no_progress(body: torch.fx.GraphModule, node: Node) -> bool:
    """Whether the definition comes back to the operator itself, or down to what no lowering could ever know."""
    overloads = [n.target for n in body.graph.nodes if isinstance(n.target, OpOverload)]
    strange = (o.namespace == "prims" and o._opname != "convert_element_type" for o in overloads)
    return node.target in overloads or any(o._opname == "as_strided" for o in overloads) or any(strange)


def insert(work: Work, node: Node, body: torch.fx.GraphModule, inputs: Sequence[Node]) -> Any:
    """Copies a traced graph in front of `node`, its placeholders bound to `inputs`; returns its results."""
    env: dict[Any, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True))
    result: Any = None
    for inner in body.graph.nodes:
        if inner.op == "output":
            result = torch.fx.node.map_arg(inner.args[0], lambda n: env[n])
        elif inner.op == "get_attr":
            env[inner] = work.constant(
                f"{node.name}_constant", getattr(body, str(inner.target)), like=node, origin=FIXED
            )
        elif inner.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((inner.args, inner.kwargs), lambda n: env[n])
            val = inner.meta.get("val")
            env[inner] = work.call(inner.target, args, kwargs, like=node, val=val, covers=[node])
    return result


def _splice(work: Work, node: Node, body: torch.fx.GraphModule) -> None:
    result = insert(work, node, body, list(dict.fromkeys(node.all_input_nodes)))
    if isinstance(result, Node):
        work.replace(node, result)
    else:
        _replace_list(work, node, result)


def _replace_list(work: Work, node: Node, results: Sequence[Any]) -> None:
    """Replaces the items of a node that has several results; one of them may be a list itself."""
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise CompileError(f"{node.target}: a list of its results is used as a whole")
        result = results[user.args[1]]
        if isinstance(result, (tuple, list)):
            _replace_list(work, user, result)
        else:
            user.replace_all_uses_with(result)
            work.graph.erase_node(user)
    work.graph.erase_node(node)
