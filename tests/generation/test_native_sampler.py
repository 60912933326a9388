"""The native sampler draws the tokens that the one in Python draws."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime.generation.options import read_options
from mycc.runtime.generation.sampling import Sampler
from mycc.runtime.generation.scheduler import _fill, _Request

RUNTIME = Path(__file__).parents[2] / "runtime"
FLAGS = ["-std=c++17", "-O2", f"-I{RUNTIME}", f"-I{RUNTIME}/include", "-fno-exceptions", "-fno-rtti", "-fPIC"]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("sampler") / "sampler.so"
    own = RUNTIME / "src" / "generate"
    sources = [Path(__file__).with_name("native_sampler.cpp"), own / "sampler.cpp", own / "weights.cpp"]
    subprocess.run(["g++", *FLAGS, "-shared", *map(str, sources), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


def _logits(choose: random.Random, numbers: np.random.Generator, seed: int, vocabulary: int, finite: int) -> np.ndarray:
    """f32[12, vocabulary], of some seeds with ties, of some with -inf from the token `finite` on."""
    logits = (numbers.standard_normal((12, vocabulary)) * choose.choice([0.5, 4, 40])).astype(np.float32)
    if seed % 4 == 0:
        logits = np.round(logits)
    if seed % 5 == 0:
        logits[:, finite:] = -np.inf
    return logits


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 - 1, 2**32, 2**63 + 5, 2**64 - 1])
def test_numpys_random_numbers(native: Any, seed: int) -> None:
    values = np.zeros(50)
    native.test_random(ctypes.c_uint64(seed), ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(50))
    assert values.tolist() == np.random.default_rng(seed).random(50).tolist()


class _Text:
    """What the scheduler asks of a text."""

    def __init__(self, prompt: list[int], options: Any) -> None:
        self.prompt, self.options, self.ends = prompt, options, frozenset()


@pytest.mark.parametrize(("vocabulary", "seeds"), [(300, 400), (5003, 60)])
def test_the_same_tokens(native: Any, vocabulary: int, seeds: int) -> None:
    """Random options on random logits, with ties, infinities and large ones."""
    choose, numbers = random.Random(0), np.random.default_rng(0)
    ranges: dict[str, list[Any]] = {
        "temperature": [0, 0.3, 1, 1.7], "top_k": [0, 1, 5, 40, 299, 300, 500], "top_p": [1, 0.9, 0.5, 0.01, 0],
        "min_p": [0, 0.05, 0.5, 1], "repetition_penalty": [1, 1.3, 0.7], "presence_penalty": [0, 0.6, -0.5],
        "frequency_penalty": [0, 0.4], "logit_bias": [None, {3: -5.0, 17: 4.0, 250: float("-inf")}],
    }  # fmt: skip
    several = 0
    for seed in range(seeds):
        options = read_options({}, {n: choose.choice(v) for n, v in ranges.items()} | {"seed": seed}, vocabulary)
        logits = _logits(choose, numbers, seed, vocabulary, 100)
        prompt = numbers.integers(0, vocabulary, 20).tolist()
        request = _Request()
        kept = _fill(request, _Text(prompt, options))  # type: ignore[arg-type]
        tokens = np.zeros(12, np.int64)
        arguments = [request.prompt, ctypes.c_int64(20), logits.ctypes.data, ctypes.c_int64(12)]
        wide = [a if not isinstance(a, int) else ctypes.c_void_p(a) for a in arguments]
        status = native.test_choose(
            ctypes.byref(request.sampling), *wide, ctypes.c_int64(vocabulary), ctypes.c_void_p(tokens.ctypes.data)
        )
        assert status == 0
        sampler = Sampler(options, prompt)
        wanted = [sampler.choose(row).token for row in logits]
        assert tokens.tolist() == wanted, options
        several += len(set(wanted)) > 3
        del kept
    assert several > 0.7 * seeds


def test_the_likeliest_of_many(native: Any) -> None:
    """Whole blocks of logits and a rest, with ties, NaN, infinities and zeros of both signs: the first one counts."""
    numbers = np.random.default_rng(1)
    request = _Request()
    kept = _fill(request, _Text([1], read_options({}, {"temperature": 0}, 5000)))  # type: ignore[arg-type]
    prompt, length, one = ctypes.c_void_p(request.prompt), ctypes.c_int64(1), ctypes.c_int64(1)
    for count in (1, 1023, 1024, 1025, 3072, 5000):
        for kind in ([np.nan, 3.0], [-np.inf], [0.0, -0.0], [np.inf, 2.0, 1.0], np.arange(900.0)):
            logits = numbers.choice(np.float32(kind), count)
            if np.isnan(kind[0]):
                logits[numbers.random(count) < 0.999] = 1.0
            chosen = np.zeros(1, np.int64)
            rows = ctypes.c_void_p(logits.ctypes.data)
            given = (ctypes.c_int64(count), ctypes.c_void_p(chosen.ctypes.data))
            assert native.test_choose(ctypes.byref(request.sampling), prompt, length, rows, one, *given) == 0
            assert chosen[0] == np.argmax(logits), (count, kind)
    del kept


@pytest.mark.parametrize(("vocabulary", "seeds"), [(300, 300), (40, 100)])
def test_the_same_tokens_of_the_likeliest(native: Any, vocabulary: int, seeds: int) -> None:
    """By 40 tokens of each row, where top-k leaves no more."""
    choose, numbers, candidates, found = random.Random(1), np.random.default_rng(1), 40, 0
    ranges: dict[str, list[Any]] = {
        "temperature": [0.3, 1, 1.7], "top_k": [0, 2, 5, 40, 299, 500], "top_p": [1, 0.9, 0.5, 0.01, 0],
        "min_p": [0, 0.05, 0.5, 1],
    }  # fmt: skip
    for seed in range(seeds):
        options = read_options({}, {n: choose.choice(v) for n, v in ranges.items()} | {"seed": seed}, vocabulary)
        logits = _logits(choose, numbers, seed, vocabulary, 30)
        order = np.ascontiguousarray(np.argsort(-logits, axis=1, kind="stable")[:, :candidates])
        few = np.ascontiguousarray(np.take_along_axis(logits, order, 1))
        request, chosen = _Request(), np.zeros(12, np.int64)
        kept = _fill(request, _Text([], options))  # type: ignore[arg-type]
        arrays = [ctypes.c_void_p(a.ctypes.data) for a in (few, order)]
        sizes = [ctypes.c_int64(n) for n in (12, candidates, vocabulary)]
        at = ctypes.byref(request.sampling)
        assert native.test_choose_of(at, *arrays, *sizes, ctypes.c_void_p(chosen.ctypes.data)) == 0
        sampler = Sampler(options, [])
        tokens = np.array([sampler.choose(row).token for row in logits])
        if 1 < options.top_k <= candidates and options.top_k < vocabulary:
            assert chosen.tolist() == tokens.tolist(), options
            found += 1
        else:
            assert chosen.tolist() == [-2] * 12
        del kept
    assert found > 0.2 * seeds
