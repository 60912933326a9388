"""kernels/attention/gradient.h against torch's gradients in float64, for every ISA level that this CPU runs."""

from __future__ import annotations

import ctypes

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .test_attention import (
    INF,
    KEYS,
    LENGTHS,
    LEVELS,
    NAMES,
    SIZES,
    STRIDES,
    attend,
    random_mask,
    run_kernel,
    tensor,
)

RESULTS = ("of_q", "of_k", "of_v")
DIMS = ("batch", "head", "row")


class GradientArgs(ctypes.Structure):
    """The C++ struct AttentionGradientArgs, or that of another element type."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, *STRIDES)),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_bool),
        ("causal_offset", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("k_first", "v_first")),
        *((f"{name}_rest_{dim}", ctypes.c_int64) for name in ("k", "v") for dim in DIMS),
        *((f"{name}_pages", ctypes.c_void_p) for name in ("k", "v")),
        *((f"{name}_pages_{dim}", ctypes.c_int64) for name in ("k", "v") for dim in ("batch", "step")),
        *((f"{name}_pages_shift", ctypes.c_int) for name in ("k", "v")),
        *((f"logsumexp_{dim}", ctypes.c_int64) for dim in DIMS),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "grad", "logsumexp", "inner", *RESULTS)),
        *((f"{name}_{dim}", ctypes.c_int64) for name in ("inner", *RESULTS) for dim in DIMS),
    )


def gradients(
    isa: str, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
    mask: torch.Tensor | None = None, causal: bool = False, threads: int = 1,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Those of q, k and v by the kernel, with what its forward pass keeps."""
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    log = torch.full((batch, queries, heads), 7.0).transpose(1, 2)
    out = attend(isa, q, k, v, mask=mask, causal=causal, threads=threads, logsumexp=log)
    inner = (grad.float() * out.float()).sum(-1)
    results = [torch.full(t.shape, 7.0, dtype=t.dtype) for t in (q, k, v)]
    args = GradientArgs(
        batch, heads, k.shape[1], queries, keys, size, v.shape[3],
        *(n for t in (q, k, v, grad) for n in t.stride()[:3]),
        size**-0.5, causal, 0, keys, keys, *[0] * 6, None, None, *[0] * 6, *log.stride(),
        *(t.data_ptr() for t in (q, k, v, grad, log, inner, *results)),
        *inner.stride(), *(n for t in results for n in t.stride()[:3]),
    )  # fmt: skip
    run_kernel(isa, f"test_attention_gradient_{NAMES[q.dtype]}", args, mask, (batch, heads, queries, keys), threads)
    return tuple(results)


def reference(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool
) -> tuple[tuple[torch.Tensor, float], ...]:
    """torch's in float64, and of each the size of what is summed; of rows that see no key all are 0."""
    sources = [t.double().requires_grad_() for t in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (t.repeat_interleave(group, 1) for t in sources[1:])
    scores = sources[0] @ wide_k.mT * q.shape[3] ** -0.5 + (0 if mask is None else mask.double())
    if causal:
        hidden = torch.ones(scores.shape[-2:]).triu(1) > 0
        scores = scores.masked_fill(hidden, -INF)
    nothing = (scores == -INF).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    found = torch.autograd.grad(weights @ wide_v, sources, grad.double())
    with torch.no_grad():
        far, wide_q = grad.double().abs(), sources[0].abs() * q.shape[3] ** -0.5
        terms = weights * (far @ wide_v.abs().mT + (far * (weights @ wide_v).abs()).sum(-1, keepdim=True))
        by_head = [terms.mT @ wide_q, weights.mT @ far]
        sums = [t.unflatten(1, (-1, group)).sum(2).norm().item() for t in by_head]
        of_q = (terms @ wide_k.abs()).norm().item() * q.shape[3] ** -0.5
    return tuple(zip(found, (of_q, *sums), strict=True))


@pytest.mark.parametrize("isa", LEVELS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.integers(1, 2), kv_heads=st.integers(1, 3), group=st.integers(1, 3), queries=LENGTHS, keys=KEYS,
    head_size=st.sampled_from([1, 7, 16, 20, 64, 80, 128]), value_size=st.sampled_from([1, 16, 33, 64, 128]),
    heads_last=st.booleans(), masked=st.booleans(), causal=st.booleans(), size=st.sampled_from([0.1, 1.0, 4.0]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_gradient(
    isa: str, batch: int, kv_heads: int, group: int, queries: int, keys: int, head_size: int, value_size: int,
    heads_last: bool, masked: bool, causal: bool, size: float, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    q = tensor(batch, kv_heads * group, queries, head_size, heads_last=heads_last) * size
    k = tensor(batch, kv_heads, keys, head_size, heads_last=heads_last)
    v = tensor(batch, kv_heads, keys, value_size, heads_last=heads_last)
    grad = tensor(batch, kv_heads * group, queries, value_size, heads_last=not heads_last)
    mask = random_mask(batch, queries, keys) if masked else None
    one, many = (gradients(isa, grad, q, k, v, mask=mask, causal=causal, threads=n) for n in (1, 7))
    for got, again, (expected, summed) in zip(one, many, reference(grad, q, k, v, mask, causal), strict=True):
        assert (got - expected).norm() <= 1e-6 * max(1.0, size) * summed
        assert got.numpy().tobytes() == again.numpy().tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_elements_of_16_bits(isa: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    grad, q, k, v = (tensor(2, 2, n, 40).to(dtype) for n in (130, 130, 200, 200))
    for got, (expected, _) in zip(gradients(isa, grad, q, k, v), reference(grad, q, k, v, None, False), strict=True):
        assert got.dtype == dtype
        assert (got - expected).norm() <= torch.finfo(dtype).eps * expected.norm()
