"""kernels/attention/attention.h against torch in float64, for every ISA level that this CPU runs."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .gemm_support import built, levels, target_of

LEVELS = levels(1)
INF = float("inf")
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
SIZES = ["batch", "heads", "kv_heads", "queries", "keys", "head_size", "value_size"]
STRIDES = [f"{tensor}_{dim}" for tensor in ("q", "k", "v", "out") for dim in ("batch", "head", "row")]


class AttentionArgs(ctypes.Structure):
    """The C++ struct of the same name, or that of another element type."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_int64) for name in STRIDES),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_bool),
        ("causal_offset", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("k_first", "v_first")),
        *((f"{name}_rest_{dim}", ctypes.c_int64) for name in ("k", "v") for dim in ("batch", "head", "row")),
        *((f"{name}_pages", ctypes.c_void_p) for name in ("k", "v")),
        *((f"{name}_pages_{dim}", ctypes.c_int64) for name in ("k", "v") for dim in ("batch", "step")),
        *((f"{name}_pages_shift", ctypes.c_int) for name in ("k", "v")),
        *((f"logsumexp_{dim}", ctypes.c_int64) for dim in ("batch", "head", "row")),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "k_rest", "v_rest", "logsumexp", "sink")),
        *((f"sink_{dim}", ctypes.c_int64) for dim in ("batch", "head", "row")),
        ("empty", ctypes.c_float),
    )


@functools.cache
def library(isa: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="mycc-attention-") as folder:
        return build(isa, Path(folder))


def build(isa: str, folder: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(built("attention_library.cpp", target_of(isa), folder / "attention.so")))
    for name in NAMES.values():
        for function in ("attention", "attention_gradient"):
            getattr(loaded, f"test_{function}_{name}").restype = ctypes.c_int64
    return loaded


def run_kernel(
    isa: str, name: str, args: ctypes.Structure, mask: torch.Tensor | None, shape: tuple[int, ...], threads: int
) -> None:
    """Calls a test's C++ function, which counts the calls of its score functor outside the scores: there are none."""
    wide = None if mask is None else mask.expand(shape)
    pointer = None if wide is None else ctypes.c_void_p(wide.data_ptr())
    strides = None if wide is None else (ctypes.c_int64 * 3)(*wide.stride()[:3])
    misplaced = getattr(library(isa), name)(ctypes.byref(args), pointer, strides, ctypes.c_int(threads))
    assert misplaced == 0, f"the score functor was called {misplaced} times outside the scores"


def attend(
    isa: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: torch.Tensor | None = None,
    scale: float | None = None, causal: bool = False, offset: int = 0, threads: int = 1, heads_last: bool = False,
    rest: tuple[int, int] | None = None, logsumexp: torch.Tensor | None = None, sink: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """The kernel on q (b, h, m, d), k (b, g, n, d), v (b, g, n, e) of any strides; gives (b, h, m, e).

    rest: how many keys and how many values, the last ones, lie elsewhere. logsumexp (b, h, m) is written. sink: as it.
    """
    batch, heads, queries, _ = q.shape
    shape = (batch, queries, heads, v.shape[3]) if heads_last else (batch, heads, queries, v.shape[3])
    memory = torch.full((*shape[:3], shape[3] + 1), 7.0, dtype=q.dtype)  # a column that has to stay as it is
    out = memory[..., :-1].transpose(1, 2) if heads_last else memory[..., :-1]
    keys, (k, k_rest), (v, v_rest) = (
        k.shape[2],
        *(
            (t, t)
            if n is None
            else (t[:, :, : t.shape[2] - n].clone(), t[:, :, t.shape[2] - n :].transpose(1, 2).clone().transpose(1, 2))
            for t, n in zip((k, v), rest or (None, None), strict=True)
        ),
    )
    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    args = AttentionArgs(
        batch, heads, k.shape[1], queries, keys, q.shape[3], v.shape[3],
        *strides, q.shape[3] ** -0.5 if scale is None else scale, causal, offset,
        k.shape[2], v.shape[2], *k_rest.stride()[:3], *v_rest.stride()[:3],
        None, None, *[0] * 6,
        *((0, 0, 0) if logsumexp is None else logsumexp.stride()),
        *(tensor.data_ptr() for tensor in (q, k, v, out, k_rest, v_rest)),
        None if logsumexp is None else logsumexp.data_ptr(),
        *((None, 0, 0, 0) if sink is None else (sink.data_ptr(), *sink.stride())),
    )  # fmt: skip
    run_kernel(isa, f"test_attention_{NAMES[q.dtype]}", args, mask, (batch, heads, queries, keys), threads)
    assert (memory[..., -1] == 7.0).all(), "written behind a row of the output"
    return out


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: torch.Tensor | None = None, scale: float | None = None,
    causal: bool = False, offset: int = 0,
) -> torch.Tensor:  # fmt: skip
    """torch's scaled_dot_product_attention in float64."""
    seen = torch.zeros(q.shape[2], k.shape[2], dtype=torch.float64)
    if causal:
        later = torch.arange(k.shape[2])[None, :] > torch.arange(q.shape[2])[:, None] + offset
        seen = seen.masked_fill(later, -INF)
    bias = seen if mask is None else seen + mask.double()
    q, k, v = (tensor.double() for tensor in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, enable_gqa=True)


def tensor(*shape: int, heads_last: bool = False) -> torch.Tensor:
    """Random (b, h, s, d); in memory (b, s, h, d) if heads_last."""
    batch, heads, length, size = shape
    return torch.randn(batch, length, heads, size).transpose(1, 2) if heads_last else torch.randn(shape)


def random_mask(batch: int, queries: int, keys: int) -> torch.Tensor:
    """Finite and -inf, with one query that sees nothing."""
    mask = torch.randn(batch, 1, queries, keys)
    mask[torch.rand(mask.shape) < 0.2] = -INF
    mask[:, :, queries // 2] = -INF
    return mask


def check(got: torch.Tensor, expected: torch.Tensor, summed: torch.Tensor | None = None) -> None:
    """summed: the result for |v|. What is left of values that cancel cannot be nearer than they are rounded."""
    torch.testing.assert_close(got.double(), expected, rtol=2e-5, atol=4e-6, equal_nan=True)
    size = expected.norm()
    limit = 1e-6 * size if summed is None else torch.maximum(1e-6 * size, 2**-24 * summed.norm())
    assert size == 0 or not size.isfinite() or (got - expected).norm() < limit


LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([47, 48, 49, 64, 100, 127, 128, 130]))
KEYS = st.one_of(LENGTHS, st.sampled_from([383, 384, 385, 500, 769]))
HEAD_SIZES = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 48, 64, 65, 80, 96, 128]))


@pytest.mark.parametrize("isa", LEVELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.integers(1, 2), kv_heads=st.integers(1, 3), group=st.integers(1, 3), queries=LENGTHS, keys=KEYS,
    head_size=HEAD_SIZES, value_size=HEAD_SIZES, heads_last=st.booleans(), masked=st.booleans(),
    causal=st.sampled_from([None, "start", "end", "early"]), seed=st.integers(0, 99),
)  # fmt: skip
@example(
    batch=1, kv_heads=1, group=1, queries=1, keys=383, head_size=1, value_size=1, heads_last=False, masked=False,
    causal=None, seed=11,
).via("one result of 0.02, of values around 1")  # fmt: skip
def test_attention(
    isa: str, batch: int, kv_heads: int, group: int, queries: int, keys: int, head_size: int, value_size: int,
    heads_last: bool, masked: bool, causal: str | None, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    q = tensor(batch, kv_heads * group, queries, head_size, heads_last=heads_last)
    k = tensor(batch, kv_heads, keys, head_size, heads_last=heads_last)
    v = tensor(batch, kv_heads, keys, value_size, heads_last=heads_last)
    mask = random_mask(batch, queries, keys) if masked else None
    offset = {None: 0, "start": 0, "end": keys - queries, "early": -2}[causal]
    options = {"mask": mask, "causal": causal is not None, "offset": offset}
    one, two, seven = (attend(isa, q, k, v, **options, threads=n, heads_last=heads_last) for n in (1, 2, 7))
    check(one, reference(q, k, v, **options), reference(q, k, v.abs(), **options))
    assert one.numpy().tobytes() == two.numpy().tobytes() == seven.numpy().tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [1, 3, 20])
@pytest.mark.parametrize("keys", [1, 9, 129, 500])
@pytest.mark.parametrize("causal", [False, True])
def test_keys_that_lie_in_two_places(isa: str, queries: int, keys: int, causal: bool) -> None:
    """A cache, and what is appended to it: the bits are those of keys that lie together."""
    torch.manual_seed(3)
    q, k, v = tensor(2, 6, queries, 40), tensor(2, 3, keys, 40), tensor(2, 3, keys, 24, heads_last=True)
    how = {"causal": causal, "offset": keys - queries}
    whole = attend(isa, q, k, v, **how)
    check(whole, reference(q, k, v, **how))
    rests = ((1, 1), (0, 0), (keys, keys), (keys // 2, min(keys, 5)))
    for parts in rests:
        for threads in (1, 2):
            assert attend(isa, q, k, v, **how, rest=parts, threads=threads).numpy().tobytes() == whole.numpy().tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("masked", [False, True])
def test_sinks(isa: str, queries: int, masked: bool) -> None:
    """One more score of each head, without a value: also one that is far above all others, or far below."""
    torch.manual_seed(0)
    q, k, v = tensor(2, 6, queries, 32), tensor(2, 3, 130, 32), tensor(2, 3, 130, 48)
    mask = random_mask(2, queries, 130) if masked else None
    sinks = torch.tensor([0.5, -3.0, 200.0, -200.0, INF, -INF])[None, :, None]
    got = attend(isa, q, k, v, mask=mask, sink=sinks.expand(2, 6, queries))
    more = torch.zeros(2, 6, queries, 130, dtype=torch.float64) if mask is None else mask.double().expand(-1, 6, -1, -1)
    scores = torch.einsum("bhmd,bhnd->bhmn", q.double(), k.double().repeat_interleave(2, 1)) * 32**-0.5 + more
    scores = torch.cat([scores, sinks.double()[..., None].expand(2, 6, queries, 1)], -1)
    weights = scores.softmax(-1)[..., :-1].nan_to_num()  # NaN of a row of -inf, and of a sink of +inf
    check(got, weights @ v.double().repeat_interleave(2, 1))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("queries", [1, 3, 50])
@pytest.mark.parametrize(("keys", "head_size", "value_size"), [(1, 64, 64), (129, 40, 24), (500, 65, 33), (800, 7, 96)])
@pytest.mark.parametrize("causal", [False, True])
def test_elements_of_16_bits(
    isa: str, dtype: torch.dtype, queries: int, keys: int, head_size: int, value_size: int, causal: bool
) -> None:
    """The bits are those of the same numbers in float32, rounded; keys may lie in two places."""
    torch.manual_seed(6)
    q, k = tensor(2, 6, queries, head_size).to(dtype), tensor(2, 3, keys, head_size, heads_last=True).to(dtype)
    v = tensor(2, 3, keys, value_size).to(dtype)
    for mask in (None, random_mask(2, queries, keys)):
        how = {"mask": mask, "causal": causal, "offset": keys - queries}
        wide = attend(isa, q.float(), k.float(), v.float(), **how)
        check(wide, reference(q, k, v, **how))
        for rest in (None, (1, keys // 2)):
            for threads in (1, 3):
                narrow = attend(isa, q, k, v, **how, rest=rest, threads=threads, heads_last=True)
                assert narrow.dtype == dtype
                assert torch.equal(narrow, wide.to(dtype))


MODELS = {
    "bert": (2, 12, 12, 128, 128, 64, False),
    "bert-odd": (1, 12, 12, 17, 17, 64, False),
    "vit": (1, 12, 12, 197, 197, 64, False),
    "whisper": (1, 2, 2, 1500, 1500, 64, False),
    "llama": (1, 12, 4, 300, 300, 64, True),
    "long": (1, 1, 1, 4096, 4096, 64, True),
    "wide": (1, 2, 1, 130, 600, 256, False),
    "decode": (2, 8, 2, 1, 4097, 128, True),
    "decode-few": (1, 12, 12, 5, 1000, 80, True),
    "one": (1, 1, 1, 1, 1, 64, True),
}


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_shapes_of_models(isa: str, name: str) -> None:
    batch, heads, kv_heads, queries, keys, size, causal = MODELS[name]
    torch.manual_seed(1)
    q = tensor(batch, heads, queries, size, heads_last=True)
    k, v = (tensor(batch, kv_heads, keys, size, heads_last=True) for _ in range(2))
    options = {"causal": causal, "offset": keys - queries}
    results = [attend(isa, q, k, v, **options, threads=n, heads_last=True) for n in (1, 2)]
    expected = reference(q, k, v, **options)
    check(results[0], expected)
    assert results[0].numpy().tobytes() == results[1].numpy().tobytes()
    eager = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal and queries == keys, enable_gqa=kv_heads != heads
    )
    if queries == keys or not causal:
        assert (results[0] - expected).norm() <= 2 * (eager - expected).norm() + 1e-7 * expected.norm()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [2, 30])
def test_scale_and_large_scores(isa: str, queries: int) -> None:
    """Scores of +-1000 and more: exp neither overflows nor loses the largest."""
    torch.manual_seed(2)
    q, k, v = tensor(1, 2, queries, 64), tensor(1, 2, 500, 64), tensor(1, 2, 500, 64)
    check(attend(isa, q, k, v, scale=0.3), reference(q, k, v, scale=0.3))
    # Keys of length sqrt(50) along the queries: the right answer is a row of V.
    q, k = torch.eye(queries, 64)[None, None] * 100, torch.eye(500, 64)[None, None] * 10
    torch.testing.assert_close(attend(isa, q, k, v[:, :1], scale=1.0), v[:, :1, :queries])
    low = torch.full((1, 1, queries, 500), torch.finfo(torch.float32).min)  # a mask of finite numbers: uniform weights
    torch.testing.assert_close(
        attend(isa, q, k, v[:, :1], mask=low, scale=1e-3), v[:, :1].mean(2, keepdim=True).expand(1, 1, queries, 64)
    )


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("keys", [1, 15, 40, 384, 391, 1000])
@pytest.mark.parametrize("longer", [0, 16, 600])
def test_short_queries_and_keys_need_no_maximum(isa: str, keys: int, longer: int) -> None:
    """Scores near both ends of what counts as small; from key `longer` on they are no longer small, or never are."""
    torch.manual_seed(4)
    q, k, v = tensor(1, 2, 50, 64), tensor(1, 2, keys, 64), tensor(1, 2, keys, 64)
    q, k = (4.6 * t / t.norm(dim=-1, keepdim=True) for t in (q, k))  # scores of up to 21.2, 30.5 as powers of 2
    k[..., ::3, :] = q[..., :1, :]
    k[..., 1::3, :] = -q[..., 1:2, :]
    longer_keys = torch.cat([k[..., :longer, :], 4 * k[..., longer:, :]], dim=2)
    for a, b in [(q, k), (q, -k.abs()), (q.abs(), -k.abs()), (q, longer_keys)]:  # the third: low scores alone
        expected = reference(a, b, v, scale=1.0)
        eager = torch.nn.functional.scaled_dot_product_attention(a, b, v, scale=1.0)
        error = (attend(isa, a, b, v, scale=1.0) - expected).norm()
        assert error <= 2 * (eager - expected).norm() + 2e-7 * expected.norm()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [3, 30])
@pytest.mark.parametrize("keys", [5, 100, 800])
def test_masked_rows_give_zeros_as_in_torch(isa: str, queries: int, keys: int) -> None:
    q, k, v = tensor(1, 2, queries, 16), tensor(1, 2, keys, 16), tensor(1, 2, keys, 16)
    mask = torch.zeros(1, 1, queries, keys)
    mask[:, :, 1] = -INF
    mask[:, :, 2, : keys // 2 + 2] = -INF  # its first blocks are masked as a whole
    got = attend(isa, q, k, v, mask=mask)
    eager = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert (got[:, :, 1] == 0).all()
    assert (eager[:, :, 1] == 0).all()
    torch.testing.assert_close(got, eager)
    assert (attend(isa, q, k, v, causal=True, offset=-queries) == 0).all()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [3, 30])
@pytest.mark.parametrize("where", [0, 7, 399])
def test_nan_and_infinity_propagate(isa: str, queries: int, where: int) -> None:
    """As the formula says, row by row and column by column (torch's math kernel)."""
    torch.manual_seed(3)
    q, k, v = tensor(1, 1, queries, 16), tensor(1, 1, 400, 16), tensor(1, 1, 400, 16)
    clean = attend(isa, q, k, v)

    bad = q.clone()
    bad[0, 0, 1, 3] = float("nan")
    got = attend(isa, bad, k, v)
    assert got[0, 0, 1].isnan().all()
    rest = [i for i in range(queries) if i != 1]  # those beside it are not known to be short any more
    torch.testing.assert_close(got[0, 0, rest], clean[0, 0, rest], rtol=1e-6, atol=1e-7)

    bad = k.clone()
    bad[0, 0, where] = float("nan")
    assert attend(isa, q, bad, v).isnan().all()
    bad[0, 0, where] = torch.sign(q[0, 0, 0]) * INF  # the first query's score is +inf
    assert attend(isa, q, bad, v)[0, 0, 0].isnan().all()

    bad = v.clone()
    bad[0, 0, where, 5] = INF
    got = attend(isa, q, k, bad)
    assert (got[..., 5] == INF).all()
    columns = [i for i in range(16) if i != 5]
    torch.testing.assert_close(got[..., columns], clean[..., columns], rtol=0, atol=0)

    all_bad = torch.full_like(k, float("nan"))
    assert attend(isa, q, all_bad, v).isnan().all()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [1, 3, 50])
@pytest.mark.parametrize("keys", [1, 129, 500])
@pytest.mark.parametrize("dtype", list(NAMES))
def test_heads_of_no_elements(isa: str, queries: int, keys: int, dtype: torch.dtype) -> None:
    """Every key scores 0 then: the result is the mean of the values, of which there may be none either."""
    torch.manual_seed(3)
    q, k, v = (tensor(1, 2, *size).to(dtype) for size in ((queries, 0), (keys, 0), (keys, 24)))
    got = attend(isa, q, k, v, scale=1.0)
    mean = v.double().mean(dim=2, keepdim=True).expand(1, 2, queries, 24)
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(got.double(), mean, rtol=tolerance, atol=tolerance)
    assert attend(isa, q, k, v[..., :0], scale=1.0).shape == (1, 2, queries, 0)
    wide = tensor(1, 2, queries, 24).to(dtype), tensor(1, 2, keys, 24).to(dtype)
    assert attend(isa, *wide, v[..., :0]).shape == (1, 2, queries, 0)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("queries", [1, 100])
def test_no_scratch_memory_leaves_the_output_alone(isa: str, queries: int) -> None:
    q, k, v = tensor(1, 2, queries, 32), tensor(1, 2, 70, 32), tensor(1, 2, 70, 32)
    for threads in (-1, -2):
        assert (attend(isa, q, k, v, threads=threads) == 7.0).all()


@pytest.mark.parametrize("isa", LEVELS)
def test_exp2_negative(isa: str) -> None:
    rng = np.random.default_rng(0)
    x = -np.concatenate([rng.random(1 << 16) * 126, rng.random(1 << 16), 10.0 ** rng.uniform(-30, 0, 1 << 16)])
    x = x.astype(np.float32)
    y = np.empty_like(x)
    call = library(isa).test_exp2_negative
    call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(y / exact - 1).max() < 2e-7

    x = np.array([0.0, -0.0, -INF, np.nan, -127.1, -1e30, -126.0, -150.0] * 2, np.float32)
    y = np.empty_like(x)
    call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    assert y[0] == y[1] == 1
    assert y[2] == y[4] == y[5] == y[7] == 0
    assert np.isnan(y[3])
    assert y[6] == pytest.approx(np.exp2(-126.0), rel=1e-5)

    x = -np.linspace(126, 128, 64, dtype=np.float32)  # where results are no normal numbers any more
    y = np.empty_like(x)
    call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    assert ((y >= 0) & (y < np.exp2(-125.9))).all()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("rows", [8, 9, 16, 21, 24])
@pytest.mark.parametrize("keys", [15, 16, 17, 384, 390])
def test_rows_do_not_depend_on_those_around_them(isa: str, rows: int, keys: int) -> None:
    """A row of a whole tile has the bits that it has in a longer run of rows."""
    torch.manual_seed(0)
    q, k, v = tensor(1, 1, 48, 64), tensor(1, 1, keys, 64), tensor(1, 1, keys, 80)
    whole = rows // 8 * 8
    every, some = attend(isa, q, k, v), attend(isa, q[:, :, :rows], k, v)
    if whole > 8:  # fewer rows may take the direct way
        assert torch.equal(every[:, :, :whole], some[:, :, :whole])
    check(some, reference(q[:, :, :rows], k, v))
