"""Constants whose values follow a formula of their indices: position tables, stored masks."""

from __future__ import annotations

import torch

from .index_forms import Affine, Choice, Form, uniform

_MAX_ELEMENTS = 1 << 24  # a stored 4096 x 4096 mask
_LOOKED_AT = 1000  # elements that tell an ordinary weight


def constant_form(tensor: torch.Tensor) -> Form | None:
    """The form of a constant, found by comparing all its elements with the formula of its first ones."""
    if tensor.numel() == 0 or tensor.numel() > _MAX_ELEMENTS or tensor.is_complex() or tensor.is_quantized:
        return None
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        tensor = tensor.float()  # torch neither compares nor counts them
    two = tensor.reshape(-1)[:_LOOKED_AT].unique().numel() <= 2
    floats = tensor.dtype == torch.bool or tensor.is_floating_point()
    if not two and (floats or not _begins_affine(tensor)):
        return None  # an ordinary weight: not worth a look at all of it
    first = tensor.reshape(-1)[0]
    if two and bool((tensor == first).all()):
        return _uniform(tensor, first)
    found = None if floats else _affine(tensor)
    return _triangle(tensor) if found is None and two else found


def _uniform(tensor: torch.Tensor, first: torch.Tensor) -> Form:
    value = first.item()
    if isinstance(value, int) and not isinstance(value, bool):
        return Affine((0,) * tensor.dim(), value)
    return uniform(tensor.dim(), value)


def _begins_affine(tensor: torch.Tensor) -> bool:
    """Whether the first elements of a tensor of integers are as far from one another as the first two."""
    row = tensor[(0,) * (tensor.dim() - 1)][:_LOOKED_AT].to(torch.int64) if tensor.dim() else tensor.reshape(1)
    return bool((row.diff() == row[1] - row[0]).all()) if row.numel() > 1 else True


def _affine(tensor: torch.Tensor) -> Affine | None:
    base = tensor[(0,) * tensor.dim()]
    steps, guess = [], base.to(torch.int64)
    for d, size in enumerate(tensor.shape):
        at_one = tuple(int(e == d) for e in range(tensor.dim()))
        step = int(tensor[at_one] - base) if size > 1 else 0
        steps.append(step)
        column = [1] * tensor.dim()
        column[d] = size
        guess = guess + step * torch.arange(size).reshape(column)
    if not torch.equal(guess.expand(tensor.shape), tensor.to(torch.int64)):
        return None
    return Affine(tuple(steps), int(base))


def _triangle(tensor: torch.Tensor) -> Choice | None:
    """One value on and below a diagonal, another above; the same in all leading dimensions."""
    if tensor.dim() < 2 or tensor.shape[-1] < 2:
        return None
    matrix = tensor.reshape(-1, *tensor.shape[-2:])[0]
    lower, upper = matrix[-1, 0], matrix[0, -1]
    if bool(lower == upper) or not bool((tensor == matrix).all()):
        return None
    diagonal = int((matrix[0] == lower).sum()) - 1
    rows, columns = matrix.shape
    keep = torch.arange(rows)[:, None] + diagonal >= torch.arange(columns)[None, :]
    if not torch.equal(torch.where(keep, lower, upper), matrix):
        return None
    condition = Affine((0,) * (tensor.dim() - 2) + (1, -1), diagonal)
    return Choice(tensor.dim(), frozenset([condition]), lower.item(), upper.item())
