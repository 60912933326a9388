"""sort.h: rows in torch's order, stable, to the bit; nothing outside of them is read or written."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

from .harness import GuardedMemory, best_builds, library, pointer

SOURCE = (Path(__file__).parent / "sort_library.cpp").read_text()
TYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i8": torch.int8,
    "bool": torch.bool,
}
SIZES = (1, 7, 16, 17, 33, 100, 129, 300, 2000)
SPECIAL = (float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 1e-42)


@pytest.fixture(params=best_builds())
def lib(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library(SOURCE, request.param)


def rows(n: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    if dtype == torch.bool:
        return {"random": torch.rand(n, generator=generator) > 0.5, "alike": torch.ones(n, dtype=dtype)}
    steps = torch.arange(n, 0, -1) % 100
    few = torch.randint(0, 5, (n,), generator=generator)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        random = torch.randint(info.min, info.max, (n,), generator=generator).to(dtype)
        random[:: max(n // 5, 1)] = info.max
        return {"random": random, "few": few.to(dtype), "falling": steps.to(dtype)}
    random = torch.randn(n, generator=generator, dtype=torch.float64)
    special = random.clone()
    some = torch.arange(0, n, max(n // 9, 1))
    special[some] = torch.tensor(SPECIAL, dtype=torch.float64)[some % len(SPECIAL)]
    special[n // 2 :: 3] = float("nan")
    return {"random": random.to(dtype), "few": few.to(dtype), "falling": steps.to(dtype), "special": special.to(dtype)}


def bits(x: torch.Tensor) -> np.ndarray:
    return x.contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize("name", TYPES)
def test_in_torchs_order(lib: ctypes.CDLL, name: str) -> None:
    dtype = TYPES[name]
    memory = GuardedMemory(1 << 21)
    for n in SIZES:
        for kind, x in rows(n, dtype).items():
            size = x.element_size()
            row = GuardedMemory(n * size).tail(n * size, np.uint8)
            row[:] = bits(x)
            for descending in (False, True):
                values, order = x.sort(stable=True, descending=descending)
                for k in sorted({min(3, n), n // 10 + 1, n}):
                    got = GuardedMemory(k * size).tail(k * size, np.uint8)
                    places = GuardedMemory(8 * k).tail(k, np.int64)
                    sizes = ctypes.c_int64(n), ctypes.c_int64(k), ctypes.c_int64(descending)
                    getattr(lib, f"sort_{name}")(memory.end, pointer(got), pointer(places), pointer(row), *sizes)
                    what = f"{k} of {n}, {kind}, {'falling' if descending else 'rising'}"
                    np.testing.assert_array_equal(places, order[:k].numpy(), what)
                    np.testing.assert_array_equal(got, bits(x[order[:k]]), what)
                    torch.testing.assert_close(x[order[:k]], values[:k], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["f32", "i64"])
def test_mode(lib: ctypes.CDLL, name: str) -> None:
    memory = GuardedMemory(1 << 21)
    for n in SIZES:
        x = rows(n, TYPES[name])["few"]
        value, place = torch.zeros(1, dtype=x.dtype), np.zeros(1, np.int64)
        out = bits(value)
        getattr(lib, f"mode_{name}")(memory.end, pointer(out), pointer(place), pointer(bits(x)), ctypes.c_int64(n))
        counts = torch.bincount(x.long())
        assert value.item() == int(counts.argmax()), n
        assert place[0] == int((x == value).nonzero()[-1]), n
