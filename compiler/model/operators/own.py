"""Operators of mycc's own that the graph passes bring in, with what they compute, for torch.

They work on real tensors: of a complex value, the real and the imaginary part; `table` is of compiler/ir/fourier.py, or
None where the size is not known. Implemented by torch for constants that
are folded; the lowering has them in lower/linalg/fourier.py and lower/reduce/scan.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("mycc", "FRAGMENT")


def own_operator(
    schema: str, fake: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Defines mycc::name from its schema; the decorated function computes it, and fake values unless `fake` does."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _LIBRARY.define(schema)
        name = schema.split("(")[0]
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"mycc::{name}", fake or function)
        return function

    return add


@own_operator("refused(Tensor[] operands, str operator, str reason) -> Tensor")
def refused(operands: list[Tensor], operator: str, reason: str) -> Tensor:
    """Stands for an operator that cannot be compiled, so that the lowering tells it with all others."""
    raise NotImplementedError(f"{operator}: {reason}")


@own_operator("assert_true(Tensor condition, str text) -> ()", lambda *_: None)
def assert_true(condition: Tensor, text: str) -> None:
    """Fails with `text` unless the condition, a bool of one element, holds."""
    if not bool(condition):
        raise RuntimeError(text)


@own_operator(
    "ctc_loss(Tensor probs, Tensor labels, Tensor first, Tensor lengths, int blank) -> Tensor",
    lambda probs, *_: probs.new_empty([probs.shape[1]]),
)
def ctc_loss(probs: Tensor, labels: Tensor, first: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The CTC loss of each sequence.

    Args:
        probs: log probabilities, [steps, batch, classes].
        labels: of all sequences, int64; first [batch]: where those of each begin.
        lengths: [batch, 2], int64: steps of each sequence, and its labels.
    """
    losses = []
    for i, (steps, count) in enumerate(lengths.tolist()):
        own = labels[int(first[i]) : int(first[i]) + count].unsqueeze(0)
        losses.append(torch.ctc_loss(probs[:, i : i + 1], own, [steps], [count], blank, reduction=0))
    return torch.cat(losses) if losses else probs.new_empty([0])


@own_operator(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? sinks, float scale, float? softcap)"
    " -> (Tensor, Tensor)",
    lambda q, k, v, *_: (q.new_empty([*q.shape[:3], v.shape[3]]), q.new_empty(q.shape[:3], dtype=working(q))),
)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention with what torch's scaled_dot_product_attention has no argument for.

    Args:
        q, k, v: [batch, heads, queries, size], [batch, key heads, keys, size], [batch, key heads, keys, value size].
        mask: of bools, True where a key counts, or added; as the scores [batch, heads, queries, keys], or broadcast.
        sinks: one more score of each row, which takes weight and has no value; as [batch, heads, queries, 1].
        softcap: scores become softcap * tanh(score / softcap), in front of the mask.

    Returns: [batch, heads, queries, value size], and of each row the logarithm of the sum of exponentials of its
        scores, without the sink: [batch, heads, queries] of float32 at least. A row without a key is 0, and -inf.
    """
    of, group = working(q), q.shape[1] // k.shape[1]
    wide, keys, values = (x.to(of) for x in (q, k, v))
    if group != 1:
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.matmul(wide * scale, keys.mT)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.where(mask, scores, float("-inf"))
    elif mask is not None:
        scores = scores + mask.to(of)
    weights, top, total = _exponentials(scores)
    logsumexp = (top + torch.log(total)).squeeze(-1)
    if sinks is not None:
        total = total + torch.exp(sinks.to(of) - top)
    result = torch.matmul(weights / torch.where(total == 0, 1.0, total), values)
    return result.to(q.dtype), logsumexp


@own_operator(
    "softmax_values(Tensor scores, Tensor value) -> (Tensor, Tensor)",
    lambda s, v: (v.new_empty([*s.shape[:3], v.shape[3]]), s.new_empty(s.shape[:3])),
)
def softmax_values(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(scores) @ value in the type of the value, of [batch, heads, queries, keys] and [batch, heads, keys,
    size]; and of each row the logarithm of the sum of exponentials. A row of -inf alone is 0, and -inf."""
    weights, top, total = _exponentials(scores)
    result = torch.matmul((weights / torch.where(total == 0, torch.ones_like(total), total)).to(value.dtype), value)
    return result, (top + torch.log(total)).squeeze(-1)


def _exponentials(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """exp(scores - top), the largest score of each row (0 for a row of -inf alone), and the sum of the exponentials."""
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == float("-inf"), torch.zeros_like(top), top)
    weights = torch.exp(scores - top)
    return weights, top, weights.sum(-1, keepdim=True)


def working(x: Tensor) -> torch.dtype:
    """The type in which attention is computed."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _parts(z: Tensor) -> tuple[Tensor, Tensor]:
    return z.real.contiguous(), z.imag.contiguous()


@own_operator("complex_cumprod(Tensor re, Tensor im, int dim) -> (Tensor, Tensor)")
def complex_cumprod(re: Tensor, im: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running products along `dim`."""
    return _parts(torch.cumprod(torch.complex(re, im), dim))


def _sized(x: Tensor, n: Any) -> Tensor:
    return x.new_empty([*x.shape[:-1], n])


@own_operator(
    "fft(Tensor re, Tensor im, Tensor? table, bool forward) -> (Tensor, Tensor)",
    lambda re, im, *_: (_sized(re, re.shape[-1]), _sized(im, im.shape[-1])),
)
def fft(re: Tensor, im: Tensor, table: Tensor | None, forward: bool) -> tuple[Tensor, Tensor]:
    """The discrete Fourier transform along the last dimension, not scaled; the inverse's sign when not `forward`."""
    z = torch.complex(re, im)
    return _parts(torch.fft.fft(z) if forward else torch.fft.ifft(z, norm="forward"))


@own_operator(
    "rfft(Tensor x, Tensor? table) -> (Tensor, Tensor)",
    lambda x, _: tuple(_sized(x, x.shape[-1] // 2 + 1) for _ in range(2)),
)
def rfft(x: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first n // 2 + 1 values of the forward transform of n real ones along the last dimension."""
    return _parts(torch.fft.rfft(x))


@own_operator("irfft(Tensor re, Tensor im, Tensor? table, SymInt n) -> Tensor", lambda re, im, table, n: _sized(re, n))
def irfft(re: Tensor, im: Tensor, table: Tensor | None, n: int) -> Tensor:
    """The n real values whose transform begins with these n // 2 + 1, not scaled by 1 / n."""
    return torch.fft.irfft(torch.complex(re, im), n, norm="forward").contiguous()


def _fake_geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    m, n = a.shape[-2:]
    return a.mT.new_empty(a.mT.shape).mT, a.new_empty([*a.shape[:-2], torch.sym_min(m, n)])


if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::geqrf", "Meta"):  # else no dynamic size passes it
    torch.library.register_fake("aten::geqrf")(_fake_geqrf)


# factorisations: of a matrix, its parts; results likewise ------------------------------------------------------------
@own_operator("complex_lu(Tensor re, Tensor im) -> (Tensor, Tensor, Tensor, Tensor)")
def complex_lu(re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    """As torch.linalg.lu_factor_ex."""
    lu, pivots, info = torch.linalg.lu_factor_ex(torch.complex(re, im))
    return (*_parts(lu), pivots.contiguous(), info.contiguous())


@own_operator("complex_triangular(Tensor a, Tensor ai, Tensor b, Tensor bi, bool upper, bool unit) -> (Tensor, Tensor)")
def complex_triangular(a: Tensor, ai: Tensor, b: Tensor, bi: Tensor, upper: bool, unit: bool) -> tuple[Tensor, ...]:
    """x with a x = b, of the same batch."""
    matrix, right = torch.complex(a, ai), torch.complex(b, bi)
    return _parts(torch.linalg.solve_triangular(matrix, right, upper=upper, unitriangular=unit))


@own_operator("complex_cholesky(Tensor re, Tensor im) -> (Tensor, Tensor, Tensor)")
def complex_cholesky(re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    """The lower factor, and info."""
    factor, info = torch.linalg.cholesky_ex(torch.complex(re, im))
    return (*_parts(factor), info.contiguous())


@own_operator("complex_qr(Tensor re, Tensor im) -> (Tensor, Tensor, Tensor, Tensor)")
def complex_qr(re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    """As torch.geqrf."""
    packed, tau = torch.geqrf(torch.complex(re, im))
    return (*_parts(packed), *_parts(tau))


@own_operator("complex_reflectors(Tensor a, Tensor ai, Tensor tau, Tensor taui) -> (Tensor, Tensor)")
def complex_reflectors(a: Tensor, ai: Tensor, tau: Tensor, taui: Tensor) -> tuple[Tensor, ...]:
    """As torch.linalg.householder_product."""
    return _parts(torch.linalg.householder_product(torch.complex(a, ai), torch.complex(tau, taui)))


@own_operator("complex_eigh(Tensor re, Tensor im) -> (Tensor, Tensor, Tensor)")
def complex_eigh(re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    """Values, and the parts of the vectors, from the lower triangle."""
    values, vectors = torch.linalg.eigh(torch.complex(re, im))
    return (values, *_parts(vectors))


@own_operator("complex_svd(Tensor re, Tensor im, bool full) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
def complex_svd(re: Tensor, im: Tensor, full: bool) -> tuple[Tensor, ...]:
    """u, s and v (not its adjoint) of a matrix with as many rows as columns or more; full: all columns of u."""
    u, s, vh = torch.linalg.svd(torch.complex(re, im), full_matrices=full)
    return (*_parts(u), s, *_parts(vh.mH))


@own_operator("eig(Tensor x) -> (Tensor, Tensor, Tensor, Tensor)")
def eig(x: Tensor) -> tuple[Tensor, ...]:
    """The parts of the values and of the vectors of a real matrix, as torch.linalg.eig has them."""
    values, vectors = torch.linalg.eig(x)
    return (*_parts(values), *_parts(vectors))


@own_operator("complex_eig(Tensor re, Tensor im) -> (Tensor, Tensor, Tensor, Tensor)")
def complex_eig(re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
    """As torch.linalg.eig."""
    values, vectors = torch.linalg.eig(torch.complex(re, im))
    return (*_parts(values), *_parts(vectors))


@own_operator("complex_ldl(Tensor re, Tensor im, bool hermitian) -> (Tensor, Tensor, Tensor, Tensor)")
def complex_ldl(re: Tensor, im: Tensor, hermitian: bool) -> tuple[Tensor, ...]:
    """As torch.linalg.ldl_factor_ex."""
    factors, pivots, info = torch.linalg.ldl_factor_ex(torch.complex(re, im), hermitian=hermitian)
    return (*_parts(factors), pivots.contiguous(), info.contiguous())


@own_operator(
    "complex_ldl_solve(Tensor ld, Tensor ldi, Tensor pivots, Tensor b, Tensor bi, bool hermitian) -> (Tensor, Tensor)"
)
def complex_ldl_solve(
    ld: Tensor, ldi: Tensor, pivots: Tensor, b: Tensor, bi: Tensor, hermitian: bool
) -> tuple[Tensor, ...]:
    """As torch.linalg.ldl_solve, of the same batch."""
    factors, right = torch.complex(ld, ldi), torch.complex(b, bi)
    return _parts(torch.linalg.ldl_solve(factors, pivots, right, hermitian=hermitian))


@own_operator(
    "read_blocks(Tensor memory, Tensor table, SymInt count) -> Tensor",
    lambda memory, table, count: memory.new_empty([table.shape[0], memory.shape[1], count, memory.shape[3]]),
)
def read_blocks(memory: Tensor, table: Tensor, count: int) -> Tensor:
    """The first `count` rows of each text, which lie in blocks.

    Args:
        memory: [blocks, heads, rows of a block, size].
        table: i64[texts, blocks of a text]; row n of text b is row n % rows of block table[b, n // rows].

    Returns:
        [texts, heads, count, size].
    """
    rows = torch.arange(count)
    size = memory.shape[2]
    return memory[table[:, rows // size].unsqueeze(1), torch.arange(memory.shape[1])[:, None], rows % size]


@own_operator("recomputed(Tensor x) -> Tensor")
def recomputed(x: Tensor) -> Tensor:
    """x, for an operator that a backward pass repeats: passes do not take the two for equal, so that the first result's
    memory is free between them."""
    return x.clone()


@own_operator(
    "conv_weight_gradient(Tensor small, Tensor large, int[] kernel, int[] stride, int[] padding, int[] dilation)"
    " -> Tensor",
    lambda small, large, kernel, *_: small.new_empty([small.shape[1], large.shape[1], *kernel]),
)
def conv_weight_gradient(
    small: Tensor, large: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """The gradient of a convolution's weight: sums over all places p of all samples n.

        w[a, b, t] = sum over n, p of small[n, a, p] * large[n, b, p * stride + t * dilation - padding]

    Args:
        small: the gradient of the output; of a transposed convolution its input.
        large: the input; of a transposed convolution the gradient of its output.
    """
    weight = small.new_zeros([small.shape[1], large.shape[1], *kernel])
    geometry = (stride, padding, dilation, False, [0] * len(kernel), 1)
    found = torch.ops.aten.convolution_backward(small, large, weight, None, *geometry, [False, True, False])
    return found[1]
