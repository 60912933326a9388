"""Products of many rows by quantised weights on GPUs: a kernel of its own makes floats of the weights first.

    y[m, n] = sum over k of a[m, k] * w[n, k]                       w: bytes, or 4 bits by groups

    f[n, k] = (w[n, k] - zero[k // group, n]) * scale[k // group, n]        in scratch memory, once for all rows
    y[m, n] = sum over k of a[m, k] * f[n, k]                               as a product of floats

A tile that makes operands of integers does that once for every tile of rows. With 256 rows and more this takes longer
than to write the floats and to read them again, and products of floats have tiles that were measured
(docs/decisions/0141).
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Call, Const, Expr, IndexValue, Load, cast
from ...ir.index import ONE, Index, Var, as_index, of
from ...ir.layouts import PLANES
from ...ir.nodes import Map, Store
from ...ir.plans.gpu import Dequantise, MapPlan
from ...ir.structured import Gemm, Quantised
from ...lower.contract.float8 import float8_number

#: kind of a buffer in the scratch memory that launches share
SCRATCH = "scratch"
#: types of the left operand whose products are faster with weights of the same type
HALVES = ("f16", "bf16")


def dequantised(node: Gemm) -> Dequantise | None:
    """The map that writes the weights as floats, not planned yet, and the product that reads them; None where integers
    are multiplied, or the left operand is wider than two bytes."""
    how, k = node.quantised, node.k.constant
    if how is None or node.a_dtype not in HALVES or how.patches is not None or len(node.dims) != 2 or k is None:
        return None
    columns = node.dims[-1].extent
    if columns.constant is None or (how.group and node.also):
        return None
    operands = (node.b, *(b for b, _ in node.also))
    size = columns * k
    weights = Buffer("dequantised", node.a_dtype, size * len(operands), SCRATCH)
    n = Var("n", columns)
    dims, places = _places(n, k, how)
    stores = tuple(
        Store(weights, of(n) * k + at + size * i, cast(_value(b, how, n, at), node.a_dtype))
        for i, b in enumerate(operands)
        for at in places
    )
    first, *others = (Operand(weights, size * i, (ONE, as_index(k))) for i in range(len(operands)))
    also = tuple((b, acc) for b, (_, acc) in zip(others, node.also, strict=True))
    made = Map(dims, stores, node.origin)
    return Dequantise(made, MapPlan(), replace(node, b=first, also=also, quantised=None), weights)


def _places(n: Var, k: int, how: Quantised) -> tuple[tuple[Var, ...], list[Index]]:
    """The loops of the map, and the places of a row that an iteration writes: one, or the values of a whole word."""
    chunk = PLANES * how.run
    if not how.run or k % chunk:
        depth = Var("k", as_index(k))
        return (n, depth), [of(depth)]
    chunks, word = Var("chunk", as_index(k // chunk)), Var("word", as_index(how.run))
    return (n, chunks, word), [of(chunks) * chunk + of(word) + plane * how.run for plane in range(PLANES)]


def _value(b: Operand, how: Quantised, n: Var, depth: Index) -> Expr:
    """What the integer at row n and place `depth` stands for, in float32; without groups the caller scales."""
    value = _four_bits(b, how.run, n, depth) if how.run else _byte(b, how, n, depth)
    if not how.group:
        return value
    assert how.scales is not None
    place = depth // as_index(how.group) * n.extent + of(n)
    if how.zeros is not None:
        value = Call("sub", (value, cast(Load(how.zeros, place), "f32")), "f32")
    return Call("mul", (value, cast(Load(how.scales, place), "f32")), "f32")


def _byte(b: Operand, how: Quantised, n: Var, depth: Index) -> Expr:
    along, across = b.strides[-2:]
    byte = Load(b.buffer, b.offset + of(n) * across + depth * along)
    return float8_number(byte) if how.float8 and byte.dtype == "u8" else cast(byte, "f32")


def _four_bits(b: Operand, run: int, n: Var, depth: Index) -> Expr:
    """See layouts.row_words: four bits of a word of two bytes, which has a value of each of four runs of k."""
    chunk = as_index(PLANES * run)
    word, plane = depth // chunk * run + depth % as_index(run), depth % chunk // as_index(run)
    byte = Load(b.buffer, b.offset + of(n) * b.strides[-1] + word * 2 + plane // as_index(2))
    low = plane % as_index(2) * 4
    shift = cast(IndexValue(low), "i32") if low.constant is None else Const(low.constant, "i32")
    nibble = Call("bit_and", (Call("shift_right", (cast(byte, "i32"), shift), "i32"), Const(15, "i32")), "i32")
    return cast(Call("sub", (nibble, Const(8, "i32")), "i32"), "f32")
