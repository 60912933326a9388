"""Text generation on a real GPU: the native scheduler and the cache in blocks, from Python and from C. Marked `gpu`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.generation.scheduler import Scheduler

from ..generation.folders import greedy, make_network
from ..generation.test_scheduler import MOST, Asked, finish, run_schedule, some_texts, text_of
from ..helpers.c_programs import build_example

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

#: tokens of texts, those that one call reads, those that the cache holds of all: fewer than three texts may have
LENGTH, CHUNK, HELD = 96, 16, 160


class Packages(NamedTuple):
    """A network and its packages: for three texts in blocks, so with a cache of int8, and for one text. `odd`: another
    one for three texts, whose rows of logits are not all aligned, and its network."""

    network: Any
    several: Path
    small: Path
    single: Path
    odd: Path
    odd_network: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder, network = tmp_path_factory.mktemp("text"), make_network("llama")
    other = make_network("llama", vocab_size=509)
    common = {"max_length": LENGTH, "chunk": CHUNK, "target": "cuda", "verify": False}
    several = {**common, "max_batch": 3, "cache_tokens": HELD}
    return Packages(
        network,
        mycc.compile_generation(network, out=folder / "several.pkg", **several),
        mycc.compile_generation(network, out=folder / "small.pkg", cache_dtype="int8", **several),
        mycc.compile_generation(network, out=folder / "single.pkg", **common),
        mycc.compile_generation(other, out=folder / "odd.pkg", **several),
        other,
    )


@pytest.fixture(scope="module")
def several(made: Packages) -> Any:
    return mycc.load(made.several)


@pytest.fixture(scope="module")
def alone(several: Any) -> dict[Asked, list[int]]:
    return {
        asked: list(several.generate_tokens(asked.prompt, max_new_tokens=MOST, ignore_eos=True, **dict(asked.options)))
        for asked in some_texts()
    }


@pytest.mark.parametrize("form", ["several", "single"])
def test_greedy_tokens_are_those_of_transformers(made: Packages, form: str) -> None:
    model = mycc.load(getattr(made, form))
    assert model.device == "cuda:0"
    assert isinstance(model.generator.new_engine(False), Scheduler)
    for asked in some_texts():
        found = list(model.generate_tokens(asked.prompt, max_new_tokens=MOST, ignore_eos=True, temperature=0))
        assert found == greedy(made.network, list(asked.prompt), MOST), f"{len(asked.prompt)} tokens"


def test_rows_of_logits_that_are_not_aligned(made: Packages) -> None:
    model = mycc.load(made.odd)
    scheduler = model.generator.new_engine(False)
    asked = [each for each in some_texts() if not each.options]
    found = [text_of(model, each, MOST) for each in asked]
    for text in found:
        scheduler.add(text)
    finish(scheduler)
    assert [text.tokens for text in found] == [greedy(made.odd_network, list(each.prompt), MOST) for each in asked]


def test_logits_get_to_the_host_where_they_are_asked_for(several: Any) -> None:
    """A text with log-probabilities beside one without: the tokens are those alone, and so are the logarithms."""
    first, second = [each for each in some_texts() if not each.options][:2]
    options = (("logprobs", 2), ("temperature", 0))
    alone = [text_of(several, Asked(each.prompt, options), 8) for each in (first, second)]
    for text in alone:
        scheduler = several.generator.new_engine(False)
        scheduler.add(text)
        finish(scheduler)
    mixed = [text_of(several, Asked(first.prompt, options), 8), text_of(several, second, 8)]
    scheduler = several.generator.new_engine(False)
    for text in mixed:
        scheduler.add(text)
    finish(scheduler)
    assert [text.tokens for text in mixed] == [text.tokens for text in alone]
    shown = [[chosen.logprob for chosen in text.chosen] for text in (mixed[0], alone[0])]
    np.testing.assert_allclose(*shown, atol=1e-5)
    assert all(chosen.logprob is None for chosen in mixed[1].chosen)


@pytest.mark.parametrize(
    "drawn",
    [
        {"temperature": 1.0}, {"temperature": 0.7, "top_k": 20}, {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 0.9, "min_p": 0.1}, {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
        {"temperature": 3.0, "top_p": 0.99}, {"temperature": 1.0, "top_k": 100},
        {"temperature": 0.9, "repetition_penalty": 1.3},
    ],
    ids=str,
)  # fmt: skip
def test_drawn_tokens_are_those_of_the_host(several: Any, drawn: dict[str, Any]) -> None:
    """A text whose log-probabilities are wanted has its tokens drawn on the host. Beside greedy texts and others they
    are the same."""
    asked = [each for each in some_texts() if not each.options][:3]
    found = {}
    for shown in ({"logprobs": 0}, {}):
        for i, each in enumerate(asked):
            scheduler = several.generator.new_engine(False)
            text = text_of(several, Asked(each.prompt, tuple({**drawn, **shown, "seed": i}.items())), 12)
            scheduler.add(text)
            finish(scheduler)
            found[bool(shown), i] = text.tokens
    assert len({tuple(found[True, i]) for i in range(3)}) == 3
    assert all(found[True, i] == found[False, i] for i in range(3))
    scheduler = several.generator.new_engine(False)
    together = [text_of(several, Asked(asked[i].prompt, tuple({**drawn, "seed": i}.items())), 12) for i in range(2)]
    greedy_text = text_of(several, asked[2], 12)
    for text in (*together, greedy_text):
        scheduler.add(text)
    finish(scheduler)
    assert [text.tokens for text in together] == [found[True, i] for i in range(2)]
    assert greedy_text.tokens == list(several.generate_tokens(asked[2].prompt, max_new_tokens=12, ignore_eos=True))


def test_prompts_and_the_texts_that_go_on_are_one_call(several: Any, alone: dict[Asked, list[int]]) -> None:
    """Two prompts together, then a third one beside the tokens of these."""
    asked = sorted((each for each in alone if not each.options), key=lambda each: len(each.prompt))[1:4]
    scheduler = several.generator.new_engine(False)
    texts = [text_of(several, each, 8) for each in asked]
    for text in texts[:2]:
        scheduler.add(text)
    list(scheduler.step())
    scheduler.add(texts[2])
    list(scheduler.step())
    assert [len(text.tokens) for text in texts] == [2, 2, 1]
    assert scheduler.counts().calls == 2
    finish(scheduler)
    assert [text.tokens for text in texts] == [alone[each][:8] for each in asked]


@pytest.mark.parametrize("reuse", [False, True])
def test_random_schedules(several: Any, alone: dict[Asked, list[int]], reuse: bool) -> None:
    scheduler = several.generator.new_engine(reuse)
    for seed in range(25):
        run_schedule(several, scheduler, alone, seed)
    counts = scheduler.counts()
    assert counts.preempted > 0
    if reuse:
        assert counts.reused_tokens > 0
        assert counts.copied_blocks > 0


def test_a_cache_of_int8(made: Packages) -> None:
    """Texts side by side are those alone."""
    model = mycc.load(made.small)
    found = {asked: text_of(model, asked, MOST) for asked in some_texts()}
    scheduler = model.generator.new_engine(False)
    for text in found.values():
        scheduler.add(text)
    finish(scheduler)
    for asked, text in found.items():
        options = {"max_new_tokens": MOST, "ignore_eos": True, **dict(asked.options)}
        assert text.tokens == list(model.generate_tokens(asked.prompt, **options)), f"{len(asked.prompt)} tokens"


def test_a_c_program(made: Packages, tmp_path: Path) -> None:
    prompts = [list(asked.prompt) for asked in some_texts()]
    words = [word for prompt in prompts for word in (*map(str, prompt), "/")][:-1]
    program = build_example("generate_tokens", tmp_path)
    done = subprocess.run([program, made.several, str(MOST), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert found == [greedy(made.network, prompt, MOST) for prompt in prompts]
