"""The draw against transformers' own processors of logits, and pieces of text against the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mycc.runtime.generation.options import Options, read_options
from mycc.runtime.generation.sampling import Sampler
from mycc.runtime.generation.stream import StopTexts

transformers = pytest.importorskip("transformers")
process = transformers.generation.logits_process


def drawn(options: Options, logits: np.ndarray, prompt: list[int], count: int) -> np.ndarray:
    """How often each token is drawn."""
    found = np.zeros(len(logits))
    for seed in range(count):
        sampler = Sampler(Options(**{**options.__dict__, "seed": seed}), prompt)
        found[sampler.choose(logits).token] += 1
    return found / count


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.6},
        {"temperature": 0.9, "min_p": 0.2},
        {"temperature": 1.1, "top_k": 9, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.4},
    ],
)
def test_tokens_are_drawn_as_transformers_would(given: dict[str, Any]) -> None:
    logits = np.random.default_rng(0).normal(0, 2, 30).astype(np.float32)
    prompt = [int(logits.argmax()), 3, 3]
    scores, ids = torch.from_numpy(logits[None].copy()), torch.tensor([prompt])
    steps = [
        ("repetition_penalty", process.RepetitionPenaltyLogitsProcessor),
        ("temperature", process.TemperatureLogitsWarper),
        ("top_k", process.TopKLogitsWarper), ("top_p", process.TopPLogitsWarper), ("min_p", process.MinPLogitsWarper),
    ]  # fmt: skip
    for name, step in steps:
        if name in given:
            scores = step(given[name])(ids, scores)
    wanted = torch.softmax(scores[0].double(), -1).numpy()
    found = drawn(Options(**given), logits, prompt, 4000)
    assert not found[wanted == 0].any()
    np.testing.assert_allclose(found, wanted, atol=5 * np.sqrt(0.25 / 4000))


def test_penalties_and_bias() -> None:
    logits = np.array([3.0, 2.9, 2.8, 0.0], np.float32)
    sampler = Sampler(Options(presence_penalty=0.15), [])
    assert [sampler.choose(logits).token for _ in range(4)] == [0, 1, 0, 0]
    sampler = Sampler(Options(frequency_penalty=0.15), [])
    assert [sampler.choose(logits).token for _ in range(4)] == [0, 1, 0, 2]
    assert Sampler(Options(logit_bias={0: -np.inf, 3: 10.0}), []).choose(logits).token == 3
    np.testing.assert_array_equal(logits, np.array([3.0, 2.9, 2.8, 0.0], np.float32))


def test_logits_with_infinities() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, -np.inf], np.float32)
    for given in ({"temperature": 0.0}, {"temperature": 2.0}, {"temperature": 1.0, "top_p": 0.1, "top_k": 3}):
        assert Sampler(Options(**given, seed=0, logprobs=2), []).choose(logits).token == 1


def test_the_packages_settings_and_the_calls_own() -> None:
    settings = {"do_sample": True, "top_p": 0.9, "suppress_tokens": [4]}
    assert read_options({"temperature": 0.5}, {}, 10) == Options()  # without do_sample: greedy
    assert read_options(settings, {}, 10) == Options(temperature=1.0, top_p=0.9, logit_bias={4: -np.inf})
    assert read_options(settings, {"temperature": 0, "top_p": None}, 10).temperature == 0


@pytest.mark.parametrize(
    ("pieces", "stops", "text"),
    [
        (["a", "b", "c"], [], "abc"),
        (["ab", "EN", "D", "x"], ["END"], "ab"),
        (["aE", "EN", "Dx"], ["END"], "aE"),
        (["aEN", "x"], ["END"], "aENx"),
        (["aEN"], ["END"], "aEN"),
        (["xyz"], ["z", "yz"], "x"),
    ],
)
def test_stop_texts_across_pieces(pieces: list[str], stops: list[str], text: str) -> None:
    stream = StopTexts(stops)
    assert "".join([*(stream.add(piece) for piece in pieces), stream.end()]) == text
