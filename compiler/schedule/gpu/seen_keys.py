"""Where the keys lie that a mask of an attention shows to a query, by the comparisons in its score.

    where(key <= start + m, score, -inf)    ->      keys from 0 up to start + m
    where(key > m - 24, score, -inf)        ->      keys from m - 23 on

A kernel takes the bounds of all rows of its tile, and reads no block of keys outside of them. What a mask says beside
such comparisons, it goes on saying in the score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.conditions import MIRRORED, conditions, is_low
from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Const, Expr, IndexValue, cast
from ...ir.index import Var, of
from ...ir.plans.gpu import SeenKeys
from ...ir.structured import Attention

_INDEX = "i64"


def seen_keys(node: Attention) -> SeenKeys | None:
    """The bounds in the score of an attention; None where it has none, and of `causal`, which has its own."""
    if node.score is None or node.causal:
        return None
    begins, ends = list[Expr](), list[Expr]()
    past = IndexValue(node.keys)
    for condition in _conditions(node.score):
        for op, bound in _sides(condition, node.key):
            if op in ("le", "eq"):  # one more cannot overflow: no bound lies past the keys
                ends.append(_plus_one(_of("minimum", bound, IndexValue(node.keys - 1))))
            if op == "lt":
                ends.append(_of("minimum", bound, past))
            if op in ("ge", "eq"):
                begins.append(_of("maximum", bound, Const(0, _INDEX)))
            if op == "gt":
                begins.append(_plus_one(_of("maximum", bound, Const(-1, _INDEX))))
    return SeenKeys(tuple(begins), tuple(ends)) if begins or ends else None


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


def _sides(condition: Call, key: Var) -> Sequence[tuple[str, Expr]]:
    """Comparison of the key with a bound, where a side of the condition is the key and the other does not know it."""
    a, b = condition.args
    for op, own, bound in ((condition.op, a, b), (MIRRORED[condition.op], b, a)):
        alone = DTYPES[bound.dtype].kind == "i" and key not in bound.vars()
        if alone and isinstance(own, IndexValue) and own.index == of(key):
            return ((op, cast(bound, _INDEX)),)
    return ()


def _of(op: str, a: Expr, b: Expr) -> Expr:
    return Call(op, (a, b), _INDEX)


def _plus_one(value: Expr) -> Expr:
    return _of("add", value, Const(1, _INDEX))
