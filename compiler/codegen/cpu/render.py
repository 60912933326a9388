"""From a schedule to sources: kernels rendered once each, the host program that calls them, translation units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.index import ZERO, Index
from ...ir.nodes import Scan, Scatter
from ...ir.plans import kernel as plans
from ...ir.plans.loop import LoopPlan, UpdatesPlan
from ...ir.plans.matrix import MatrixPlan
from ...ir.program import AnyNode, Assert, Choose, Found, Repeat
from ...ir.routines import Custom, Routine
from ...ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from ...schedule import Schedule
from ...tune.choices.choices import COST_MODEL, Choice
from ...tune.choices.space import split
from ..environments import environment
from .blocking import with_blocking, with_chosen_blocking
from .chain_views import chain_view
from .headers import MICRO, headers_of, in_order
from .indentation import indent
from .loop_views import loop_view
from .ordered_views import assert_view, custom_view, routine_view, scan_view, scatter_view
from .scope import Param
from .structured_views import (
    GEMM_ARGUMENTS,
    attention_gradient_view,
    attention_view,
    conv_view,
    gemm_view,
)
from .tuned import with_choice
from .views.kernel import KernelView
from .views.routines import CustomKernel
from .views.structured import GemmKernel

PLACEHOLDER = "KERNEL"


@dataclass(frozen=True)
class Kernel:
    """A kernel function: its symbol, source text and parameters by name."""

    symbol: str
    source: str
    declaration: str
    cost: float  # relative effort of the C++ compiler
    units: tuple[tuple[str, str], ...] = ()  # translation units of the user's that it calls: file name, text
    headers: frozenset[str] = frozenset()  # that it needs beside those of every unit
    panels: str = ""  # C++ type of the packed weights of a product; "": it is none


@dataclass(frozen=True)
class KernelCall:
    """One kernel of an entry point: the function and what to pass for each of its parameters."""

    kernel: Kernel
    params: tuple[Param, ...]


class KernelPool:
    """All distinct kernels of a package: kernels that render to the same text are one function."""

    def __init__(self) -> None:
        self._by_text: dict[str, Kernel] = {}
        self._names: dict[str, int] = {}

    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in the order in which they were first called."""
        return tuple(self._by_text.values())

    def call(
        self, name: str, kernel: plans.Kernel, choice: Choice = COST_MODEL, weight_bytes: Index = ZERO
    ) -> KernelCall:
        """A kernel of the schedule with a choice, rendered when its text is new; weight_bytes: see gemm_view."""
        node, base_offsets = kernel.node, dict(kernel.base_offsets)
        view = _chosen_view(node, kernel.plan, choice, weight_bytes)
        text = _render(view)
        if text not in self._by_text:
            symbol = self._unique(name)
            comment = _comment(node)
            source = indent("\n".join((*(f"// {c}" for c in comment), text.replace(PLACEHOLDER, symbol))))
            params = ", ".join(("const mycc_host *host", *(p.declaration for p in view.params)))
            headers, panels, cost = headers_of(view, node), _panels(view), _cost(node, text)
            declaration = f"void {symbol}({params});"
            self._by_text[text] = Kernel(symbol, source, declaration, cost, _units(view), headers, panels)
        passed = tuple(replace(p, start=base_offsets.get(p.buffer, 0)) if p.buffer else p for p in view.params)
        return KernelCall(self._by_text[text], passed)

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}_{count}" if count else name


def _chosen_view(node: AnyNode, plan: plans.Plan | None, choice: Choice, weight_bytes: Index) -> KernelView:
    if isinstance(plan, MatrixPlan):
        return view_of(node, with_chosen_blocking(plan, split(choice, "codegen")), weight_bytes)
    return with_choice(view_of(node, plan, weight_bytes), choice)


def view_of(node: AnyNode, plan: plans.Plan | None, weight_bytes: Index = ZERO) -> KernelView:
    """What the template of a kernel is rendered with."""
    match node:
        case Gemm():
            own = _matrix_plan(plan)
            return with_blocking(gemm_view(node, own, weight_bytes), own)
        case Conv():
            own = _matrix_plan(plan)
            return with_blocking(conv_view(node, own), own)
        case ConvChain():
            return chain_view(node, _matrix_plan(plan))
        case Attention():
            return with_blocking(attention_view(node, _matrix_plan(plan)), _matrix_plan(plan))
        case AttentionGradient():
            return attention_gradient_view(node)
        case Scan():
            return scan_view(node, _loop_plan(plan))
        case Scatter():
            assert isinstance(plan, UpdatesPlan)
            return scatter_view(node, plan)
        case Custom():
            return custom_view(node)
        case Routine():
            return routine_view(node)
        case Assert():
            return assert_view(node)
        case Choose() | Repeat() | Found():
            raise TypeError("branches and loops are no kernels: the schedule puts their blocks in a row")
    return loop_view(node, _loop_plan(plan))


def _loop_plan(plan: plans.Plan | None) -> LoopPlan:
    assert isinstance(plan, LoopPlan)
    return plan


def _matrix_plan(plan: plans.Plan | None) -> MatrixPlan:
    assert isinstance(plan, MatrixPlan)
    return plan


def _render(view: KernelView) -> str:
    return environment("cpu").get_template(view.template).render(k=view, name=PLACEHOLDER)


def _units(view: KernelView) -> tuple[tuple[str, str], ...]:
    return ((f"custom_{view.function}.cpp", view.source),) if isinstance(view, CustomKernel) else ()


def _panels(view: KernelView) -> str:
    arguments = view.arguments if isinstance(view, GemmKernel) and view.template == "gemm.cpp.j2" else ""
    return next((DTYPES[dtype].cpp for dtype, struct in GEMM_ARGUMENTS.items() if struct == arguments), "")


def _comment(node: AnyNode) -> tuple[str, ...]:
    ops = ", ".join(op.removeprefix("aten.") for op in node.origin.ops)
    lines = ", ".join(node.origin.lines[:4])
    return (f"{ops}  {lines}".rstrip(),) if ops else ()


def _cost(node: AnyNode, text: str) -> float:
    """Structured kernels instantiate the tiles of a whole family: each is worth some hundred lines of a loop kernel."""
    return len(text) / 1000 + (6.0 if isinstance(node, (Gemm, Conv, ConvChain, Attention, AttentionGradient)) else 0.0)


def split_units(kernels: Sequence[Kernel], units: int) -> dict[str, list[Kernel]]:
    """Kernels over translation units of about equal cost, the dearest first; the same for the same kernels."""
    count = max(1, min(units, len(kernels)))
    bins: list[tuple[float, list[Kernel]]] = [(0.0, []) for _ in range(count)]
    for kernel in sorted(kernels, key=lambda k: (-k.cost, k.symbol)):
        i = min(range(count), key=lambda b: bins[b][0])
        bins[i] = (bins[i][0] + kernel.cost, [*bins[i][1], kernel])
    return {f"kernels_{i}.cpp": sorted(b, key=lambda k: k.symbol) for i, (_, b) in enumerate(bins) if b}


def render_unit(kernels: Sequence[Kernel], headers: Sequence[str]) -> str:
    """One translation unit."""
    return environment("host").get_template("kernels.cpp.j2").render(kernels=kernels, headers=headers)


def unit_headers(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """The headers that the kernels of a unit need, in the order in which it includes them."""
    return in_order(header for kernel in kernels for header in kernel.headers)


def tiles_of(kernels: Sequence[Kernel]) -> tuple[tuple[str, ...], bool]:
    """The register tiles that kernels call: C++ types of the panels of products, and whether those of convolutions."""
    headers = unit_headers(kernels)
    called = {kernel.panels for kernel in kernels} | ({"float"} if MICRO in headers else set())
    types = (DTYPES[dtype].cpp for dtype in GEMM_ARGUMENTS)
    return tuple(t for t in types if t in called), any(h.startswith("kernels/conv/") for h in headers)


def calls_of(
    schedule: Schedule, pool: KernelPool, choose: Callable[[AnyNode], Choice] = lambda node: COST_MODEL
) -> tuple[KernelCall, ...]:
    """The kernels of a schedule in order, each with what `choose` gives for it."""
    weight_bytes = _weight_bytes(schedule.program.nodes)
    named = zip(schedule.names, schedule.program.nodes, schedule.kernels, strict=True)
    return tuple(pool.call(name, kernel, choose(node), weight_bytes) for name, node, kernel in named)


def _weight_bytes(nodes: Sequence[AnyNode]) -> Index:
    """Bytes of the weights that products and convolutions read; of an embedding's table a run reads a few rows."""
    reading = (n for n in nodes if isinstance(n, (Gemm, Conv, ConvChain)))
    weights = {b for n in reading for b in n.reads() if b.kind == "const"}
    return sum((b.size * DTYPES[b.dtype].size for b in weights), ZERO)
