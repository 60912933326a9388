"""Speculative decoding: the tokens of a model alone, and how many guesses held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
from mycc.runtime.generation.drafting import Lookup

from ..helpers.builds import QUICK
from .folders import make_network, train_tokenizer
from .forms import DRAWN, SCHEMA

OPTIONS = {"max_new_tokens": 60, "ignore_eos": True}
PROMPT = [5, 6, 7, 8, 9, 10, 11] * 4


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that checks five tokens of a draft at once."""
    return mycc.compile_generation(
        make_network("llama"), out=tmp_path_factory.mktemp("drafts") / "text.pkg", max_batch=2, chunk=16,
        draft_tokens=5, verify=False, options={"build.flags": QUICK},
    )  # fmt: skip


@pytest.fixture
def checked(checking: Path) -> Any:
    return mycc.load(checking)


def test_lookup_finds_what_followed_the_longest_run() -> None:
    lookup = Lookup()
    assert lookup.propose([1, 2, 3], 4) == []
    assert lookup.propose([1, 2, 3, 9, 1, 2], 4) == [3, 9, 1, 2]
    assert lookup.propose([1, 2, 3, 9, 1, 2, 4, 2], 2) == [4, 2]  # the last place where the run stood
    assert lookup.propose([1, 2, 3, 9, 1, 2, 4, 2, 3, 9], 1) == [1]
    assert lookup.propose([1, 2, 3, 9, 1, 2, 4, 2, 3, 9, 8], 1) == []


def test_the_same_tokens_with_any_draft(checked: Any) -> None:
    for prompt in (PROMPT, [5], [(7 * i * i + 11) % 390 for i in range(20)]):
        for more in ({}, {"temperature": 0.9, "seed": 4}, {"temperature": 0.3, "seed": 1, "repetition_penalty": 1.2}):
            wanted = list(checked.generate_tokens(prompt, **OPTIONS, **more))
            for draft in ("lookup", checked):
                stream = checked.generate_tokens(prompt, draft=draft, **OPTIONS, **more)
                assert list(stream) == wanted
                known = stream.statistics
                assert known["accepted"] <= known["drafted"] <= 4 * known["checks"]
                assert known["tokens"] == 60
                if draft is checked and not more:  # the model guesses its own tokens
                    assert known["rate"] == 1.0
                    assert known["checks"] == 12  # 1 of the prompt's, 11 times 5, and 4
    full = checked.generate_tokens([5] * 120, draft=checked, ignore_eos=True)
    assert len(list(full)) == 8
    assert full.finish_reason == "length"


def test_ends_and_neighbours(checked: Any) -> None:
    tokens = list(checked.generate_tokens([5, 6, 7], **OPTIONS))
    ended = checked.generate_tokens([5, 6, 7], draft=checked, stop_tokens=tokens[7], **OPTIONS)
    assert list(ended) == tokens[: tokens.index(tokens[7])]
    assert ended.finish_reason == "stop"
    with checked.generator.engine() as engine:
        options = checked.generator.options(OPTIONS)
        texts = [checked.generator.text(p, options) for p in (PROMPT, [5, 6, 7], PROMPT[3:])]
        texts[0].drafter, texts[2].drafter = Lookup(), Lookup()
        for text in texts:
            engine.add(text)
        while engine.busy:
            list(engine.step())
    assert texts[0].tokens == list(checked.generate_tokens(PROMPT, **OPTIONS))
    assert texts[1].tokens == tokens
    assert texts[2].tokens == list(checked.generate_tokens(PROMPT[3:], **OPTIONS))


def test_a_form_with_a_draft(checked: Any) -> None:
    pytest.importorskip("llguidance")
    checked.generator._read = lambda name: train_tokenizer().backend_tokenizer.to_str().encode()
    wanted = list(checked.generate_tokens([5, 6], json_schema=SCHEMA, seed=1, **DRAWN))
    for draft in ("lookup", checked):
        assert list(checked.generate_tokens([5, 6], json_schema=SCHEMA, seed=1, draft=draft, **DRAWN)) == wanted


def test_what_is_no_draft(checked: Any, model: Any) -> None:
    for draft, words in (("ngram", "not 'ngram'"), (7, "not a int")):
        with pytest.raises(mycc.InputError, match=words):
            checked.generate_tokens([5], draft=draft)
    with pytest.raises(mycc.InputError, match="no function that checks guesses"):
        model.generate_tokens([5], draft="lookup")
    with pytest.raises(mycc.CompileError, match="draft_tokens has to be"):
        mycc.compile_generation(make_network("gpt2"), out="/tmp/none.pkg", draft_tokens=-1)
