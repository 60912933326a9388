"""Several prompts in one call: tokens that are those of each prompt alone, by fewer calls."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.cache import TILE
from mycc.compiler.generation.packed import tiles_of
from mycc.runtime.generation.scheduler import Counts, Scheduler

from ..helpers.builds import QUICK
from .folders import greedy, make_network
from .test_architectures import KINDS
from .test_scheduler import finish

LENGTH, CHUNK, TEXTS = 128, 80, 4


def compiled(folder: Path, network: Any, **options: Any) -> Any:
    package = mycc.compile_generation(
        network, out=folder / "text.pkg", max_length=LENGTH, chunk=CHUNK, max_batch=TEXTS, verify=False,
        options={"codegen.sources": False, "build.flags": QUICK}, **options,
    )  # fmt: skip
    return mycc.load(package)


@pytest.fixture(scope="module")
def network() -> Any:
    return make_network("llama")


@pytest.fixture(scope="module")
def model(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled(tmp_path_factory.mktemp("packed"), network)


def prompts_of(*lengths: int) -> list[list[int]]:
    choose = random.Random(sum(lengths))
    return [[choose.randrange(4, 400) for _ in range(length)] for length in lengths]


def run(model: Any, prompts: list[list[int]], count: int, reuse: bool = False) -> tuple[list[list[int]], Counts]:
    """The tokens of prompts that come together."""
    scheduler = model.generator.new_engine(reuse)
    assert isinstance(scheduler, Scheduler)
    options = model.generator.options({"max_new_tokens": count, "ignore_eos": True, "temperature": 0})
    texts = [model.generator.text(prompt, options) for prompt in prompts]
    for text in texts:
        scheduler.add(text)
    counts = finish(scheduler)
    return [text.tokens for text in texts], counts


def test_tiles() -> None:
    """Of 70 tokens behind 2, and of 3 at the beginning."""
    table = torch.tensor([[5, 6, 7, 8, 9], [1, 0, 0, 0, 0]])
    tiles = tiles_of([(2, 70), (0, 3)], table)
    assert tiles.positions[0].tolist() == list(range(2, 2 + TILE))
    assert tiles.positions[1].tolist() == [*range(2 + TILE, 72), *[-1] * (2 * TILE - 70)]
    assert tiles.positions[2].tolist() == [0, 1, 2, *[-1] * (TILE - 3)]
    assert tiles.queries[2, :3].tolist() == [70, 71, 72]
    assert tiles.table.tolist() == [table[0].tolist(), table[0].tolist(), table[1].tolist()]
    assert tiles.token_positions[0].tolist() == [*range(2, 72), 0, 1, 2]
    assert tiles.token_blocks[0].tolist() == [*(5 + p // 16 for p in range(2, 72)), 1, 1, 1]


def test_logits_are_those_of_each_text_alone(model: Any) -> None:
    """Pieces that begin anywhere, of one tile and of two, one of them a single token."""
    read, prefill = model.entry("read"), model.entry("prefill")
    columns = LENGTH // 16
    table = torch.arange(1, 1 + 3 * columns).reshape(3, columns)
    pieces = [(33, 1), (0, 66), (17, 9)]
    texts = [torch.tensor(prompt) for prompt in prompts_of(34, 66, 26)]
    alone, state = [], model.new_state()
    for i, text in enumerate(texts):
        alone.append(np.asarray(prefill(text[None], torch.tensor([0]), table[i : i + 1], state=state))[0])
    state = model.new_state()
    for i, (start, _) in enumerate(pieces):
        if start:
            prefill(texts[i][None, :start], torch.tensor([0]), table[i : i + 1], state=state)
    tiles = tiles_of(pieces, table)
    tokens = torch.cat([text[start:] for text, (start, _) in zip(texts, pieces, strict=True)])[None]
    given = (tokens, tiles.places, tiles.queries, tiles.positions, tiles.table, torch.tensor([0, 66, 75]))
    np.testing.assert_allclose(np.asarray(read(*given, state=state)), np.stack(alone), rtol=1e-4, atol=2e-4)


def test_prompts_that_come_together_are_one_call(model: Any, network: Any) -> None:
    prompts = prompts_of(20, 3, 41, 9)
    found, counts = run(model, prompts, 6)
    assert found == [greedy(network, prompt, 6) for prompt in prompts]
    assert counts.calls == 1 + 5  # the prompts, and a step for each token more
    assert counts.read_tokens == 73


def test_pieces_of_prompts_that_are_longer_than_a_call(model: Any, network: Any) -> None:
    """80 tokens a call: 60 and 20 of 50, the other 30 and 50 of 70, the rest, and a step of the first two meanwhile."""
    prompts = prompts_of(60, 50, 70, 1)
    found, counts = run(model, prompts, 5)
    assert found == [greedy(network, prompt, 5) for prompt in prompts]
    assert counts.read_tokens == 180  # a prompt of one token is a step


def test_prompts_that_begin_alike_are_read_once(model: Any, network: Any) -> None:
    begin, *ends = prompts_of(36, 4, 5, 2)
    prompts = [begin + end for end in ends]
    found, counts = run(model, prompts, 4, reuse=True)
    assert found == [greedy(network, prompt, 4) for prompt in prompts]
    assert counts.reused_tokens == 2 * 32  # two whole blocks by each of the others
    assert run(model, prompts, 4)[0] == found


def test_too_few_blocks_for_all_prompts(network: Any, tmp_path: Path) -> None:
    """Texts of 40 and more tokens, for which there are 8 blocks of 16 tokens: some wait, and some are read again."""
    model = compiled(tmp_path, network, cache_tokens=LENGTH)
    prompts = prompts_of(30, 44, 50, 37, 28)
    found, counts = run(model, prompts, 24)
    assert found == [greedy(network, prompt, 24) for prompt in prompts]
    assert counts.preempted > 0


@pytest.mark.parametrize("kind", ["gemma2", "gpt2", "deepseek_v3", "gpt_oss"])
def test_other_architectures(kind: str, tmp_path: Path) -> None:
    """Windows and softcap, positions that are learned, keys of a latent space, sinks and experts."""
    network = make_network(kind, **KINDS[kind])
    model = compiled(tmp_path, network)
    assert "read" in model.entries
    prompts = prompts_of(33, 2, 20, 18)
    assert run(model, prompts, 8)[0] == [greedy(network, prompt, 8) for prompt in prompts]


def test_networks_with_attention_of_their_own_read_prompts_one_by_one(tmp_path: Path) -> None:
    network = make_network("falcon", **KINDS["falcon"])
    model = compiled(tmp_path, network)
    assert "read" not in model.entries
    prompts = prompts_of(20, 3)
    found, counts = run(model, prompts, 3)
    assert found == [greedy(network, prompt, 3) for prompt in prompts]
    assert counts.calls == 2 + 2


@pytest.mark.parametrize("texts", [1, 3])
def test_recurrences_read_what_is_left_in_short_pieces(texts: int, tmp_path: Path) -> None:
    """Of a model whose pieces have 64 tokens or 8: 85 tokens are a whole piece, two short ones and five single ones."""
    network = make_network("mamba2", **KINDS["mamba2"])
    package = mycc.compile_generation(
        network, out=tmp_path / "text.pkg", max_length=LENGTH, max_batch=texts, verify=False,
        options={"codegen.sources": False, "build.flags": QUICK},
    )  # fmt: skip
    model = mycc.load(package)
    prompts = prompts_of(85, 8, 7)[:texts]
    found, counts = run(model, prompts, 6)
    assert found == [greedy(network, prompt, 6) for prompt in prompts]
    if texts == 1:
        assert counts.calls == 1 + 2 + 5 + 5
