"""Where the keys lie that a mask of an attention shows to a query, by the comparisons in its score.

    where(key <= start + m, score, -inf)             ->      keys from 0 up to start + m
    where(key > m - 24, score, -inf)                 ->      keys from m - 23 on
    where(m - key < 24 and key <= m, score, -inf)    ->      keys from m - 23 up to m

A kernel takes the bounds of all rows of its tile, and reads no block of keys outside of them. What a mask says beside
such comparisons, it goes on saying in the score. The score of keys that every row of a tile may see needs none:

    where(key <= start + m, score * 0.5, -inf)       ->      score * 0.5, where key <= start + m for the first row
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...ir.conditions import MIRRORED, conditions, is_low
from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Const, Expr, IndexValue, cast
from ...ir.index import Index, Var, of
from ...ir.plans.gpu import SeenKeys
from ...ir.structured import Attention, AttentionGradient

_INDEX = "i64"
#: beyond every number of keys: what is that far away from a key is as good as this far
_FAR = 1 << 40


def seen_keys(node: Attention | AttentionGradient) -> SeenKeys | None:
    """The bounds in the score of an attention; None where it has none, and of `causal`, which has its own."""
    if node.score is None or node.causal:
        return None
    begins, ends = list[Expr](), list[Expr]()
    past = IndexValue(node.keys)
    shown = shown_score(node)
    for op, bound in (side for condition in _conditions(node.score) for side in _sides(condition, node.key)):
        if op in ("le", "eq"):  # one more cannot overflow: no bound lies past the keys
            ends.append(_plus_one(_of("minimum", bound, IndexValue(node.keys - 1))))
        if op == "lt":
            ends.append(_of("minimum", bound, past))
        if op in ("ge", "eq"):
            begins.append(_of("maximum", bound, Const(0, _INDEX)))
        if op == "gt":
            begins.append(_plus_one(_of("maximum", bound, Const(-1, _INDEX))))
    return SeenKeys(tuple(begins), tuple(ends), shown) if begins or ends else None


def shown_score(node: Attention | AttentionGradient) -> Expr | None:
    """The score of an attention behind the conditions that a comparison of the key itself makes; None where there are
    none such, or others beside them."""
    if node.score is None:
        return None
    shown = _shown(node.score, node.key)
    return None if shown is node.score else shown


def only_hides(node: Attention | AttentionGradient) -> bool:
    """Whether the score of an attention is its product where it is not -inf."""
    score = node.score
    while isinstance(score, Call) and score.op == "where" and is_low(score.args[2]):
        score = score.args[1]
    return score is None or isinstance(score, Acc)


def _shown(score: Expr, key: Var) -> Expr:
    """The score without the masks whose conditions all bound the key exactly."""
    if not isinstance(score, Call):
        return score
    if score.op == "where" and is_low(score.args[2]):
        exact = all(_is_bound(c, key) for c in conditions(score.args[0]))
        return _shown(score.args[1], key) if exact else score
    if score.op in ("add", "cast"):
        args = tuple(_shown(part, key) for part in score.args)
        return score if all(a is b for a, b in zip(args, score.args, strict=True)) else replace(score, args=args)
    return score


def _is_bound(condition: Expr, key: Var) -> bool:
    """Whether a condition is a comparison of the key itself with an integer that does not know it."""
    if not isinstance(condition, Call) or condition.op not in ("lt", "le", "gt", "ge"):
        return False
    return any(
        isinstance(own, IndexValue)
        and own.index == of(key)
        and DTYPES[bound.dtype].kind == "i"
        and key not in bound.vars()
        for own, bound in (condition.args, reversed(condition.args))
    )


def _conditions(score: Expr) -> Iterator[Call]:
    """Comparisons without which the score is -inf, whatever the product is."""
    if not isinstance(score, Call):
        return
    if score.op == "where" and is_low(score.args[2]):
        yield from (c for c in conditions(score.args[0]) if isinstance(c, Call) and c.op in MIRRORED)
        yield from _conditions(score.args[1])
    elif score.op in ("add", "cast"):
        for part in score.args:
            yield from _conditions(part)


class _Side(NamedTuple):
    """What the key is compared with: `op` bound."""

    op: str
    bound: Expr


def _sides(condition: Call, key: Var) -> Iterator[_Side]:
    """Comparisons of the key with what does not know it, that hold where the condition does."""
    a, b = condition.args
    for op, own, bound in ((condition.op, a, b), (MIRRORED[condition.op], b, a)):
        if DTYPES[bound.dtype].kind == "i" and key not in bound.vars():
            yield from _solved(op, own, cast(bound, _INDEX), key)


def _solved(op: str, own: Expr, bound: Expr, key: Var) -> Iterator[_Side]:
    """Of `own op bound`, of which own alone knows the key.

    A difference with a number that is far below 0 may wrap around: what it shows then is no range, and nothing is left
    out by it.
    """
    if isinstance(own, IndexValue):
        yield from _of_index(op, own.index, bound, key)
    elif not isinstance(own, Call) or own.dtype != _INDEX:
        return
    elif own.op == "abs" and op in ("lt", "le"):
        yield from _solved(op, own.args[0], bound, key)
        yield from _solved(MIRRORED[op], own.args[0], _of("sub", Const(0, _INDEX), _near(bound)), key)
    elif own.op == "sub":
        first, second = own.args
        if isinstance(second, IndexValue) and key not in first.vars():
            far = -_FAR if op in ("lt", "le") else _FAR
            yield from _of_index(MIRRORED[op], second.index, _of("sub", _near(first, far), _near(bound)), key)
        if isinstance(first, IndexValue) and key not in second.vars():
            far = _FAR if op in ("lt", "le") else -_FAR
            yield from _of_index(op, first.index, _of("add", _near(second, far), _near(bound)), key)


def _of_index(op: str, own: Index, bound: Expr, key: Var) -> Iterator[_Side]:
    """Of key + rest and of rest - key."""
    factor = own.coefficient(key)
    rest = own.without(key)
    if factor is not None and factor.constant == 1:
        yield _Side(op, bound if rest.constant == 0 else _of("sub", _near(bound), IndexValue(rest)))
    elif factor is not None and factor.constant == -1:
        yield _Side(MIRRORED[op], _of("sub", IndexValue(rest), _near(bound)))


def _near(value: Expr, low: int = -_FAR) -> Expr:
    """The value, or what compares with the places of keys as it does and can be added to them; `low` of one that is
    far below 0."""
    if isinstance(value, IndexValue) or (isinstance(value, Const) and abs(value.value) <= _FAR):
        return value
    below = Call("lt", (value, Const(-_FAR, _INDEX)), "bool")
    return Call("where", (below, Const(low, _INDEX), _of("minimum", value, Const(_FAR, _INDEX))), _INDEX)


def _of(op: str, a: Expr, b: Expr) -> Expr:
    return Call(op, (a, b), _INDEX)


def _plus_one(value: Expr) -> Expr:
    return _of("add", value, Const(1, _INDEX))
