"""The headers that a kernel needs: its view says so by what it is made of, its node by the functions that it calls.

A unit includes those of its kernels, in one order; kernels of loops alone compile without the GEMM family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ...ir.expr import Call
from ...ir.nodes import Node
from ...ir.ops import OPS
from ...ir.program import AnyNode
from ...ir.routines import Routine
from ...lower.core.routines import ROUTINES
from .views.kernel import KernelView
from .views.loop_kernels import TileKernel, WindowKernel
from .views.loops import CombinedRow
from .views.routines import CustomKernel, RoutineKernel
from .views.structured import AttentionKernel, ChainKernel, GemmKernel
from .views.transposes import TransposeIn, TransposeOut

#: what every unit includes
ALWAYS = ("kernels/math/math.h", "kernels/loops/loops.h")
#: register tiles of float32, which are compiled once for all units
MICRO = "micro_kernels.h"
GEMM, CONV = "kernels/gemm/gemm.h", "kernels/conv/conv.h"
SPECIAL = "kernels/math/special.h"
#: scalar operators that are functions of it
SPECIAL_OPERATORS = frozenset(name for name, row in OPS.items() if f"kernels/{row.header}" == SPECIAL)
#: parts of views -> the header of what their templates call
OF_VIEWS: dict[type, str] = {
    TransposeIn: "kernels/loops/transpose.h",
    TransposeOut: "kernels/loops/transpose.h",
    TileKernel: "kernels/loops/transpose.h",
    WindowKernel: "kernels/loops/sliding_window.h",
    CombinedRow: "kernels/loops/write_combining.h",
    CustomKernel: "mycc/custom.h",
    ChainKernel: "kernels/conv/chain.h",
}
#: templates of products and convolutions -> the headers of their functions
OF_TEMPLATES = {
    "gemm_unpacked.cpp.j2": (MICRO, GEMM),
    "conv.cpp.j2": (MICRO, CONV),
    "conv_integer.cpp.j2": ("kernels/conv/integer.h",),
    **{
        f"conv_{name}.cpp.j2": (MICRO, CONV, f"kernels/conv/{name}.h")
        for name in ("depthwise", "winograd", "grouped", "nchw", "transposing")
    },
}
#: functions of products of integers, and of attention -> their headers
OF_FUNCTIONS = {
    "gemm_mixed": (MICRO, "kernels/gemm/mixed.h"),
    "gemm_integer": (MICRO, "kernels/gemm/integer.h"),
    "attention": (MICRO, "kernels/attention/attention.h"),
    "attention_gradient": (MICRO, "kernels/attention/gradient.h"),
}
#: all, in the order in which units include them
ORDER = (
    *(*ALWAYS, MICRO, GEMM, CONV, "kernels/gemm/mixed.h", "kernels/gemm/integer.h"),
    *("kernels/loops/transpose.h", "kernels/loops/sliding_window.h", "kernels/loops/write_combining.h"),
    *("mycc/custom.h", SPECIAL),
    *dict.fromkeys(f"kernels/{routine.header}" for routine in ROUTINES.values()),
    *(
        f"kernels/conv/{name}.h"
        for name in ("depthwise", "winograd", "grouped", "chain", "nchw", "transposing", "integer")
    ),
    *("kernels/attention/attention.h", "kernels/attention/gradient.h"),
)


def headers_of(view: KernelView, node: AnyNode) -> frozenset[str]:
    """The headers of a kernel, beside those of every unit."""
    found = {OF_VIEWS[type(part)] for part in _parts(view) if type(part) in OF_VIEWS}
    match view:
        case GemmKernel() if view.template == "gemm.cpp.j2":
            found |= {GEMM} | ({MICRO} if view.arguments == "GemmArgs" else set())
        case GemmKernel() if view.template in OF_TEMPLATES:
            found |= set(OF_TEMPLATES[view.template])
        case GemmKernel() | AttentionKernel():
            found |= set(OF_FUNCTIONS[view.function])
    if isinstance(view, RoutineKernel):
        assert isinstance(node, Routine)
        found.add(f"kernels/{ROUTINES[node.function].header}")
    elif isinstance(node, Node) and any(_is_special(call) for e in node.expressions() for call in e.walk()):
        found.add(SPECIAL)
    return frozenset(found)


def in_order(headers: Iterable[str]) -> tuple[str, ...]:
    """The headers of a unit whose kernels need these."""
    wanted = {*ALWAYS, *headers}
    return tuple(header for header in ORDER if header in wanted)


def _is_special(e: object) -> bool:
    return isinstance(e, Call) and e.op in SPECIAL_OPERATORS


def _parts(value: Any) -> Iterator[Any]:
    """A view and the views that it is made of."""
    if isinstance(value, tuple):
        for x in value:
            yield from _parts(x)
    elif is_dataclass(value):
        yield value
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
