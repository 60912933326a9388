"""A small Llama from its folder: the tokens, texts and log-probabilities of transformers, without torch at run time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

from ..helpers.c_programs import build_example
from .folders import TEXTS, greedy

PROMPT = TEXTS[0]


def test_greedy_tokens_are_those_of_transformers(made: Any, model: Any) -> None:
    prompt = made.tokenizer(PROMPT * 2).input_ids  # longer than a piece of 16
    assert len(prompt) > 16
    for count in (1, 2, 16, 17, 19):
        stream = model.generate_tokens(prompt[:count], max_new_tokens=40, ignore_eos=True)
        wanted = greedy(made.network, prompt[:count], 40)
        assert list(stream) == wanted, count
        assert len(set(wanted)) > 10
        assert stream.finish_reason == "length"


def test_pieces_joined_are_the_text_and_whole_characters(made: Any, model: Any) -> None:
    pieces = list(model.generate(TEXTS[2], max_new_tokens=60, temperature=1.5, seed=3, ignore_eos=True))
    stream = model.generate(TEXTS[2], max_new_tokens=60, temperature=1.5, seed=3, ignore_eos=True)
    text = stream.text()
    assert "".join(pieces) == text
    whole = made.tokenizer.decode(stream.prompt_tokens + stream.tokens, skip_special_tokens=True)
    assert TEXTS[2] + text == whole
    assert all(pieces)


def test_texts_of_unequal_lengths_side_by_side_are_those_alone(model: Any) -> None:
    prompts = [TEXTS[0] * 2, "the", TEXTS[1], TEXTS[2], "dog", TEXTS[1] + TEXTS[0]]  # more than rows of the cache
    alone = [model.generate(prompt, max_new_tokens=30, ignore_eos=True).text() for prompt in prompts]
    assert model.generate_batch(prompts, max_new_tokens=30, ignore_eos=True) == alone
    some = [model.generate(prompt, max_new_tokens=30, temperature=0.9, seed=5).text() for prompt in prompts]
    assert model.generate_batch(prompts, max_new_tokens=30, temperature=0.9, seed=5) == some


def test_ends(made: Any, model: Any) -> None:
    free = model.generate_tokens([5, 6, 7], max_new_tokens=20, ignore_eos=True)
    tokens = list(free)
    ended = model.generate_tokens([5, 6, 7], stop_tokens=tokens[4], max_new_tokens=20, ignore_eos=True)
    assert list(ended) == tokens[: tokens.index(tokens[4])]
    assert ended.finish_reason == "stop"
    text = model.generate(PROMPT, max_new_tokens=20, ignore_eos=True).text()
    for stop in (text[7:9], text[7:12]):
        stream = model.generate(PROMPT, max_new_tokens=20, ignore_eos=True, stop=["never this", stop])
        assert stream.text() == text[: text.index(stop)]
        assert stream.finish_reason == "stop"
        assert model.generate_batch([PROMPT], max_new_tokens=20, ignore_eos=True, stop=stop) == [
            text[: text.index(stop)]
        ]
    full = model.generate_tokens([5] * 90, ignore_eos=True)
    assert len(list(full)) == 6  # the cache holds 96
    assert full.finish_reason == "length"


def test_log_probabilities(made: Any, model: Any) -> None:
    prompt = made.tokenizer(PROMPT).input_ids
    stream = model.generate_tokens(prompt, max_new_tokens=5, logprobs=3, ignore_eos=True)
    tokens = list(stream)
    with torch.no_grad():
        logits = made.network.double()(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    made.network.float()
    wanted = torch.log_softmax(logits, -1)
    for row, chosen in zip(wanted, stream.chosen, strict=True):
        assert chosen.logprob == pytest.approx(float(row[chosen.token]), abs=1e-4)
        assert [token for token, _ in chosen.top] == row.topk(3).indices.tolist()
        assert [p for _, p in chosen.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_a_chat_is_the_templates_prompt(made: Any, model: Any) -> None:
    messages = [{"role": "user", "content": "the fox"}]
    prompt = made.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    stream = model.chat(messages, max_new_tokens=8, ignore_eos=True)
    assert stream.prompt_tokens == prompt
    stream.text()
    assert stream.tokens == greedy(made.network, prompt, 8)


def test_the_functions_over_tokens(made: Any, model: Any) -> None:
    """What a C program does: prefill in pieces, then decode, on a state of its own."""
    prompt = np.array([made.tokenizer(PROMPT).input_ids])
    state, zero = model.new_state(), np.array([0])
    places = np.array([[4, 2, 9, 1, 3, 5], [8, 6, 7, 10, 1, 1]])  # the blocks of two texts
    whole = model.entry("prefill")(prompt, zero, places[:1], state=state)
    model.entry("prefill")(prompt[:, :3], zero, places[1:], state=state)
    pieces = model.entry("prefill")(prompt[:, 3:], np.array([3]), places[1:], state=state)
    with torch.no_grad():
        wanted = made.network(torch.from_numpy(prompt)).logits[:, -1].numpy()
    np.testing.assert_allclose(whole, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-4)


def test_no_torch_where_it_runs(made: Any, tmp_path: Any) -> None:
    program = (
        "import sys, mycc\n"
        "m = mycc.load(sys.argv[1])\n"
        "assert list(m.generate_tokens([5, 6, 7], max_new_tokens=3))\n"
        "assert 'tokenizers' not in sys.modules\n"
        "assert m.generate('the fox', max_new_tokens=3).text()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, made.package], check=True)
    alone = (
        "import sys; sys.path.insert(0, sys.argv[1]); import text\n"
        "print(text.model.generate('a', max_new_tokens=3).text())"
    )
    done = subprocess.run([sys.executable, "-c", alone, made.package], check=True, capture_output=True, text=True)
    assert done.stdout.strip("\n") == mycc.load(made.package).generate("a", max_new_tokens=3).text()


def test_a_c_program(made: Any, model: Any, tmp_path: Path) -> None:
    program = build_example("generate_tokens", tmp_path)
    done = subprocess.run([program, made.package, "12", "5", "6", "7"], check=True, capture_output=True, text=True)
    wanted = list(model.generate_tokens([5, 6, 7], max_new_tokens=12, ignore_eos=True))
    assert [int(word) for word in done.stdout.split()] == wanted
    both = [program, made.package, "12", "5", "6", "7", "/", "8", "9"]
    done = subprocess.run(both, check=True, capture_output=True, text=True, env={"SEED": "3", "TEMPERATURE": "0.8"})
    drawn = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3, "temperature": 0.8}
    wanted = [list(model.generate_tokens(prompt, **drawn)) for prompt in ([5, 6, 7], [8, 9])]
    assert [[int(word) for word in line.split()] for line in done.stdout.splitlines()] == wanted
    refused = subprocess.run([program, made.package, "1", "400"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "error: " in refused.stderr


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ([], {"max_new_tokens": 0}, "max_new_tokens has to be a whole number from 1"),
        ([5] * 96, {}, "the prompt has 96 tokens; the package holds 96"),
        ([400], {}, "400 is no token"),
        ([5], {"temperature": -1}, "temperature has to be a number from 0"),
        ([5], {"top_p": float("nan")}, "top_p has to be a number from 0 to 1"),
        ([5], {"tempature": 1}, "no option 'tempature'"),
        ([5], {"logit_bias": {400: 1}}, "logit_bias: 400 is no token"),
        ([5], {"stop": "x"}, "stop is for texts"),
        ([5], {"logit_bias": {5: float("nan")}}, "logit_bias has to be a number, not nan"),
        ([5], {"logit_bias": {5: float("inf")}}, "logit_bias has to be a number, not inf"),
        ([5], {"logit_bias": [1, 2]}, "logit_bias has to be a dict"),
        ([5], {"temperature": float("inf")}, "temperature has to be a number from 0, not inf"),
        ([5], {"temperature": "1"}, "temperature has to be a number from 0, not '1'"),
        ([5], {"presence_penalty": float("inf")}, "presence_penalty has to be a number, not inf"),
        ([5], {"top_p": True}, "top_p has to be a number from 0 to 1, not True"),
        ([5], {"ignore_eos": "false"}, "ignore_eos has to be True or False, not 'false'"),
        (b"abc", {}, "a list of whole numbers"),
        ("abc", {}, "a list of whole numbers"),
        ([1.5], {}, "a list of whole numbers"),
        (None, {}, "a list of whole numbers"),
    ],
)
def test_what_cannot_be_generated(model: Any, prompt: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(mycc.InputError, match=words):
        model.generate_tokens(prompt, **options)


def test_counts_that_are_larger_than_a_machines(model: Any) -> None:
    drawn = {"max_new_tokens": 9, "temperature": 0.9, "seed": 4, "ignore_eos": True}
    wanted = list(model.generate_tokens([5, 6], **drawn))
    assert list(model.generate_tokens([5, 6], **drawn, top_k=2**64 + 1)) == wanted
    full = list(model.generate_tokens([5, 6], **{**drawn, "max_new_tokens": 2**64 + 1}))
    assert (len(full), full[:9]) == (94, wanted)  # the cache holds 96


def test_prompts_of_megabytes(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.process_time()
    for ask in (model.generate, lambda text: model.chat([{"role": "user", "content": text}])):
        with pytest.raises(mycc.InputError, match="the text has more than 192 tokens; the package takes 96"):
            ask("x" * 1_000_000)
    assert time.process_time() - begun < 5  # all of it takes the tokenizer tens of seconds
    monkeypatch.setattr("mycc.runtime.generation.tokenizer._CHARACTERS", 2)
    tokenizer, text = model.generator.tokenizer, TEXTS[0] * 2
    assert tokenizer.encode(text, bound=20) == tokenizer.encode(text)  # few tokens of many characters
    assert tokenizer.encode(text * 9, most=5) == tokenizer.encode(text * 9)[:5]


@pytest.mark.parametrize("messages", [None, 5, "hi", [], {"role": "user", "content": "x"}])
def test_messages_that_are_none(model: Any, messages: Any) -> None:
    with pytest.raises(mycc.InputError, match="messages has to be a list of messages"):
        model.chat(messages)


@pytest.mark.parametrize("prompts", [None, 5, "ab", b"ab"])
def test_prompts_that_are_not_several(model: Any, prompts: Any) -> None:
    with pytest.raises(mycc.InputError, match="generate_batch takes several prompts"):
        model.generate_batch(prompts)


def test_a_text_that_is_no_text(model: Any) -> None:
    with pytest.raises(mycc.InputError, match="half a surrogate pair at 1"):
        model.generate("a\ud800")
    with pytest.raises(mycc.InputError, match="a prompt is a text, or a list"):
        model.generate(5)


def test_a_package_without_text(tmp_path: Any) -> None:
    plain = mycc.compile(torch.nn.ReLU(), torch.randn(2), out=tmp_path / "relu.pkg", verify=False)
    with pytest.raises(mycc.InputError, match="does not generate text"):
        mycc.load(plain).generate("x")
