"""Fourier transforms as Triton kernels: a pass for each factor of the size, as a small matrix product.

Stockham's self-sorting algorithm (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992). A pass
with the radix R of n = R m values turns s interleaved transforms of length m R / s into R s of the rest:

    y[q + s (R p + k)] = w^(s p k) * sum over j < R of x[q + s p + m j] * w^(m (j k mod R)),    w = exp(-2 pi i / n)

Where two passes are all, they are one kernel, whose tile has whole rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.fourier import Pass, passes
from ...ir.index import Index, as_index
from ...ir.plans.gpu import PartPlan
from ...ir.routines import Blocks, Routine
from ...schedule.gpu.blocks import blocks
from .emit import TritonEmitter
from .kernel import SIGNATURE, Launch, grid
from .maps import finish
from .scope import WORK, TritonScope


@dataclass(frozen=True)
class FourierView:
    """A pass `step`, or two of them, `then` being the other and `last` one. n: the size; width: butterflies of a row,
    n / radix (1 of two passes); a tile has `block` of them, of all rows `total`. dot: as one product on tensor cores.
    source: "complex", "real" or "half" (of a symmetric row the first n / 2 + 1 values); result: "complex", "half" or
    "real". re, im, out_re, out_im: where they begin; row, out_row: elements from row to row. table: fourier.Pass."""

    params: str
    n: int
    step: Pass
    then: Pass | None
    last: Pass
    width: int
    dot: bool
    block: int
    total: str
    wide: str
    source: str
    result: str
    re: str
    im: str
    row: int
    out_re: str
    out_im: str
    out_row: int
    table: str
    dtype: str
    pdl: bool


def fourier_launches(node: Routine, name: str, parts: tuple[PartPlan, ...]) -> tuple[Launch, ...]:
    """The passes of fft (re, im -> re, im), rfft (x -> re, im) or irfft (re, im -> x, backwards); not scaled.

    The last input is the table of ir/fourier.py's passes. Between passes the values are in scratch memory: of all
    rows, real parts and then imaginary ones.
    """
    n = node.sizes[0].constant
    assert n is not None
    left = list(passes(n))
    found = tuple(tuple(left.pop(0) for _ in range(plan.shares)) for plan in parts)
    stems = [name, *(f"{name}_pass{i}" for i in range(1, len(found)))]
    return tuple(
        _kernel(node, stem, n, i, found, plan) for i, (stem, plan) in enumerate(zip(stems, parts, strict=True))
    )


def _kernel(
    node: Routine, name: str, n: int, number_: int, found: tuple[tuple[Pass, ...], ...], plan: PartPlan
) -> Launch:
    steps, first, last = found[number_], number_ == 0, number_ == len(found) - 1
    step, then = steps[0], steps[1] if len(steps) > 1 else None
    dtype = DTYPES[node.outputs[0].buffer.dtype].compute
    size = DTYPES[dtype].size
    scope = TritonScope.of(node, plan)
    if len(found) > 1:
        scope.scratch = (SIGNATURE[dtype], node.count * (4 * n * size))
    text = TritonEmitter(scope, {})
    *values, table = node.inputs
    read = _ends(scope, values) if first else _halves(text, node.count, n, (number_ - 1) % 2)
    written = _ends(scope, node.outputs) if last else _halves(text, node.count, n, number_ % 2)
    width = n // math.prod(s.radix for s in steps)
    total = node.count * width
    sources = {"fft": "complex", "rfft": "real", "irfft": "half"}
    results = {"fft": "complex", "rfft": "half", "irfft": "real"}
    view = FourierView(
        params="",
        n=n,
        step=step,
        then=then,
        last=then or step,
        width=width,
        dot=plan.form == "tensor cores",
        block=plan.block,
        total=text.index(total),
        wide=".to(tl.int64)" if scope.wide else "",
        source=sources[node.function] if first else "complex",
        result=results[node.function] if last else "complex",
        re=read[0],
        im=read[-1],
        row=_row(values[0]) if first else n,
        out_re=written[0],
        out_im=written[-1],
        out_row=_row(node.outputs[0]) if last else n,
        table=scope.buffer(table.buffer),
        dtype="tl.float64" if dtype == "f64" else "tl.float32",
        pdl=plan.pdl,
    )
    programs = grid(blocks(total, plan.block))
    return finish("fft_pass.py.j2", view, scope, name, programs, node, plan)


def _ends(scope: TritonScope, operands: list[Blocks] | tuple[Blocks, ...]) -> list[str]:
    return [scope.buffer(b.buffer) for b in operands]


def _halves(text: TritonEmitter, count: Index, n: int, half: int) -> list[str]:
    """Where real and imaginary parts begin in one half of the scratch memory."""
    places = [count * (n * (2 * half + part)) for part in (0, 1)]
    return [f"({WORK} + {text.index(place)})" if place != as_index(0) else WORK for place in places]


def _row(operand: Blocks) -> int:
    stride = operand.stride.constant
    assert stride is not None
    return stride
