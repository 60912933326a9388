"""Matrix products of kernels/gemm/gemm.h against float64, for every ISA level that this CPU runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mycc.compiler.codegen.cpu.micro import render_micro_kernels
from mycc.compiler.schedule.matrix.register_tiles import TILE_SETS

from .gemm_support import Gemm, GemmUnpacked, Sums, busiest_share, call, levels, pack_panels

LEVELS = levels(1)
SIZES = st.one_of(st.integers(1, 40), st.sampled_from([48, 63, 64, 65, 96, 128, 130]))
DEPTHS = st.one_of(st.integers(1, 40), st.sampled_from([64, 255, 256, 257, 385, 513, 768, 769, 1024, 1100]))


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (np.abs(got - expected) <= 2e-6 * bound + 1e-30).all()


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


@pytest.mark.parametrize("isa", LEVELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.integers(1, 3),
    m=SIZES,
    n=SIZES,
    k=DEPTHS,
    shared=st.booleans(),
    gap=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_gemm(isa: str, batch: int, m: int, n: int, k: int, shared: bool, gap: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = random(rng, batch, m, k + gap)
    b = random(rng, 1 if shared else batch, k, n)
    packed = pack_panels(b)
    args = Gemm(batch, m, n, k, a, a.shape[1] * a.shape[2], a.shape[2], packed, 0 if shared else packed[0].size)
    for function in ("test_gemm", "test_gemm_rows"):
        one, two = (call(isa, function, args, (batch, m, n), threads) for threads in (1, 2))
        check(one, a[..., :k], b)
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize(
    "shape", [(1, 768, 3000), (49, 2048, 512), (128, 3072, 100), (197, 1024, 96), (700, 64, 256), (1300, 384, 17)]
)
def test_gemm_of_models(isa: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = random(rng, 1, m, k), random(rng, 1, k, n)
    args = Gemm(1, m, n, k, a, 0, k, pack_panels(b), 0)
    results = [call(isa, "test_gemm", args, (1, m, n), threads) for threads in (1, 2, 3)]
    check(results[0], a, b)
    assert len({r.tobytes() for r in results}) == 1


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(1, 128, 10), (1, 768, 64), (8, 1100, 10), (20, 512, 33), (40, 64, 100)])
def test_a_batch_may_be_parts_of_panels(isa: str, shape: tuple[int, int, int]) -> None:
    """Parts of k of one product; together they are the product."""
    m, k, n = shape
    rng, parts = np.random.default_rng(k), 4
    a, b = random(rng, m, k), random(rng, 1, k, n)
    run = k // parts
    args = Gemm(parts, m, n, run, a, run, k, pack_panels(b), run * 16, b_panel=k * 16)
    one, two = (call(isa, "test_gemm", args, (parts, m, n), threads) for threads in (1, 2))
    check(one, a.reshape(m, parts, run).transpose(1, 0, 2), b.reshape(parts, run, n))
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 768, 32), (1, 1539, 1056), (3, 385, 64), (8, 64, 96), (16, 3072, 224), (49, 1100, 32), (128, 768, 320),
        (130, 2048, 64), (300, 64, 160),
    ],
)  # fmt: skip
def test_pairs_of_columns_have_the_bits_of_a_plain_product(isa: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = random(rng, 1, m, k), random(rng, 1, k, n)
    args = Gemm(1, m, n, k, a, 0, k, pack_panels(b), 0)
    results = [call(isa, "test_gemm_glu", args, (1, m, n), threads) for threads in (1, 2, 3)]
    check(results[0], a, b)
    assert len({r.tobytes() for r in (*results, call(isa, "test_gemm", args, (1, m, n)))}) == 1
    call(isa, "test_gemm_glu", args, (1, m, n), threads=-1)


def halves(b: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """b rounded to a 16-bit type: as float32, and as the bits of its panels."""
    rounded = torch.from_numpy(b).to(getattr(torch, dtype))
    packed = torch.from_numpy(pack_panels(b)).to(rounded.dtype).view(torch.int16).numpy()
    raw = np.empty(packed.size + 32, np.int16)
    start = -raw.ctypes.data % 64 // 2
    raw[start : start + packed.size] = packed.ravel()
    return rounded.float().numpy(), raw[start : start + packed.size]


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 768, 130), (1, 1539, 1030), (3, 385, 64), (8, 64, 48), (16, 96, 200), (49, 1100, 33), (128, 768, 96),
        (300, 64, 16),
    ],
)  # fmt: skip
def test_gemm_with_weights_of_16_bits(isa: str, dtype: str, shape: tuple[int, int, int]) -> None:
    """Products of float32 rows with rounded weights, summed in float32: the rounding is that of the weights alone."""
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = random(rng, 1, m, k), random(rng, 1, k, n)
    rounded, packed = halves(b, dtype)
    function = "test_gemm_bf16" if dtype == "bfloat16" else "test_gemm_f16"
    one, two = (call(isa, function, Gemm(1, m, n, k, a, 0, k, packed, 0), (1, m, n), threads) for threads in (1, 2))
    check(one, a, rounded)
    assert one.tobytes() == two.tobytes()
    same = call(isa, "test_gemm", Gemm(1, m, n, k, a, 0, k, pack_panels(rounded), 0), (1, m, n))
    assert one.tobytes() == same.tobytes(), "the bits of float32 weights of the same values"


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(1, 3, 17), (1, 768, 130), (1, 1539, 1030), (5, 770, 130)])
def test_weights_from_memory_give_the_bits_of_those_in_a_cache(isa: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b = random(rng, 1, m, k), random(rng, 1, k, n)
    rounded, packed = halves(b, "bfloat16")
    for function, values, panels in (("test_gemm", b, pack_panels(b)), ("test_gemm_bf16", rounded, packed)):
        near, far = (Gemm(1, m, n, k, a, 0, k, panels, 0, weight_bytes) for weight_bytes in (0, 1 << 40))
        results = [call(isa, function, args, (1, m, n), threads) for args in (near, far) for threads in (1, 2)]
        check(results[2], a, values)
        assert len({r.tobytes() for r in results}) == 1


@pytest.mark.parametrize("isa", LEVELS)
def test_halves_that_are_not_finite_or_tiny(isa: str) -> None:
    b = np.zeros((1, 6, 16), np.float32)
    b[0, :, 0] = [np.nan, np.inf, -np.inf, 6e-8, -0.0, 65504]
    a = np.eye(6, dtype=np.float32)[None]
    for dtype, function in (("bfloat16", "test_gemm_bf16"), ("float16", "test_gemm_f16")):
        rounded, packed = halves(b, dtype)
        got = call(isa, function, Gemm(1, 6, 16, 6, a, 0, 6, packed, 0), (1, 6, 16))
        with np.errstate(invalid="ignore"):
            assert np.array_equal(got[0, :, 0], (a @ rounded)[0, :, 0], equal_nan=True)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(1, 48, 40), (5, 770, 130), (17, 257, 96), (64, 768, 257), (130, 1000, 100)])
@pytest.mark.parametrize("in_place", [False, True])
def test_tiles_add_with_the_bits_of_the_epilogue(isa: str, shape: tuple[int, int, int], in_place: bool) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    a, b, gap = random(rng, 1, m, k), random(rng, 1, k, n), 3
    product = Gemm(1, m, n, k, a, 0, k, pack_panels(b), 0)
    bias, residual = random(rng, n), random(rng, m, n + gap)
    for added in ((bias, residual), (bias, None), (None, residual), (None, None)):
        sums = Sums(product, *added, gap)
        results = []
        for in_tiles, threads in ((False, 1), (True, 1), (True, 2)):
            out = np.full_like(residual, 7.0)
            if in_place and sums.residual is not None:
                out = sums.residual = residual.copy()
            results.append(sums.run(isa, out, in_tiles, threads))
        assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
        check(
            results[1][:, :n] - (0 if added[0] is None else bias) - (0 if added[1] is None else residual[:, :n]),
            a[0],
            b[0],
        )
        if not in_place:
            assert (results[1][:, n:] == 7.0).all()


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("high", [6.0, np.inf])
def test_tiles_bound_with_the_bits_of_the_epilogue(isa: str, high: float) -> None:
    m, k, n = 21, 400, 98
    rng = np.random.default_rng(1)
    a, b, bias, residual = random(rng, 1, m, k), random(rng, 1, k, n), random(rng, n), random(rng, m, n)
    bias[3], residual[4, 5], residual[6, 7:9] = np.nan, np.nan, (np.inf, -np.inf)
    sums = Sums(Gemm(1, m, n, k, a, 0, k, pack_panels(b), 0), bias, residual, 0, high)
    behind, inside = (sums.run(isa, np.empty((m, n), np.float32), in_tiles) for in_tiles in (False, True))
    assert behind.tobytes() == inside.tobytes()
    assert np.isnan(inside[:, 3]).all()
    assert (np.nanmin(inside), np.nanmax(inside)) == (0, high)


@pytest.mark.parametrize("isa", LEVELS)
def test_a_row_has_the_same_bits_in_any_batch(isa: str) -> None:
    rng = np.random.default_rng(0)
    a, b = random(rng, 1, 70, 900), random(rng, 1, 900, 80)
    packed = pack_panels(b)
    whole = call(isa, "test_gemm", Gemm(1, 70, 80, 900, a, 0, 900, packed, 0), (1, 70, 80))
    single = (0, 1) if TILE_SETS[isa].row_sums == 1 else (0, 2)  # a single row may have sums of its own
    for first, m in (single, (5, 3), (11, 16), (20, 50)):
        part = np.ascontiguousarray(a[:, first : first + m])
        got = call(isa, "test_gemm", Gemm(1, m, 80, 900, part, 0, 900, packed, 0), (1, m, 80))
        assert got.tobytes() == whole[:, first : first + m].tobytes()


@pytest.mark.parametrize("isa", LEVELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.tuples(st.integers(1, 3), st.integers(1, 3)), m=SIZES, n=SIZES, k=DEPTHS, transposed=st.booleans(),
    broadcast=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 99),
)  # fmt: skip
def test_gemm_unpacked(
    isa: str, batch: tuple[int, int], m: int, n: int, k: int, transposed: bool, broadcast: tuple[bool, bool], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    b0, b1 = batch
    a = random(rng, b0, b1, m, k)
    kept = tuple(1 if off else size for off, size in zip(broadcast, batch, strict=True))
    stored = random(rng, *kept, *((n, k) if transposed else (k, n)))
    b = np.swapaxes(stored, 2, 3) if transposed else stored
    strides = [0 if off else stored.strides[i] // 4 for i, off in enumerate(broadcast)]
    b_k, b_n = (1, k) if transposed else (n, 1)
    args = GemmUnpacked(b0, b1, m, n, k, a, b1 * m * k, m * k, k, stored, *strides, b_k, b_n)
    one, two = (call(isa, "test_gemm_unpacked", args, (b0 * b1, m, n), threads) for threads in (1, 2))
    check(one.reshape(b0, b1, m, n), a, b)
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("isa", LEVELS)
def test_zero_depth_gives_zeros_and_no_rows_nothing(isa: str) -> None:
    empty = np.zeros(16, np.float32)
    got = call(isa, "test_gemm", Gemm(1, 5, 20, 0, empty, 0, 0, empty, 0), (1, 5, 20))
    assert (got == 0).all()
    call(isa, "test_gemm", Gemm(1, 0, 20, 4, empty, 0, 4, empty, 0), (1, 0, 20))
    call(isa, "test_gemm", Gemm(1, 5, 0, 4, empty, 0, 4, empty, 0), (1, 5, 0))


@pytest.mark.parametrize("isa", LEVELS)
def test_nan_and_infinity_pass_through(isa: str) -> None:
    a, b = np.ones((1, 7, 20), np.float32), np.ones((1, 20, 33), np.float32)
    a[0, 2, 3], a[0, 4, 5], b[0, 7, 32] = np.nan, np.inf, -np.inf
    got = call(isa, "test_gemm", Gemm(1, 7, 33, 20, a, 0, 20, pack_panels(b), 0), (1, 7, 33))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(got, a @ b, equal_nan=True)


@pytest.mark.parametrize("isa", LEVELS)
def test_no_scratch_memory_touches_nothing(isa: str) -> None:
    a, b = np.ones((1, 30, 20), np.float32), np.ones((1, 20, 33), np.float32)
    packed = pack_panels(b)
    for function in ("test_gemm", "test_gemm_rows"):
        call(isa, function, Gemm(1, 30, 33, 20, a, 0, 20, packed, 0), (1, 30, 33), threads=-1)
    free = GemmUnpacked(1, 1, 30, 33, 20, a, 0, 0, 20, b, 0, 0, 33, 1)
    call(isa, "test_gemm_unpacked", free, (1, 30, 33), threads=-1)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize(
    "shape",
    [(128, 3072, 768), (784, 512, 128), (784, 128, 512), (196, 1024, 256), (196, 256, 1024), (49, 2048, 512)],
)
def test_two_workers_get_equal_shares(isa: str, shape: tuple[int, int, int]) -> None:
    assert busiest_share(isa, *shape, workers=1) == 100
    assert 100 <= busiest_share(isa, *shape, workers=2) <= 104


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(1, 64, 18432), (8, 32, 16384), (4, 96, 8192)])
def test_few_panels_are_shared_out_one_by_one(isa: str, shape: tuple[int, int, int]) -> None:
    assert busiest_share(isa, *shape, workers=2) == 100
    short = (*shape[:2], 128)
    assert busiest_share(isa, *short, workers=2) == 200  # too little to wake another worker for


def test_every_isa_has_tiles_of_all_row_counts() -> None:
    for isa, tile_set in TILE_SETS.items():
        text = render_micro_kernels(isa)
        assert f"kTileRows = {len(tile_set.panels)};" in text
        for rows in range(1, len(tile_set.panels) + 1):
            assert f"template <class B> void tile_{rows}x16(const TileOf<B> &given) {{" in text


def test_an_unknown_isa_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no GEMM tiles for 'mips'; there are tiles for x86-64-v2, .*aarch64"):
        render_micro_kernels("mips")
