"""Greedy tokens of a package beside those of transformers' generate: alone, and side by side with other texts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mycc
import torch
from mycc.compiler.generation.cache import BLOCK
from mycc.compiler.generation.module import TextModel, reads_pieces
from mycc.runtime.generation.engine import Engine

from .folders import greedy, make_network

__all__ = ["Equality", "compare_tokens", "compare_wrapped"]

#: tokens of the prompts: past a window of 24 and two pieces of 16; one alone; between
READ = (36, 1, 17)
#: tokens of a piece of a prompt
PIECE = 16


class Equality(NamedTuple):
    """How many tokens, of the shortest text, are transformers' before the first that is another."""

    alone: int  # a cache with a row for the text, the prompt read whole
    chunked: int  # so, the prompt read in pieces
    paged: int  # alone in a cache in blocks
    ragged: int  # side by side with other texts, in blocks
    distinct: int  # different tokens among those of the first text

    @property
    def least(self) -> int:
        return min(self[:4])


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Small models: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def compare_tokens(kind: str, more: dict[str, Any], count: int, folder: Path) -> Equality:
    """Compiles a small random model of a model_type, and generates `count` tokens behind prompts of READ tokens."""
    network = make_network(kind, **{**more, **_room(more, max(READ) + count)})
    prompts = [[(7 * i * i + 3 * i + 11 + n) % 390 + 4 for i in range(n)] for n in READ]
    wanted = [greedy(network, prompt, count) for prompt in prompts]
    options = {"max_new_tokens": count, "ignore_eos": True}
    single, several = (
        mycc.load(
            mycc.compile_generation(
                network, out=folder / f"{kind}{texts}.pkg", chunk=chunk, max_batch=texts, verify=False
            )
        )
        for texts, chunk in ((1, max(READ)), (len(READ), PIECE))
    )
    found = {
        "alone": [list(single.generate_tokens(prompt, **options)) for prompt in prompts],
        "chunked": [_in_pieces(single, prompt, options) for prompt in prompts],
        "paged": [list(several.generate_tokens(prompt, **options)) for prompt in prompts],
        "ragged": _together(several, prompts, options),
    }
    same = {name: min(map(_same, texts, wanted)) for name, texts in found.items()}
    return Equality(**same, distinct=len(set(wanted[0])))


@torch.no_grad()
@_one_thread()
def compare_wrapped(kind: str, more: dict[str, Any], count: int, in_blocks: bool) -> int:
    """As compare_tokens, of the module that is compiled, by torch: prompts in pieces, then all texts side by side.
    in_blocks: the form of the cache."""
    network = make_network(kind, **{**more, **_room(more, max(READ) + count)})
    prompts = [[(7 * i * i + 3 * i + 11 + n) % 390 + 4 for i in range(n)] for n in READ]
    wanted = [greedy(network, prompt, count) for prompt in prompts]
    columns = -(-(max(READ) + count) // BLOCK)
    blocks = len(READ) * columns + 1 if in_blocks else 0
    model = TextModel(network, max(READ) + count, len(READ), False, blocks, PIECE)
    table = torch.arange(1, blocks).reshape(len(READ), columns) if model.blocks else None
    piece = PIECE if not model.recurrent or reads_pieces(network) else 1
    found: list[list[int]] = []
    for row, prompt in enumerate(prompts):
        for at in range(0, len(prompt), piece):
            tokens, start = torch.tensor([prompt[at : at + piece]]), torch.tensor([at])
            logits = model.next_logits(tokens, start, torch.tensor([row]), None if table is None else table[row, None])
        found.append([int(logits.argmax())])
    rows = torch.arange(len(READ)) if model.recurrent else None
    for step in range(count - 1):
        tokens = torch.tensor([[text[-1]] for text in found])
        for text, row in zip(found, model.next_logits(tokens, torch.tensor(READ) + step, rows, table), strict=True):
            text.append(int(row.argmax()))
    return min(map(_same, found, wanted))


def _in_pieces(model: Any, prompt: list[int], options: dict[str, Any]) -> list[int]:
    """A text whose prompt is read in pieces of PIECE tokens; of models with recurrences token by token."""
    task = model.manifest["task"]
    engine = Engine(model, {**task, "chunk": task["length"] if task["recurrent"] else PIECE})
    text = model.generator.text(prompt, model.generator.options(options))
    engine.add(text)
    while engine.busy:
        list(engine.step())
    return text.tokens


def _room(more: dict[str, Any], positions: int) -> dict[str, int]:
    """The sizes of a configuration that say how many positions there are: GPT-2 has two names for one."""
    names = ("max_position_embeddings", *(["n_positions"] if "n_positions" in more else []))
    return dict.fromkeys(names, positions)


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
