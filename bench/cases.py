"""The cases of scripts that compare packages: loops, views, convolutions, blocks, models and decode steps, as modules.

It needs no part of the compiler, so that an older version of mycc can build the same cases.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import convolutions
import torch
import zoo
from choice_forms import choices
from loop_forms import Function, forms
from reduction_forms import reductions
from torch import nn
from view_forms import IMAGES, OF_IMAGES, OF_SIGNALS, SIGNALS, Operator, View

__all__ = ["KINDS", "QUICK", "Case", "cases"]

MEGABYTES = 64  # of a large operand of a loop: more than the caches of a core
CONVOLUTIONS = 60  # of them, drawn at random
QUICK = 2  # cases of each kind


@dataclass(frozen=True)
class Case:
    """A module and its inputs."""

    kind: str
    name: str
    module: nn.Module
    inputs: tuple[Any, ...]


def loops() -> Iterator[Case]:
    for form in (*forms(MEGABYTES), *reductions(MEGABYTES), *choices(MEGABYTES)):
        yield Case("loops", form.name, Function(form.function), form.inputs)


def views() -> Iterator[Case]:
    """Operators behind views of their operand, each of which lies in a cache."""
    for kind, shapes, operators in (("signal", SIGNALS, OF_SIGNALS), ("image", IMAGES, OF_IMAGES)):
        for view, (name, operator) in itertools.product(shapes, operators.items()):
            x = torch.randn(view.shape)
            inputs = ((x * 255).to(torch.uint8) if view.dtype == torch.uint8 else x,)
            yield Case("views", f"{name}; {kind} {view.name}", Function(partial(_seen, operator, view)), inputs)


def _seen(operator: Operator, view: View, x: torch.Tensor) -> Any:
    return operator(view.view(x))


def convolution_cases() -> Iterator[Case]:
    for name, module, x in random.Random(0).sample(list(convolutions.forms()), CONVOLUTIONS):
        yield Case("convolutions", name, module.eval(), (x,))


def blocks() -> Iterator[Case]:
    sys.path.insert(0, str(Path(__file__).parent / "blocks"))
    for path in sorted((Path(__file__).parent / "blocks").glob("*.py")):
        for name, make in vars(importlib.import_module(path.stem)).items():
            if inspect.isfunction(make) and make.__annotations__ == {"return": "Block"}:
                module, inputs = make()
                yield Case("blocks", name, module, inputs)


def models() -> Iterator[Case]:
    for name, model in zoo.ZOO.items():
        yield Case("models", name, model.build(), model.inputs())
    yield Case("models", "gpt2-decode-step", *zoo.decode_step())


KINDS: dict[str, Callable[[], Iterator[Case]]] = {
    "loops": loops,
    "views": views,
    "convolutions": convolution_cases,
    "blocks": blocks,
    "models": models,
}


def cases(kind: str, part: str = "", quick: bool = False) -> Iterator[Case]:
    """The cases of a kind whose name contains `part`; quick: the first few."""
    found = (case for case in KINDS[kind]() if part in case.name)
    return itertools.islice(found, QUICK) if quick else found
