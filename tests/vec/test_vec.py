"""vec.h: loads and stores at the edge of memory, casts of the storage types, reductions, mixed vectors and scalars."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

from .harness import LANES, GuardedMemory, builds, library, pointer

SOURCE = (Path(__file__).parent / "vec_library.cpp").read_text()
# name: dtype in memory, dtype of compute values
TYPES = {
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
    "i32": (np.int32, np.int32),
    "i64": (np.int64, np.int64),
    "i16": (np.int16, np.int32),
    "i8": (np.int8, np.int32),
    "u8": (np.uint8, np.int32),
    "bool": (np.bool_, np.bool_),
    "f16": (np.float16, np.float32),
    "bf16": (np.uint16, np.float32),
}


@pytest.fixture(params=builds())
def build(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def lib(build: str) -> ctypes.CDLL:
    return library(SOURCE, build)


def widen(stored: np.ndarray, name: str) -> np.ndarray:
    """Compute values of elements in memory."""
    if name == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(TYPES[name][1])


def values(name: str, count: int) -> np.ndarray:
    """Distinct elements as they lie in memory."""
    rng = np.random.default_rng(7)
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if name == "bf16":
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if np.dtype(TYPES[name][0]).kind == "f":
        return rng.standard_normal(count).astype(TYPES[name][0])
    info = np.iinfo(TYPES[name][0])
    return rng.integers(info.min, info.max, count, dtype=TYPES[name][0], endpoint=True)


def test_width(lib: ctypes.CDLL, build: str) -> None:
    assert lib.lanes() == LANES.get(build.split(":")[1], lib.lanes())
    out = np.zeros(lib.lanes(), np.int64)
    lib.iota_at(ctypes.c_int64(2**40), pointer(out))
    np.testing.assert_array_equal(out, np.arange(lib.lanes()) + 2**40)


@pytest.mark.parametrize("name", TYPES)
def test_load_tail_stops_at_the_guard(lib: ctypes.CDLL, name: str) -> None:
    w, (stored, computed) = lib.lanes(), TYPES[name]
    memory = GuardedMemory(4096)
    for n in range(w + 1):
        p = memory.tail(n, stored)
        p[:] = values(name, n)
        out = np.ones(w, computed)
        address = ctypes.c_void_p(memory.base + 4096 - n * np.dtype(stored).itemsize)
        getattr(lib, f"load_tail_{name}")(address, n, pointer(out))
        np.testing.assert_array_equal(out[:n], widen(p, name))
        assert not out[n:].any(), f"{name}: lanes behind n = {n} are {out[n:]}"


@pytest.mark.parametrize("name", TYPES)
def test_store_tail_writes_n_elements(lib: ctypes.CDLL, name: str) -> None:
    w, (stored, computed) = lib.lanes(), TYPES[name]
    memory = GuardedMemory(4096)
    source = values(name, w)
    lanes = widen(source, name).astype(computed)
    for n in range(w + 1):
        p = memory.tail(n + 4, stored)
        p[:] = source[0]
        before = p.copy()
        for shift in (0, 4):  # in the middle of memory, then up to the guard
            p[:] = before
            address = ctypes.c_void_p(memory.base + 4096 - (n + 4 - shift) * np.dtype(stored).itemsize)
            getattr(lib, f"store_tail_{name}")(address, pointer(lanes), n)
            np.testing.assert_array_equal(p[shift : shift + n], source[:n])
            np.testing.assert_array_equal(p[shift + n :], before[shift + n :])
            np.testing.assert_array_equal(p[:shift], before[:shift])


@pytest.mark.parametrize("name", TYPES)
def test_whole_vectors_and_gathers(lib: ctypes.CDLL, name: str) -> None:
    w, (stored, computed) = lib.lanes(), TYPES[name]
    p, out = values(name, 8 * w), np.zeros(w, computed)
    getattr(lib, f"load_{name}")(pointer(p), pointer(out))
    np.testing.assert_array_equal(out, widen(p[:w], name))
    back = np.zeros(w, stored)
    getattr(lib, f"store_{name}")(pointer(back), pointer(out))
    np.testing.assert_array_equal(back, p[:w])
    getattr(lib, f"gather_{name}")(pointer(p), ctypes.c_int64(7), pointer(out))
    np.testing.assert_array_equal(out, widen(p[: 7 * w : 7], name))
    at = np.random.default_rng(1).integers(0, 8 * w, w)
    getattr(lib, f"gather_at_{name}")(pointer(p), pointer(at), pointer(out))
    np.testing.assert_array_equal(out, widen(p[at], name))
    target = p[::-1].copy()
    expected = target.copy()
    expected[: 5 * w : 5] = p[:w]
    lanes = widen(p[:w], name)
    getattr(lib, f"scatter_{name}")(pointer(target), ctypes.c_int64(5), pointer(lanes))
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("name", TYPES)
def test_gather_tail_stops_at_the_guard(lib: ctypes.CDLL, name: str) -> None:
    w, (stored, computed) = lib.lanes(), TYPES[name]
    memory = GuardedMemory(4096)
    for n in range(w + 1):
        count = 3 * n - 2 if n else 0
        p = memory.tail(count, stored)
        p[:] = values(name, count)
        address = ctypes.c_void_p(memory.base + 4096 - count * np.dtype(stored).itemsize)
        out = np.ones(w, computed)
        getattr(lib, f"gather_tail_{name}")(address, ctypes.c_int64(3), n, pointer(out))
        np.testing.assert_array_equal(out[:n], widen(p[::3], name))
        assert not out[n:].any()
        at = np.full(w, 2**40)  # lanes from n on would fault
        at[:n] = np.arange(n)[::-1] * 3
        out[:] = 1
        getattr(lib, f"gather_at_tail_{name}")(address, pointer(at), n, pointer(out))
        np.testing.assert_array_equal(out[:n], widen(p[at[:n]], name))
        assert not out[n:].any()
        lanes = widen(values(name, w), name)
        getattr(lib, f"scatter_tail_{name}")(address, ctypes.c_int64(3), pointer(lanes), n)
        np.testing.assert_array_equal(widen(p[::3], name), lanes[:n])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_narrow_float_widens(lib: ctypes.CDLL, name: str) -> None:
    p = np.arange(2**16, dtype=np.uint16)
    torch_type = {"f16": torch.float16, "bf16": torch.bfloat16}[name]
    want = torch.from_numpy(p.view(np.int16)).view(torch_type).float().numpy()
    got, w = np.zeros(2**16, np.float32), lib.lanes()
    for i in range(0, len(p), w):
        getattr(lib, f"load_{name}")(pointer(p[i:]), pointer(got[i:]))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_floats_round_to_nearest_even(lib: ctypes.CDLL, name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2**32, 2**16, dtype=np.uint32)
    # Halves of every exponent, exact ties and their neighbours.
    exact = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    ties = (exact[::7, None] + np.array([0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001], np.uint32)).ravel()
    bits = np.concatenate([x, exact, ties])
    x = np.resize(bits, -(-len(bits) // 64) * 64).view(np.float32)
    torch_type = {"f16": torch.float16, "bf16": torch.bfloat16}[name]
    want = torch.from_numpy(x).to(torch_type)
    got = np.zeros(len(x), np.uint16)
    for i in range(0, len(x), lib.lanes()):
        getattr(lib, f"store_{name}")(pointer(got[i:]), pointer(x[i:]))
    result = torch.from_numpy(got.view(np.int16)).view(torch_type)
    nan = torch.isnan(want)
    assert torch.equal(torch.isnan(result), nan)
    assert torch.equal(result[~nan].view(torch.int16), want[~nan].view(torch.int16))


@pytest.mark.parametrize("name", TYPES)
def test_scalars_are_lanes(lib: ctypes.CDLL, name: str) -> None:
    w, (_, computed) = lib.lanes(), TYPES[name]
    p = values(name, w)
    out, before = np.zeros(w, computed), p.copy()
    getattr(lib, f"scalars_{name}")(pointer(p), pointer(out), w)
    np.testing.assert_array_equal(out, widen(before, name))
    np.testing.assert_array_equal(p, before)


@pytest.mark.parametrize("name", ["f32", "f64", "i32", "i64", "bool"])
def test_reductions(lib: ctypes.CDLL, name: str) -> None:
    w, dtype = lib.lanes(), TYPES[name][0]
    operations = {"add": (np.add, 0), "mul": (np.multiply, 1), "max": (np.maximum, None), "min": (np.minimum, None)}
    if name[0] == "i":
        operations |= {"or": (np.bitwise_or, 0), "and": (np.bitwise_and, -1)}
    if name == "bool":
        operations = {"or": (np.logical_or, False), "and": (np.logical_and, True)}
    p = values(name, w)
    for operation, (function, neutral) in operations.items():
        for n in range(w + 1):
            out = np.zeros(2, dtype)
            getattr(lib, f"reduce_{operation}_{name}")(pointer(p), n, pointer(out))
            kind = np.dtype(dtype).kind
            with np.errstate(over="ignore"):
                whole = function.reduce(p)
                if n:
                    part = function.reduce(p[:n])
                elif neutral is not None:
                    part = dtype(neutral)
                else:
                    lowest = -np.inf if kind == "f" else np.iinfo(dtype).min
                    part = dtype(lowest if operation == "max" else (np.inf if kind == "f" else np.iinfo(dtype).max))
            if kind == "f":
                np.testing.assert_allclose(out, [whole, part], rtol=1e-5 if name == "f32" else 1e-13, atol=1e-6)
            else:
                np.testing.assert_array_equal(out, np.array([whole, part]).astype(dtype))


def test_four_sums_at_once_have_the_bits_of_each_alone(lib: ctypes.CDLL) -> None:
    p, out = values("f32", 4 * lib.lanes()), np.zeros(8, np.float32)
    lib.reduce_four(pointer(p), pointer(out))
    np.testing.assert_array_equal(out[:4], out[4:])
    np.testing.assert_allclose(out[:4], p.reshape(4, -1).sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operation", ["max", "min"])
def test_nan_wins_in_every_lane(lib: ctypes.CDLL, operation: str) -> None:
    w = lib.lanes()
    for name, dtype in (("f32", np.float32), ("f64", np.float64)):
        for lane in range(w):
            p, out = np.arange(w).astype(dtype), np.zeros(2, dtype)
            p[lane] = np.nan
            getattr(lib, f"reduce_{operation}_{name}")(pointer(p), lane, pointer(out))
            assert np.isnan(out[0]), f"lane {lane}"
            assert not np.isnan(out[1]), f"lane {lane} is behind the part"


def test_any_and_all(lib: ctypes.CDLL) -> None:
    w = lib.lanes()
    for lane in range(-1, w):
        p = np.zeros(w, bool)
        if lane >= 0:
            p[lane] = True
        for flags, want in ((p, (lane >= 0, False)), (~p, (True, lane < 0))):
            out = np.zeros(2, bool)
            lib.any_all(pointer(flags), pointer(out))
            assert tuple(out.tolist()) == want


def test_vectors_mix_with_scalars(lib: ctypes.CDLL) -> None:
    w = lib.lanes()
    x = np.linspace(-2, 3, w).astype(np.float32)
    i, n, out = np.arange(w), 5, np.zeros(w, np.float32)
    lib.mixed(pointer(x), pointer(i), pointer(out), ctypes.c_int64(n))
    inside = i < n
    y = np.where(inside, x * 2 + 1, 0)
    y = np.maximum(y, 0.5) - np.minimum(1, x) / 3
    y = np.where((x > 0) & inside, y, x)
    np.testing.assert_allclose(out, y + inside + (n + i) * 0.25, rtol=1e-6)


def test_quotients_of_places(lib: ctypes.CDLL, build: str) -> None:
    """Around multiples of the divisor, where a rounding error would show; up to 2^51, and below zero."""
    lanes = LANES.get(build.split(":")[1], 4)
    limit = 2**51 - 1
    divisors = [1, 2, 3, 7, 12, 4096, 10**6 + 3, 2**31 - 1, 2**40 + 15, limit]
    for b in divisors:
        near = [k * b + d for k in (0, 1, 2, 5, limit // b) for d in (-1, 0, 1, b - 1)]
        wanted = [v for a in near for v in (a, -a) if abs(v) <= limit]
        wanted += [0] * (-len(wanted) % lanes)
        for start in range(0, len(wanted), lanes):
            a = np.array(wanted[start : start + lanes], np.int64)
            quotient, rest = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
            lib.places(pointer(a), ctypes.c_int64(b), pointer(quotient), pointer(rest))
            np.testing.assert_array_equal(quotient, a // b)
            np.testing.assert_array_equal(rest, a % b)
