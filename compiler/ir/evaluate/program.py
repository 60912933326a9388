"""Runs programs of the loop IR in numpy: their meaning, which no rewrite may change.

    outputs = evaluate(program, {x: np.ones(12)}, {"batch": 3})

What a program may do: read elements that are written, inside of their buffers, and write each element of a temporary
once (Undefined where it does something else). What it may answer: values, or an error of its own (CallFails).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..buffers import IN_PLACE, Buffer
from ..index import Index
from ..nodes import Map, Nest, Reduce, Scan, Scatter
from ..program import AnyNode, Assert, Branches, Check, Choose, Define, Found, Loop, Program, Repeat
from ..routines import Custom, Routine
from ..structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from .loops import run_map, run_nest, run_reduce, run_scan, run_scatter
from .memory import Memory
from .numbers import Array, CallFails, Numbers, Undefined
from .routines import run_routine
from .structured import run_attention, run_attention_gradient, run_chain, run_conv, run_gemm

#: a kernel of the user's: its inputs as flat arrays and its sizes -> its outputs
Kernel = Callable[[Sequence[Array], Sequence[int]], Sequence[Array]]
COMPARISONS = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__}


def evaluate(
    program: Program,
    given: Mapping[Buffer, Array],
    sizes: Mapping[str, int],
    *,
    roundings: bool = False,
    family: Literal["cpu", "cuda"] = "cpu",
    customs: Mapping[str, Kernel] | None = None,
) -> dict[Buffer, Array]:
    """The outputs of a program, and the last values of what it writes in place (by the first buffer there), as flat
    arrays: float64 for floats, integers and bools in their own width.

    given: elements of the inputs, the state and the constants, each packed as its layout says. sizes: of all symbols of
    the inputs; of programs with random numbers, random_call (the seed) and random_blocks too. roundings: floats are
    rounded as kernels round them, to float32 after each operator and to its type in memory. family: of the targets that
    the program was lowered for, as layouts of weights differ. customs: kernels of the user's, by function.

    CallFails: the program itself fails, as it would in a call. Undefined: it breaks a law of the loop IR.
    """
    memory = Memory(dict(sizes), Numbers(roundings))
    for buffer, values in given.items():
        memory.give(buffer, values)
    run = _Run(program, memory, family, customs or {})
    run.whole()
    changed = [b.root for node in program.nodes for b in node.writes() if b.kind in IN_PLACE and b.root.kind != "carry"]
    return {b: _result(memory, b) for b in dict.fromkeys((*program.outputs, *changed))}


def _result(memory: Memory, buffer: Buffer) -> Array:
    cells = memory.of(buffer)
    if not cells.written.all():
        raise Undefined(f"an element of {buffer.name} is never written")
    return cells.values.copy()


def _written(nodes: Sequence[AnyNode]) -> list[Buffer]:
    """What nodes write, and the blocks inside them."""
    inside = [n for node in nodes if isinstance(node, (Choose, Repeat)) for block in node.blocks for n in block]
    return [*(b for node in nodes for b in node.writes()), *(_written(inside) if inside else ())]


@dataclass
class _Run:
    """One evaluation of a program."""

    program: Program
    memory: Memory
    family: str
    customs: Mapping[str, Kernel]

    def whole(self) -> None:
        """All nodes, with what the host reads and tests between them."""
        self._test(0)
        self._span(0, len(self.program.nodes), list(enumerate(self.program.regions)), None)

    def _span(
        self, first: int, last: int, regions: Sequence[tuple[int, Branches | Loop]], block: tuple[int, int] | None
    ) -> None:
        """Nodes first..last, which are those of a block, with the regions among them."""
        at, rest = first, list(regions)
        self._define(at, block)
        while at < last:
            if rest and rest[0][1].first == at:
                place, region = rest.pop(0)
                inside = [rest.pop(0) for r in list(rest) if r[1].last <= region.last and r[1].first < region.last]
                self._region(place, region, inside)
                at = region.last
            else:
                self._node(self.program.nodes[at])
                at += 1
            self._define(at, block)

    # the host --------------------------------------------------------------------------------------------------------
    def _define(self, after: int, block: tuple[int, int] | None) -> None:
        for define in (d for d in self.program.defines if (d.after, d.block) == (after, block)):
            self._found(define)

    def _found(self, define: Define | Found) -> None:
        value, size = self.memory.number(define.buffer), define.size
        if value < size.lo or (size.hi is not None and value > size.hi):
            raise CallFails(f"{define.where}: {size.name} = {value}")
        self.memory.sizes[size.name] = value
        self._test(self.program.found().index(size.name) + 1)

    def _test(self, defined: int) -> None:
        for check in (c for c in self.program.checks if c.defined == defined):
            if not self._holds(check):
                raise CallFails(check.text)

    def _holds(self, check: Check) -> bool:
        a, b = (side.evaluate(self.memory.sizes) for side in (check.a, check.b))
        return bool(COMPARISONS[check.op](a, b))

    # control flow ----------------------------------------------------------------------------------------------------
    def _region(self, place: int, region: Branches | Loop, inside: list[tuple[int, Branches | Loop]]) -> None:
        """Kernels of a scheduled program that the host chooses or repeats."""
        early, late = ([r for r in inside if (r[1].last <= region.middle) is side] for side in (True, False))

        def test() -> None:
            self._span(region.first, region.middle, early, (place, 0))

        def body() -> None:
            self._span(region.middle, region.last, late, (place, 1))

        if isinstance(region, Branches):
            (test if self.memory.number(region.flag) else body)()
            return
        self._loop(region, _written(self.program.nodes[region.first : region.last]), test, body)

    def _loop(
        self, node: Repeat | Loop, written: Sequence[Buffer], test: Callable[[], None], body: Callable[[], None]
    ) -> None:
        count = None if node.count is None else node.count.evaluate(self.memory.sizes)
        iteration = 0
        while count is None or iteration < count:
            self.memory.forget(written)
            if node.iteration is not None:
                self.memory.sizes[node.iteration.name] = iteration
            test()
            if node.flag is not None and not self.memory.number(node.flag):
                break
            body()
            iteration += 1

    def _block(self, nodes: Sequence[AnyNode]) -> None:
        for node in nodes:
            self._node(node)

    # nodes -----------------------------------------------------------------------------------------------------------
    def _node(self, node: AnyNode) -> None:
        memory = self.memory
        match node:
            case Map():
                run_map(node, memory)
            case Reduce():
                run_reduce(node, memory)
            case Nest():
                run_nest(node, memory)
            case Scan():
                run_scan(node, memory)
            case Scatter():
                run_scatter(node, memory)
            case Gemm():
                run_gemm(node, memory)
            case Conv():
                run_conv(node, memory, self.family)
            case ConvChain():
                run_chain(node, memory, self.family)
            case Attention():
                run_attention(node, memory)
            case AttentionGradient():
                run_attention_gradient(node, memory)
            case Custom():
                self._custom(node)
            case Routine():
                run_routine(node, memory)
            case Assert():
                if not memory.number(node.condition):
                    raise CallFails(node.text)
            case Found():
                self._found(node)
            case Choose():
                self._block(node.then if memory.number(node.flag) else node.other)
            case Repeat():
                written = _written([n for block in node.blocks for n in block])
                self._loop(node, written, lambda: self._block(node.test), lambda: self._block(node.body))
            case _:
                raise TypeError(type(node).__name__)

    def _custom(self, node: Custom) -> None:
        kernel = self.customs.get(node.source.function)
        if kernel is None:
            raise NotImplementedError(f"the kernel {node.source.function} needs a reference among `customs`")
        sizes = [n.evaluate(self.memory.sizes) if isinstance(n, Index) else n for n in node.numbers]
        results = kernel([self.memory.of(b.buffer).values.copy() for b in node.inputs], sizes)  # type: ignore[arg-type]
        for blocks, values in zip(node.outputs, results, strict=True):
            self.memory.put(blocks.buffer, 0, np.asarray(values))
