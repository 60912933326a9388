"""Greedy tokens of a package beside those of transformers' generate: alone, and side by side with other texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import mycc

from .folders import greedy, make_network

__all__ = ["Equality", "compare_tokens"]

#: tokens of the prompts: past a window of 24 and two pieces of 16; one alone; between
READ = (36, 1, 17)


class Equality(NamedTuple):
    """How many tokens, of the shortest text, are transformers' before the first that is another."""

    alone: int
    together: int
    distinct: int  # different tokens among those of the first text


def compare_tokens(kind: str, more: dict[str, Any], count: int, folder: Path) -> Equality:
    """Compiles a small random model of a model_type, and generates `count` tokens behind prompts of READ tokens."""
    network = make_network(kind, **{**more, **_room(more, max(READ) + count)})
    prompts = [[(7 * i * i + 3 * i + 11 + n) % 390 + 4 for i in range(n)] for n in READ]
    wanted = [greedy(network, prompt, count) for prompt in prompts]
    texts = 1 if kind == "mamba2" else len(READ)
    model = mycc.load(
        mycc.compile_generation(network, out=folder / f"{kind}.pkg", chunk=16, max_batch=texts, verify=False)
    )
    options = {"max_new_tokens": count, "ignore_eos": True}
    alone = [list(model.generate_tokens(prompt, **options)) for prompt in prompts]
    together = _together(model, prompts, options)
    same = [[_same(a, b) for a, b in zip(found, wanted, strict=True)] for found in (alone, together)]
    return Equality(min(same[0]), min(same[1]), len(set(wanted[0])))


def _room(more: dict[str, Any], positions: int) -> dict[str, int]:
    """The sizes of a configuration that say how many positions there are."""
    return {name: positions for name in ("n_positions", "max_position_embeddings") if name in more} or {
        "max_position_embeddings": positions
    }


def _together(model: Any, prompts: list[list[int]], options: dict[str, Any]) -> list[list[int]]:
    with model.generator.engine() as engine:
        texts = [model.generator.text(prompt, model.generator.options(options)) for prompt in prompts]
        for text in texts:
            engine.add(text)
        while engine.busy:
            list(engine.step())
    return [text.tokens for text in texts]


def _same(found: list[int], wanted: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b), len(wanted))
