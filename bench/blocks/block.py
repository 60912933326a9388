"""What the blocks are made of: a function and its parts as a module, and pieces that many share.

The files beside this one hold models that are not in the zoo, or the part of one that is its own: a function each,
which gives a module with random weights and its inputs. They are short, so that one is measured in a minute:

    mycc bench bench/blocks/graphs.py:gat --against eager,ort,openvino --threads 1,2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Block = tuple[nn.Module, tuple[Tensor, ...]]


class Function(nn.Module):
    """A function of tensors as a module; `parts` are modules and tensors that it reads."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def block(function: Callable[..., Any], inputs: tuple[Tensor, ...], **parts: nn.Module | Tensor) -> Block:
    return Function(function, **parts).eval(), inputs


def feed_forward(size: int, factor: int = 4, activation: type[nn.Module] = nn.GELU) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(size), nn.Linear(size, factor * size), activation(), nn.Linear(factor * size, size)
    )


def heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).flatten(-2)
