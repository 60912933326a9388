"""The cache: keys and values in other dtypes, and rings for sliding windows."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.generation.module import TextModel, cache_error

from .folders import greedy, make_network

PROMPT = [(7 * i * i + 3 * i + 11) % 390 + 4 for i in range(36)]


def test_int8_with_a_scale_for_each_position_and_head(tmp_path: Path) -> None:
    network = make_network("llama")
    package = mycc.compile_generation(network, out=tmp_path / "text.pkg", chunk=16, cache_dtype="int8")
    model = mycc.load(package)
    rows = {row["name"]: row for row in model.manifest["state"]}
    kept = [row for name, row in rows.items() if "keys" in name or "values" in name]
    assert {row["dtype"] for row in kept if "scales" not in row["name"]} == {"i8"}
    assert {row["shape"][-1] for row in kept if "scales" in row["name"]} == {1}
    error = model.manifest["task"]["cache"]["error"]
    assert 1e-5 < error < 0.05
    assert len(list(model.generate_tokens(PROMPT, max_new_tokens=30, ignore_eos=True))) == 30


def test_errors_of_dtypes() -> None:
    tokens = torch.randint(0, 400, (1, 40), generator=torch.Generator().manual_seed(0))
    network = make_network("llama")
    errors = {kept: cache_error(network, kept, tokens) for kept in ("f32", "f16", "bf16", "int8")}
    assert errors["f32"] == 0 < errors["f16"] < errors["bf16"] < 0.05
    assert errors["int8"] < 0.05
    with pytest.raises(mycc.CompileError, match="cache_dtype has to be"):
        mycc.compile_generation(network, out="/tmp/none.pkg", cache_dtype="fp4")


def test_rings_hold_a_window(tmp_path: Path) -> None:
    """Of texts much longer than the window, in pieces, side by side, and after texts were taken back."""
    network = make_network("mistral", sliding_window=24, max_position_embeddings=4096, num_hidden_layers=1)
    for length in (512, 4096):
        sizes = {name: buffer.shape for name, buffer in TextModel(network, length, 3, chunk=16).named_buffers()}
        assert {shape[2] for name, shape in sizes.items() if name.startswith(("keys", "values"))} == {24 + 15}
    package = mycc.compile_generation(
        network, out=tmp_path / "text.pkg", chunk=16, max_length=512, max_batch=2, draft_tokens=4, verify=False
    )
    model = mycc.load(package)
    prompts = [PROMPT * 3, PROMPT[:3], PROMPT[5:]]
    wanted = [greedy(network, prompt, 60) for prompt in prompts]
    options = {"max_new_tokens": 60, "ignore_eos": True}
    for prompt, tokens in zip(prompts, wanted, strict=True):
        assert list(model.generate_tokens(prompt, **options)) == tokens
        assert list(model.generate_tokens(prompt, draft="lookup", **options)) == tokens
    answers = dict(zip(map(tuple, prompts), wanted, strict=True))
    engine = model.generator.new_engine(reuse=True)  # as a server's: a prompt that shares a beginning with another
    for prompt in [*prompts, prompts[0], prompts[0][:60] + [9] * 50, prompts[0][:100]]:
        text = model.generator.text(prompt, model.generator.options(options))
        engine.add(text)
        while engine.busy:
            list(engine.step())
        assert text.tokens == (answers.get(tuple(prompt)) or greedy(network, prompt, 60))
