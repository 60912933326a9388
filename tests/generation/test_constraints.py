"""Texts of a form: JSON by a schema, a grammar's, a regular expression's, whatever the model would like to say."""

from __future__ import annotations

import json
import re
from typing import Any

import mycc
import pytest
from mycc.runtime.generation.options import Options
from mycc.runtime.generation.sampling import Sampler

from .forms import DRAWN, SCHEMA

pytest.importorskip("llguidance")


def test_json_by_a_schema(model: Any) -> None:
    for seed in range(4):
        stream = model.generate("the", json_schema=SCHEMA, seed=seed, **DRAWN)
        found = json.loads(stream.text())
        assert stream.finish_reason == "stop"
        assert set(found) == {"name", "age", "tags"}
        assert 0 <= found["age"] <= 99
        assert set(found["tags"]) <= {"x", "yy"}
    again = model.generate("the", json_schema=json.dumps(SCHEMA), seed=3, **DRAWN)
    assert json.loads(again.text()) == found
    cut = model.generate("the", json_schema=SCHEMA, max_new_tokens=2)
    cut.text()
    assert cut.finish_reason == "length"


def test_grammars_and_expressions(model: Any) -> None:
    grammar = 'start: "[" number ("," number)* "]"\nnumber: /[0-9]{1,2}/'
    forms = {"regex": (r"(yes|no), [a-c]{3,5}", None), "grammar": (grammar, r"\[[0-9]{1,2}(,[0-9]{1,2})*\]")}
    for name, (form, pattern) in forms.items():
        for more in ({}, {"ignore_eos": True}, {"temperature": 1.2, "seed": 2, "top_k": 30, "repetition_penalty": 1.3}):
            stream = model.generate("the", **{name: form}, max_new_tokens=90, **more)
            text = stream.text()
            assert stream.finish_reason == "stop" or name == "grammar"
            if stream.finish_reason == "stop":
                assert re.fullmatch(pattern or form, text)
            assert 1 not in stream.tokens  # the end token is no part of it
    several = model.generate_batch(["the", "a", "dog", "fox"], regex="[0-9]{2}-[0-9]{2}", max_new_tokens=20)
    assert all(re.fullmatch("[0-9]{2}-[0-9]{2}", text) for text in several)


def test_a_bias_against_all_that_is_allowed() -> None:
    import numpy as np

    class Two:
        def allowed(self) -> Any:
            return np.array([False, True, True, False])

    sampler = Sampler(Options(logit_bias={1: float("-inf"), 2: float("-inf")}), [], Two())  # type: ignore[arg-type]
    assert sampler.choose(np.array([9.0, 1.0, 2.0, 9.0], np.float32)).token == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regex": "(", }, "regex cannot be followed"),
        ({"grammar": "start: ("}, "grammar cannot be followed"),
        ({"json_schema": "{"}, "json_schema is no JSON"),
        ({"json_schema": 7}, "has to be a JSON schema"),
        ({"json_schema": {"type": "nothing"}}, "json_schema cannot be followed"),
        ({"regex": "a", "grammar": 'start: "a"'}, "do not go together"),
        ({"regex": 7}, "regex has to be a text"),
    ],
)  # fmt: skip
def test_forms_that_are_none(model: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(mycc.InputError, match=words):
        model.generate("the", **options)
