"""Pass: complex tensors as pairs of real ones, so that all stages behind it know real tensors alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from ....runtime.errors import CompileError
from ...model.computed import KEPT, is_definer
from ...model.operators import own  # noqa: F401
from ...model.source_lines import origin
from ..canonicalize.normalize import normalize
from ..decompose.decompose import decompose, decompose_node, insert, trace
from ..node import Node
from ..patterns import is_tensor
from ..work import Work, aten, is_erased
from . import arithmetic, fourier, functions, linalg, products, structure  # noqa: F401
from .parts import Call, Complex, Refused, is_complex, rule_of
from .selections import Selection, selection_of


def complex_parts(work: Work, kept: Collection[str]) -> dict[str, int]:
    """z = mul(x, y), complex      ->   re = x_re * y_re - x_im * y_im;  im = x_re * y_im + x_im * y_re
       complex input x: c64[n]     ->   x: f32[n, 2], its parts select(x, -1, 0) and select(x, -1, 1)
       complex output z            ->   stack([re, im], -1), which is the memory that a complex tensor has

    An operator without a rule is decomposed first, and what rules bring in behind it; one that has neither becomes
    mycc::refused, which the lowering tells with all others. Needs KEPT_ONLY; establishes REAL. Inputs, outputs and
    constants lie in memory as they did.

    Raises:
        CompileError: such an operator whose result has a size that the run finds.
    """
    if not any(is_complex(n.meta.get("val")) for n in work.graph.nodes):
        return {}
    normalize(work)
    rewriter = _Rewriter(work, kept)
    rewriter.run()
    fourier.add_tables(work)
    normalize(work)
    decompose(work, kept)
    return {"complex operators": rewriter.count}


#: operators that ask of an element only whether it is zero
_OF_TRUTH = (
    aten.nonzero.default, aten.argwhere.default, aten.nonzero_numpy.default, aten.where.default,
    aten.count_nonzero.default, aten.count_nonzero.dim_IntList,
)  # fmt: skip


class _Rewriter:
    """Walks the graph once; `pairs` has the parts of every complex node passed so far, `inputs` what will lie in memory
    for a complex input, `own` the nodes that take its parts."""

    def __init__(self, work: Work, kept: Collection[str]) -> None:
        self.work, self.kept = work, kept
        self.pairs: dict[Node, Complex] = {}
        self.inputs: dict[Node, torch.Tensor] = {}
        self.own: set[Node] = set()
        self.count = 0

    def run(self) -> None:
        last = self.work.graph.output_node()
        node: Any = next(iter(self.work.graph.nodes))
        while node is not last:
            before, following = node.prev, node.next
            node = following if self._rewrite(node) else before.next  # decomposed: its place has new nodes
        last.args = torch.fx.node.map_arg(last.args, self._interleaved)
        for node, memory in self.inputs.items():
            node.meta["val"] = memory
        for node in reversed(list(self.work.graph.nodes)):
            kept = node.meta.get(KEPT) and node not in self.pairs
            if not node.users and node.op in ("call_function", "get_attr") and not kept:
                self.work.graph.erase_node(node)

    def _rewrite(self, node: Node) -> bool:
        """False when the node was decomposed instead."""
        if is_erased(node) or node in self.pairs or node in self.own:
            return True
        if node.op == "placeholder" and is_complex(node.meta["val"]):
            self._input(node)
        elif node.op == "get_attr" and is_complex(node.meta["val"]):
            self._constant(node)
        elif node.op == "call_function" and node.target is not operator.getitem:
            return self._call(node)
        return True

    # leaves ------------------------------------------------------------------------------------------------------
    def _input(self, node: Node) -> None:
        val = node.meta["val"]
        with val.fake_mode:
            memory = self.inputs[node] = torch.empty([*val.shape, 2], dtype=val.dtype.to_real())
            sides = [memory.select(-1, i) for i in (0, 1)]
        first = next(n for n in self.work.graph.nodes if n.op != "placeholder")
        parts = [
            self.work.call(aten.select.int, (node, -1, i), like=node, before=first, val=side)
            for i, side in enumerate(sides)
        ]
        self.own.update(parts)
        self.pairs[node] = Complex(*parts)

    def _constant(self, node: Node) -> None:
        name = str(node.target)
        tensor = self.work.constants[name].resolve_conj()
        parts = (("re", tensor.real), ("im", tensor.imag))
        self.pairs[node] = Complex(
            *(self.work.constant(f"{name}_{part}", value.contiguous(), like=node) for part, value in parts)
        )
        del self.work.constants[name]

    def _interleaved(self, node: Any) -> Any:
        """What lies in memory for a complex output."""
        if node not in self.pairs:
            return node
        pair = self.pairs[node]
        last: Any = self.work.graph.output_node()
        if node.op == "placeholder":
            return node
        return self.work.call(aten.stack.default, ([pair.re, pair.im], -1), like=pair.re, before=last, covers=[node])

    # operators ---------------------------------------------------------------------------------------------------
    def _call(self, node: Node) -> bool:
        sources = [n for n in node.all_input_nodes if n in self.pairs or is_complex(n.meta.get("val"))]
        if not sources and not is_complex(node.meta.get("val")):
            return True
        if isinstance(node.meta.get("val"), (torch.SymInt, int)):  # a size: either part has it
            node.args = torch.fx.node.map_arg(node.args, lambda n: self.pairs[n].re if n in self.pairs else n)
            return True
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._refuse(node, "control flow takes real tensors alone")
        if node.target in _OF_TRUTH:
            return self._ask_for_truth(node)
        if (selection := selection_of(node)) and node.args[0] in self.pairs:
            return self._select(node, selection)
        rule = rule_of(node)
        if rule is None:
            if decompose_node(self.work, node):
                return False
            return self._refuse(node, "no lowering for complex numbers")
        try:
            self._apply(node, rule)
        except Refused as refused:
            return self._refuse(node, str(refused))
        return True

    def _ask_for_truth(self, node: Node) -> bool:
        """nonzero(z) -> nonzero(z != 0): the node itself stays, for the size that it defines."""
        source = node.args[0]
        pair = self.pairs[source]
        parts = [pair.re, pair.im]
        body = trace(self.work, node, lambda re, im: arithmetic.truth(Complex(re, im)), [n.meta["val"] for n in parts])
        assert body is not None
        node.args = (insert(self.work, node, body, parts), *node.args[1:])
        return True

    def _select(self, node: Node, chosen: Selection) -> bool:
        """The two parts share the places, and the size that the run finds."""
        pair, val = self.pairs[node.args[0]], node.meta["val"]

        def inserted(run: Callable[..., torch.Tensor], *inputs: Node) -> Node:
            body = trace(self.work, node, run, [n.meta["val"] for n in inputs])
            assert body is not None
            return insert(self.work, node, body, inputs)

        with val.fake_mode:
            count = torch.empty([val.shape[chosen.along]], dtype=torch.int64)
        operands = (inserted(chosen.every, pair.re), chosen.chosen)
        places = self.work.call(chosen.operator, operands, like=node, val=count, covers=[node])
        read = lambda part, index: chosen.spread(part).index_select(chosen.along, index)  # noqa: E731
        self.pairs[node] = Complex(inserted(read, pair.re, places), inserted(read, pair.im, places))
        return True

    def _apply(self, node: Node, rule: Callable[..., Any]) -> None:
        """Traces the rule on the parts of the operands and puts what it calls in front of the node."""
        nodes = list(dict.fromkeys(node.all_input_nodes))
        inputs = [p for n in nodes for p in self.pairs.get(n, (n,))]
        first = nodes[0] if nodes else node
        call = Call(node.target, node.meta["val"], first.meta["val"])
        shapes: list[Any] = []

        def run(*values: Any) -> Any:
            rest = iter(values)
            env = {n: Complex(next(rest), next(rest)) if n in self.pairs else next(rest) for n in nodes}
            args, kwargs = _substituted((node.args, node.kwargs), env)
            flat, spec = pytree.tree_flatten(rule(call, *args, **kwargs))
            shapes[:] = [spec]
            return tuple(flat)

        body = trace(self.work, node, run, [n.meta["val"] for n in inputs])
        if body is None:
            raise Refused("no lowering for complex numbers")
        results = insert(self.work, node, body, inputs)
        self._bind(node, pytree.tree_unflatten(list(results), shapes[0]))
        self.count += 1

    def _bind(self, node: Node, result: Any) -> None:
        """Keeps the parts of a complex result, and puts a real one in the place of the node."""
        if isinstance(result, Complex):
            self.pairs[node] = result
        elif isinstance(result, (tuple, list)):
            for user in list(node.users):
                if user.target is not operator.getitem:
                    raise CompileError(f"{node.target}: a list of its results is used as a whole")
                self._bind(user, result[user.args[1]])
        else:
            node.replace_all_uses_with(result)

    def _refuse(self, node: Node, reason: str) -> bool:
        """z = logcumsumexp(x, 0)     ->     re = im = refused([x_re, x_im], "aten::logcumsumexp", reason)"""
        name = str(node.target).replace(".", "::", 1) + " of complex tensors"
        if is_definer(node):
            where = origin(node)
            raise CompileError(f"cannot compile {name}: {reason}", details=[str(where)] if where else [])
        operands = [p for n in node.all_input_nodes for p in self.pairs.get(n, (n,)) if is_tensor(p)]

        def result(val: Any) -> Any:
            if isinstance(val, (tuple, list)):
                return [result(v) for v in val]
            with val.fake_mode:
                real = torch.empty(val.shape, dtype=val.dtype.to_real() if val.dtype.is_complex else val.dtype)
            new = self.work.call(torch.ops.mycc.refused.default, (operands, name, reason), like=node, val=real)
            return Complex(new, new) if val.dtype.is_complex else new

        self._bind(node, result(node.meta["val"]))
        return True


def _substituted(value: Any, env: dict[Any, Any]) -> Any:
    """Arguments with values for nodes; fx's own map takes a pair of parts for a container."""
    if isinstance(value, torch.fx.Node):
        return env[value]
    if isinstance(value, (tuple, list)):
        items = [_substituted(v, env) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    return {k: _substituted(v, env) for k, v in value.items()} if isinstance(value, dict) else value
