"""Scores of attention that are -inf for some keys, whatever the product of query and key is: masks.

What a kernel asks at run time is the score of zero: where that is -inf for all keys of a block, none of them has a
weight, and the block need not be read. That holds for every finite product p where

    score(0) = -inf   ->   score(p) = -inf
"""

from __future__ import annotations

import math

from ...ir.conditions import is_low
from ...ir.expr import Acc, Call, Const, Expr

__all__ = ["hides_keys"]


def hides_keys(score: Expr) -> bool:
    """Whether a score may be -inf by a condition, and is so whatever the product is. score: as of
    ir.structured.Attention.

    where(key <= m, p, -inf)  p + where(key <= m, 0, -inf)  ->  yes        log(p)  p + bias[m, key]  ->  no
    """
    return _fills(score) and _holds(score)


def _fills(score: Expr) -> bool:
    """Whether it chooses -inf somewhere."""
    own = isinstance(score, Call) and score.op == "where" and any(map(is_low, score.args[1:]))
    return own or any(map(_fills, score.children))


def _holds(score: Expr) -> bool:
    """The implication above: of the product itself, of what does not read it, and of what is made of such."""
    if _is_finite(score) or not _reads_product(score):
        return True
    if not isinstance(score, Call) or score.op not in ("where", "add", "cast"):
        return False
    if score.op == "where" and _reads_product(score.args[0]):
        return False
    return all(map(_holds, score.args))


def _is_finite(value: Expr) -> bool:
    """Whether a score is finite where the product is: c * tanh(p / c)."""
    if isinstance(value, Call) and value.op in ("mul", "div", "tanh", "cast"):
        return all(map(_is_finite, value.args))
    number = isinstance(value, Const) and math.isfinite(value.value) and value.value != 0
    return number or isinstance(value, Acc)


def _reads_product(value: Expr) -> bool:
    return isinstance(value, Acc) or any(map(_reads_product, value.children))
