"""Matrix nodes of given sizes: what benchmarks measure, and tests compare with torch.

probe = gemm_probe(128, 768, 3072, "bf16", bias=True, residual=True)
launches_of(probe.node, device, "gemm")         # kernels over probe.buffers
probe.reference({"a": ..., "b": ...})           # the result in float64
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc, Call, Const, Expr, Load
from ...ir.index import ONE, ZERO, Index, IndexLike, Var, as_index, of, product, row_major
from ...ir.layouts import row_words
from ...ir.nodes import Origin, Store
from ...ir.structured import Attention, Conv, Gemm, Prologue, Quantised, Window

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class Probe:
    """A node, its buffers by name, the shapes of its inputs, and its result "y" from float64 inputs."""

    node: Gemm | Conv | Attention
    buffers: dict[str, Buffer]
    shapes: dict[str, tuple[Index, ...]]
    reference: Callable[[Tensors], torch.Tensor]


class _Builder:
    def __init__(self, dtype: str):
        self.dtype = dtype
        self.buffers: dict[str, Buffer] = {}
        self.shapes: dict[str, tuple[Index, ...]] = {}

    def buffer(self, name: str, *shape: IndexLike, kind: str = "temp", dtype: str = "") -> Buffer:
        self.shapes[name] = tuple(as_index(s) for s in shape)
        self.buffers[name] = Buffer(name, dtype or self.dtype, product(self.shapes[name]), kind)
        return self.buffers[name]


def gemm_probe(
    m: IndexLike,
    n: int,
    k: int,
    dtype: str,
    *,
    batch: tuple[int, ...] = (),
    bias: bool = False,
    residual: bool = False,
    activation: str = "",
    gate: bool = False,
    transposed: bool = False,
    columns_dense: bool = False,
    slices: int = 0,
    out_dtype: str = "",
) -> Probe:
    """y = activation(a b^T + bias) + residual, a [batch, m, k], b [n, k] ([batch, n, k] with batches).

    gate: the activated value is multiplied by another tensor. transposed: y is stored [n, m]. columns_dense: b lies as
    [k, n]. slices: y [slices, m, n] has the sums over so many parts of k.
    """
    make = _Builder(dtype)
    rows, lead = as_index(m), tuple(as_index(b) for b in batch)
    a = make.buffer("a", *lead, rows, k)
    kind = "temp" if batch else "const"
    b = make.buffer("b", *lead, k, n, kind=kind) if columns_dense else make.buffer("b", *lead, n, k, kind=kind)
    y = make.buffer("y", *lead, *((n, rows) if transposed else (rows, n)), dtype=out_dtype)
    loops = tuple(Var(f"z{i}", e) for i, e in enumerate(lead))
    vm, vn = Var("m", rows), Var("n", as_index(n))

    def at(*indices: Index, extents: tuple[Index, ...]) -> Index:
        flat = ZERO
        for i, e in zip(indices, extents, strict=True):
            flat = flat * e + i
        return flat

    z = tuple(of(v) for v in loops)
    place = at(*z, of(vm), of(vn), extents=(*lead, rows, as_index(n)))
    value: Expr = Acc("acc", "f32")
    if bias:
        value = Call("add", (value, _f32(Load(make.buffer("bias", n, kind="const"), of(vn)))), "f32")
    if activation:
        value = _activation(activation, value)
    if gate:
        value = Call("mul", (value, _f32(Load(make.buffer("gate", *lead, rows, n), place))), "f32")
    if residual:
        value = Call("add", (value, _f32(Load(make.buffer("residual", *lead, rows, n), place))), "f32")
    if transposed:
        place = at(*z, of(vn), of(vm), extents=(*lead, as_index(n), rows))
    strides_a = (*_dense((*lead, rows, as_index(k)))[:-2], as_index(k), ONE)
    lead_b = _dense((*lead, as_index(n), as_index(k)))[:-2]
    strides_b = (*lead_b, as_index(n), ONE) if columns_dense else (*lead_b, ONE, as_index(k))
    if slices:
        return _sliced(make, as_index(m), n, k, slices, out_dtype)
    node = Gemm(
        (*loops, vm, vn),
        (Store(y, place, value),),
        Origin(("aten.linear",), ("model.py:1",)),
        as_index(k),
        Operand(a, ZERO, strides_a),
        Operand(b, ZERO, strides_b),
        False,
        Acc("acc", "f32"),
    )

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        y = t["a"] @ (t["b"] if columns_dense else t["b"].transpose(-1, -2))
        if bias:
            y = y + t["bias"]
        if activation:
            y = {"gelu_erf": torch.nn.functional.gelu, "relu": torch.relu}[activation](y)
        if gate:
            y = y * t["gate"]
        if residual:
            y = y + t["residual"]
        return y.transpose(-1, -2) if transposed else y

    return Probe(node, make.buffers, make.shapes, reference)


#: what a product may make of its left operand -> the same of float64 tensors
COMPUTED: dict[str, Callable[[Tensors], torch.Tensor]] = {
    "cast": lambda t: t["a"],
    "relu": lambda t: t["a"].relu(),
    "gelu": lambda t: t["a"] * 0.5 * (1.0 + (t["a"] * 0.5**0.5).erf()),
    "exp": lambda t: t["a"].exp(),
    "scaled_columns": lambda t: t["a"] * t["scale"],
    "scaled_rows": lambda t: t["a"] * t["scale"][:, None],
    "sum": lambda t: t["a"] + t["other"],
}


def quantised_probe(m: IndexLike, n: int, k: int, dtype: str, bits: int, group: int = 0, run: int = 0) -> Probe:
    """A product of rows of `dtype` and weights "b" of 8 bits, or of 4 in planes of `run` words, with "scales" by groups
    or by rows; its reference takes the weights as they lie in memory, of 4 bits as bytes."""
    make, rows = _Builder(dtype), as_index(m)
    a = make.buffer("a", rows, k)
    size = row_words(k, run) * 2 if run else k
    b = make.buffer("b", n, size, kind="const", dtype="u8" if run else "i8")
    scales = make.buffer("scales", k // group if group else 1, n, kind="const", dtype="f16")
    y = make.buffer("y", rows, n)
    dims = _loops(m=rows, n=n)
    acc = Acc("acc", "f32")
    value: Expr = acc if group else Call("mul", (acc, _f32(Load(scales, of(dims[1])))), "f32")
    how = Quantised(bits, group, scales if group else None, run=run)
    left, right = Operand(a, ZERO, (as_index(k), ONE)), Operand(b, ZERO, (ZERO if run else ONE, as_index(size)))
    store = Store(y, row_major(dims), Call("cast", (value,), dtype) if dtype != "f32" else value)
    node = Gemm(dims, (store,), Origin(), as_index(k), left, right, False, acc, quantised=how)

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        w = t["b"]
        if run:
            halves = torch.stack((w.long() & 15, w.long() >> 4), -1)  # [n, bytes, 2]
            w = halves.reshape(n, -1, run, 4).transpose(2, 3).reshape(n, -1)[:, :k].double() - 8
        return t["a"] @ (w * t["scales"].t().repeat_interleave(group or k, 1)).t()

    return Probe(node, make.buffers, make.shapes, reference)


def float8_probe(m: IndexLike, n: int, k: int) -> Probe:
    """A product of float8 rows and weights, in bytes; its reference takes bytes too."""
    make, rows = _Builder("u8"), as_index(m)
    a, b = make.buffer("a", rows, k), make.buffer("b", n, k, kind="const")
    y = make.buffer("y", rows, n, dtype="bf16")
    dims = _loops(m=rows, n=n)
    acc = Acc("acc", "f32")
    left, right = Operand(a, ZERO, (as_index(k), ONE)), Operand(b, ZERO, (ONE, as_index(k)))
    store = Store(y, row_major(dims), Call("cast", (acc,), "bf16"))
    how = Quantised(8, float8=True)
    node = Gemm(dims, (store,), Origin(), as_index(k), left, right, False, acc, quantised=how)

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        left, right = (t[name].view(torch.float8_e4m3fn).double() for name in "ab")
        return left @ right.t()

    return Probe(node, make.buffers, make.shapes, reference)


def computed_probe(what: str, probe: Probe, a_dtype: str = "") -> Probe:
    """A product of `gemm_probe` that makes its left operand, of a_dtype in memory, by a row of COMPUTED."""
    node, own = probe.node, probe.buffers["a"].dtype
    make = _Builder(a_dtype or own)
    assert isinstance(node, Gemm)
    shape = probe.shapes["a"]
    dims, depth, acc = node.dims[:-1], Var("depth", node.k), Acc("a", make.dtype)
    a = replace(node.a, buffer=make.buffer("a", *shape))
    value: Expr = acc if make.dtype == "f32" else Call("cast", (acc,), "f32")
    if what == "scaled_columns":
        value = Call("mul", (value, _f32(Load(make.buffer("scale", node.k, dtype=own), of(depth)))), "f32")
    elif what == "scaled_rows":
        value = Call("mul", (value, _f32(Load(make.buffer("scale", dims[-1].extent, dtype=own), of(dims[-1])))), "f32")
    elif what == "sum":
        place = sum((of(v) * s for v, s in zip((*dims, depth), node.a.strides, strict=True)), ZERO)
        value = Call("add", (value, _f32(Load(make.buffer("other", *shape, dtype=own), place))), "f32")
    elif what != "cast":
        value = _activation({"gelu": "gelu_erf"}.get(what, what), value)
    made = Prologue(depth, acc, value, own)
    buffers, shapes = {**probe.buffers, **make.buffers}, {**probe.shapes, **make.shapes}
    return Probe(
        replace(node, a=a, prologue=made),
        buffers,
        shapes,
        lambda t: probe.reference({**t, "a": COMPUTED[what](t)}),
    )


def pair_probe(m: IndexLike, n: int, k: int, dtype: str) -> Probe:
    """y = silu(a b^T) * (a c^T), where b is the upper and c the lower half of w [2n, k]."""
    make = _Builder(dtype)
    rows = as_index(m)
    a, w = make.buffer("a", rows, k), make.buffer("w", 2 * n, k, kind="const")
    y = make.buffer("y", rows, n)
    vm, vn = Var("m", rows), Var("n", as_index(n))
    gate, value = Acc("acc", "f32"), Acc("acc1", "f32")
    stored = Call("mul", (Call("silu", (gate,), "f32"), value), "f32")
    node = Gemm(
        (vm, vn),
        (Store(y, of(vm) * n + of(vn), stored),),
        Origin(("aten.linear", "aten.silu", "aten.mul"), ("model.py:1",)),
        as_index(k),
        Operand(a, ZERO, (as_index(k), ONE)),
        Operand(w, ZERO, (ONE, as_index(k))),
        False,
        gate,
        ((Operand(w, as_index(n * k), (ONE, as_index(k))), value),),
    )

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        gate, value = (t["a"] @ t["w"].t()).chunk(2, -1)
        return torch.nn.functional.silu(gate) * value

    return Probe(node, make.buffers, make.shapes, reference)


def _sliced(make: _Builder, m: Index, n: int, k: int, slices: int, out_dtype: str) -> Probe:
    part = k // slices
    y = make.buffer("y", slices, m, n, dtype=out_dtype)
    s, vm, vn = Var("s", as_index(slices)), Var("m", m), Var("n", as_index(n))
    node = Gemm(
        (s, vm, vn),
        (Store(y, (of(s) * m + of(vm)) * n + of(vn), Acc("acc", "f32")),),
        Origin(("aten.linear",), ("model.py:1",)),
        as_index(part),
        Operand(make.buffers["a"], ZERO, (as_index(part), as_index(k), ONE)),
        Operand(make.buffers["b"], ZERO, (as_index(part), ONE, as_index(k))),
        False,
        Acc("acc", "f32"),
    )

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        a, b = (t[name].reshape(-1, slices, part).transpose(0, 1) for name in "ab")
        return torch.bmm(a, b.transpose(1, 2))

    return Probe(node, make.buffers, make.shapes, reference)


def conv_probe(
    batch: IndexLike,
    size: tuple[int, int],
    channels: int,
    out: int,
    window: Window,
    dtype: str,
    *,
    bias: bool = False,
    residual: bool = False,
    relu: bool = False,
) -> Probe:
    """y = relu(conv(x, w) + bias + residual), x [batch, h, w, channels], w [out, taps, channels / groups]."""
    make = _Builder(dtype)
    n, (height, width) = as_index(batch), size
    kh, kw = window.kernel
    oh, ow = (
        (s + 2 * p - d * (k - 1) - 1) // st + 1
        for s, k, st, p, d in zip(size, window.kernel, window.stride, window.pad, window.dilation, strict=True)
    )
    depthwise = window.groups > 1 and window.groups == channels == out
    x = make.buffer("x", n, height, width, channels)
    w_shape = (kh * kw, channels) if depthwise else (out, kh * kw, channels // window.groups)
    w = make.buffer("w", *w_shape, kind="const")
    y = make.buffer("y", n, oh, ow, out)
    dims = _loops(n=n, h=oh, w=ow, c=out)
    place = row_major(dims)
    value: Expr = Acc("acc", "f32")
    if bias:
        value = Call("add", (value, _f32(Load(make.buffer("bias", out, kind="const"), of(dims[3])))), "f32")
    if residual:
        value = Call("add", (value, _f32(Load(make.buffer("residual", n, oh, ow, out), place))), "f32")
    if relu:
        value = _activation("relu", value)
    strides = tuple(as_index(s) for s in (height * width * channels, width * channels, channels))
    node = Conv(
        dims,
        (Store(y, place, value),),
        Origin(("aten.conv2d",), ("model.py:1",)),
        Operand(x, ZERO, strides),
        w,
        ZERO,
        (n, as_index(height), as_index(width), as_index(channels)),
        window,
        Acc("acc", "f32"),
    )

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        x = t["x"].permute(0, 3, 1, 2)
        w = t["w"].t().reshape(out, 1, kh, kw) if depthwise else t["w"].permute(0, 2, 1).reshape(out, -1, kh, kw)
        y = torch.nn.functional.conv2d(
            x, w, t.get("bias"), window.stride, window.pad, window.dilation, window.groups
        ).permute(0, 2, 3, 1)
        y = y + t["residual"] if residual else y
        return torch.relu(y) if relu else y

    return Probe(node, make.buffers, make.shapes, reference)


def attention_probe(
    batch: IndexLike,
    heads: int,
    queries: IndexLike,
    keys: IndexLike,
    head: int,
    dtype: str,
    *,
    kv_heads: int = 0,
    value_size: int = 0,
    causal: bool = False,
    mask: str = "",
    scale: float | None = None,
) -> Probe:
    """y [batch, queries, heads, value] from q, k, v [batch, rows, heads, head]; mask: "", "bool" [batch, keys], "bias"
    [heads, queries, keys]; scale: None for 1 / sqrt(head)."""
    make = _Builder(dtype)
    groups, value = kv_heads or heads, value_size or head
    factor = head**-0.5 if scale is None else scale
    b, m, n = as_index(batch), as_index(queries), as_index(keys)
    q = make.buffer("q", b, m, heads, head)
    k = make.buffer("k", b, n, groups, head)
    v = make.buffer("v", b, n, groups, value)
    y = make.buffer("y", b, m, heads, value)
    dims = _loops(b=b, h=heads, m=m, d=value)
    key = Var("key", n)
    score: Expr | None = None
    if mask == "bool":
        seen = Load(make.buffer("mask", b, n, dtype="bool"), of(dims[0]) * n + of(key))
        score = Call("where", (seen, Acc("score", "f32"), Const(float("-inf"), "f32")), "f32")
    elif mask == "bias":
        at = (of(dims[1]) * m + of(dims[2])) * n + of(key)
        score = Call("add", (Acc("score", "f32"), _f32(Load(make.buffer("mask", heads, m, n), at))), "f32")

    def operand(buffer: Buffer, rows: Index, h: int, d: int) -> Operand:
        return Operand(buffer, ZERO, (rows * (h * d), as_index(d), as_index(h * d)))

    node = Attention(
        dims,
        (),
        Origin(("aten.scaled_dot_product_attention",), ("model.py:1",)),
        operand(q, m, heads, head),
        operand(k, n, groups, head),
        operand(v, n, groups, value),
        operand(y, m, heads, value),
        as_index(groups),
        n,
        as_index(head),
        factor,
        causal,
        key,
        score,
    )

    def reference(t: Tensors) -> torch.Tensor:
        import torch

        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        k, v = (x.repeat_interleave(heads // groups, 1) for x in (k, v))
        s = q @ k.transpose(-1, -2) * factor
        if causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), float("-inf"))
        if mask == "bool":
            s = s.masked_fill(~t["mask"].bool()[:, None, None, :], float("-inf"))
        elif mask == "bias":
            s = s + t["mask"]
        p = torch.nan_to_num(torch.softmax(s, -1)) if mask else torch.softmax(s, -1)
        return (p @ v).transpose(1, 2)

    return Probe(node, make.buffers, make.shapes, reference)


def _activation(name: str, value: Expr) -> Expr:
    return Call("maximum", (value, Const(0.0, "f32")), "f32") if name == "relu" else Call(name, (value,), "f32")


def _f32(load: Load) -> Expr:
    return load if load.dtype == "f32" else Call("cast", (load,), "f32")


def _loops(**extents: IndexLike) -> tuple[Var, ...]:
    return tuple(Var(name, as_index(extent)) for name, extent in extents.items())


def _dense(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    strides = [ONE]
    for e in reversed(shape[1:]):
        strides.append(strides[-1] * e)
    return tuple(reversed(strides))
