"""The loop IR as text."""

from __future__ import annotations

from .index import Var
from .nodes import Map, Nest, Reduce, Scan, Scatter
from .program import AnyNode, Assert, Choose, Define, Found, Program, Repeat
from .routines import Routine
from .structured import Attention, AttentionGradient, Conv, ConvChain, Gemm


def print_program(program: Program) -> str:
    """One node per line (nests over several), with the user's source lines behind it."""
    lines = [f"program {program.name}({', '.join(program.sizes)})"]
    for role, buffers in (("input", program.inputs), ("state", program.state), ("output", program.outputs)):
        lines += [f"  {role} {b.name}: {b.dtype}[{b.size}]" for b in buffers]
    for i in range(len(program.nodes) + 1):
        lines += ["  " + print_define(d) for d in program.defines if d.after == i]
        lines += [print_node(node) for node in program.nodes[i : i + 1]]
    lines += [f"  check {c.a} {c.op} {c.b}   # {c.text}" for c in program.checks]
    return "\n".join(lines) + "\n"


def print_define(define: Define | Found) -> str:
    """`size u0 = nonzero1[0], 0..   # model.py:12`: a size that the host reads."""
    size = define.size
    text = f"size {size.name} = {define.buffer}[0], {size.lo}..{'' if size.hi is None else size.hi}"
    return f"{text}   # {define.where}" if define.where else text


def print_node(node: AnyNode, indent: str = "  ") -> str:
    """The text of one node, with its operators and source lines behind `#`; several lines for a nest."""
    text = indent + _body(node, indent)
    where = " ".join((*node.origin.ops, *node.origin.lines))
    return f"{text}   # {where}" if where else text


def _block(nodes: tuple[AnyNode, ...], indent: str) -> str:
    return "\n".join(print_node(n, indent + "  ") for n in nodes)


def _loops(loops: tuple[Var, ...]) -> str:
    return ", ".join(f"{v.name}:{v.extent}" for v in loops)


def _body(node: AnyNode, indent: str) -> str:
    stores = "; ".join(str(s) for s in node.stores)
    match node:
        case Map():
            return f"map[{_loops(node.dims)}] {stores}"
        case Reduce():
            reductions = "; ".join(f"{f.acc} = {f.op} {f.value}" for f in node.reductions)
            return f"reduce[{_loops(node.dims)}; {_loops(node.rdims)}] {reductions} -> {stores}"
        case Gemm():
            form = "packed " if node.packed else ""
            left = str(node.a.buffer)
            if (made := node.prologue) is not None:
                left = f"({made.acc} of {left}: {made.value} as {made.dtype})"
            left += f" as {node.rounded}" if node.rounded else ""
            product = f"{node.acc} = {left} @ {form}{node.b.buffer}"
            product += "".join(f", {acc} = {left} @ {b.buffer}[{b.offset}..]" for b, acc in node.also)
            product += f" ({node.quantised})" if node.quantised is not None else ""
            return f"gemm[{_loops(node.dims)}; k:{node.k}] {product} -> {stores}"
        case Conv():
            w = node.window
            kernel, stride = ("x".join(map(str, v)) for v in (w.kernel, w.stride))
            how = "" if node.algorithm == "direct" else f" by {node.algorithm}"
            shape = f"{kernel} stride {stride} groups {w.groups}{how}"
            return f"conv[{_loops(node.dims)}] {node.acc} = {node.x.buffer} * {node.w} ({shape}) -> {stores}"
        case ConvChain():
            links = "\n".join(print_node(link, indent + "  ") for link in node.links)
            return f"chain[{_loops(node.dims)}] locals {', '.join(b.name for b in node.locals)}\n{links}"
        case Attention():
            extra = ", causal" if node.causal else ""
            extra += f", sink {node.sink.buffer}" if node.sink is not None else ""
            score = _changes(node)
            sides = ((node.q, None, None), (node.k, node.k_rest, node.k_pages), (node.v, node.v_rest, node.v_pages))
            operands = ", ".join(
                f"{o.buffer} then {rest.operand.buffer} from {rest.first} on"
                if rest
                else f"{o.buffer} in {pages}"
                if pages
                else str(o.buffer)
                for o, rest, pages in sides
            )
            results = ", ".join(map(str, node.writes()))
            return f"attention[{_loops(node.dims)}; key:{node.keys}] {results} = ({operands}){extra}{score}"
        case AttentionGradient():
            extra = ", causal" if node.causal else ""
            score = _changes(node)
            results, operands = (", ".join(str(o.buffer) for o in side) for side in (node.results, node.operands))
            return f"attention gradient[{_loops(node.dims)}; key:{node.keys}] {results} = ({operands}){extra}{score}"
        case Scan():
            carries = "; ".join(f"{c.acc} = {c.start}, then {c.next}" for c in node.carries)
            return f"scan[{_loops(node.dims)}; {_loops((node.step,))}] {carries} -> {stores}"
        case Scatter():
            updates = "; ".join(str(u) for u in node.updates)
            fill = f"[{_loops(node.dims)}] {stores}; then " if stores else ""
            return f"scatter{fill}[{_loops(node.udims)}] {updates}"
        case Routine():
            results, operands = (", ".join(str(b.buffer) for b in side) for side in (node.outputs, node.inputs))
            sizes = "".join(f", {s}" for s in node.sizes)
            return f"routine[{node.count}] {results} = {node.function}({operands}{sizes})"
        case Found():
            return print_define(node)
        case Assert():
            return f"assert {node.condition}, {node.text!r}"
        case Choose():
            parts = [_block(b, indent) for b in node.blocks]
            return f"choose {', '.join(map(str, node.results))} by {node.flag}\n{parts[0]}\n{indent}else\n{parts[1]}"
        case Repeat():
            how = f"{node.iteration} of {node.count} times" if node.iteration is not None else f"while {node.flag}"
            test = f"{_block(node.test, indent)}\n{indent}do\n" if node.test else ""
            return f"repeat {how} -> {', '.join(map(str, node.results))}\n{test}{_block(node.body, indent)}"
        case Nest():
            inner = "\n".join(print_node(s, indent + "  ") for s in node.stages)
            names = ", ".join(b.name for b in node.locals)
            pipeline_stages = (
                f" pipeline stages {' '.join(map(str, node.pipeline_stages))}" if node.pipeline_stages else ""
            )
            pipeline_stages += f" along {node.walk.name}" if node.walk is not None else ""
            return f"nest[{_loops(node.dims)}]{pipeline_stages}" + (f" locals {names}" if names else "") + "\n" + inner
    raise TypeError(type(node).__name__)


def _changes(node: Attention | AttentionGradient) -> str:
    """How scores and weights are changed."""
    parts = (("score", node.score), ("dropout", node.dropout))
    return "".join(f", {name} {e}" for name, e in parts if e is not None)
