"""The loops of attention over blocks of keys: where they begin and end, and how a score is changed in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir.expr import Acc, Expr
from ...ir.plans.gpu import AttentionPlan, GradientPart, SeenKeys
from ...ir.structured import Attention, AttentionGradient
from .attention_rows import QueryRows
from .emit import TritonEmitter, Value
from .matrix import divides, scalar
from .scope import TritonScope


@dataclass(frozen=True)
class RunView:
    """A loop over blocks of keys. edge: keys may lie past the end or, when causal, in the future. score: lines that
    change the score."""

    begin: str
    end: str
    edge: bool
    score: tuple[str, ...]


def runs_of(
    node: Attention | AttentionGradient,
    plan: AttentionPlan | GradientPart,
    ranges: tuple[str, str, str, tuple[str, ...]],
    score: tuple[str, ...],
    lines_of: Callable[[Expr], tuple[str, ...]],
) -> tuple[tuple[RunView, ...], tuple[str, ...]]:
    """The loops over blocks of keys, and lines that compute their ends.

    ranges: as of ranges_of(). lines_of: gives the lines of another score.
    """
    begin, whole, end, lines = ranges
    edge = node.causal or not divides(plan.cut.n, node.keys)
    if plan.seen is None or plan.seen.shown is None:
        runs = [RunView(begin, whole, False, score)]
        return (*runs, *([RunView(whole, end, True, score)] if edge else [])), lines
    n = plan.cut.n
    shown = RunView(begin, "all_end", False, lines_of(plan.seen.shown))
    last = RunView("all_end", end, edge, score)
    to = f"all_end = tl.maximum({{begin}}, tl.minimum({whole}, all_end // {n} * {n}))"
    if not plan.seen.begins:
        return (shown, last), (*lines, to.format(begin=begin))
    up = f"tl.maximum(tl.cdiv(all_begin, {n}) * {n}, {begin})"
    clamped = f"all_begin = tl.minimum({up}, tl.maximum({whole}, {begin}))"
    first = RunView(begin, "all_begin", False, score)
    return (first, replace(shown, begin="all_begin"), last), (*lines, clamped, to.format(begin="all_begin"))


def ranges_of(
    node: Attention | AttentionGradient, plan: AttentionPlan | GradientPart, scope: TritonScope, rows: QueryRows
) -> tuple[str, str, str, tuple[str, ...]]:
    """Where the keys begin, up to where whole blocks go, where they end; and lines that compute that."""
    keys, tile = scalar(scope, node.keys), plan.cut
    n, number = tile.n, node.keys.constant
    whole_keys = str(number // n * n) if number is not None else f"{keys} // {n} * {n}"
    if plan.seen is not None:
        seen = _seen_lines(plan.seen, n, keys, scope, rows)
        if tile.shared:
            share = f"run = tl.cdiv(tl.maximum(end - begin, 0), {tile.split * n}) * {n}"
            ends = ("first = begin + split * run", "last = tl.minimum(first + run, end)")
            return "first", "whole", "last", (*seen, share, *ends, _whole_run(n))
        return "begin", "whole", "end", (*seen, f"whole = tl.minimum(end, {whole_keys})")
    if tile.shared:
        run = (
            str(-(-number // (tile.split * n)) * n)
            if number is not None
            else f"tl.cdiv({keys}, {tile.split * n}) * {n}"
        )
        first = (f"run = {run}", "first = split * run", f"last = tl.minimum(first + run, {keys})")
        return "first", "whole", "last", (*first, "whole = first" if node.causal else _whole_run(n))
    if not node.causal:
        return "0", whole_keys, keys, ()
    if rows.packed:
        return "0", "0", keys, ()
    lines = (
        f"whole = tl.minimum((tile * {tile.m} + 1) // {n} * {n}, {whole_keys})",
        f"end = tl.minimum((tile + 1) * {tile.m}, {keys})",
    )
    return "0", "whole", "end", lines


def _whole_run(n: int) -> str:
    return f"whole = first + tl.maximum(last - first, 0) // {n} * {n}"


def _seen_lines(found: SeenKeys, n: int, keys: str, scope: TritonScope, rows: QueryRows) -> list[str]:
    """begin and end of the blocks of keys that a row of the tile may see, all_begin and all_end of the keys that all
    rows may see, where their score is another one; several conditions hold at once."""
    emit = TritonEmitter(scope, rows.places, {}, stem="bound")
    emit.count_uses([*found.begins, *found.ends])
    begins, ends = ([emit.value(e) for e in bounds] for bounds in (found.begins, found.ends))
    grid = "tl.zeros((1, 1), tl.int64)"  # of what is the same for all rows, too
    lines = [*emit.lines, "begin = 0", f"end = {keys}"]
    lines += [f"begin = tl.maximum(begin, tl.min({text} + {grid}))" for text in begins]
    lines += [f"end = tl.minimum(end, tl.max({text} + {grid}))" for text in ends]
    narrow = "" if scope.wide else ".to(tl.int32)"  # the bounds are i64, and what counts from them is then, too
    if found.shown is not None:
        lines += [*(["all_begin = begin"] if begins else []), "all_end = end"]
        lines += [f"all_begin = tl.maximum(all_begin, tl.max({text} + {grid}))" for text in begins]
        lines += [f"all_end = tl.minimum(all_end, tl.min({text} + {grid}))" for text in ends]
        if begins:
            lines.append(f"all_begin = tl.minimum(all_begin, {keys}){narrow}")
        if ends:
            lines.append(f"all_end = tl.maximum(all_end, 0){narrow}")
    if begins:
        lines.append(f"begin = tl.minimum(begin, {keys}){narrow} // {n} * {n}")
    if ends:
        lines.append(f"end = tl.minimum(tl.cdiv(tl.maximum(end, 0){narrow}, {n}) * {n}, {keys})")
    return lines


def dropout_lines(node: Attention | AttentionGradient, scope: TritonScope, rows: QueryRows) -> tuple[str, ...]:
    """Lines that compute what weights are multiplied with, in terms of b, h, m and n."""
    if node.dropout is None:
        return ()
    emit = TritonEmitter(scope, rows.places, {}, stem="drop")
    emit.count_uses([node.dropout])
    value = emit.value(node.dropout)
    return (*emit.lines, f"dropout = {value}")


def score_lines(score: Expr | None, scope: TritonScope, rows: QueryRows) -> tuple[str, ...]:
    """Lines that change a score, in terms of b, h, m and n."""
    if score is None or isinstance(score, Acc):
        return ()
    emit = TritonEmitter(scope, rows.places, {}, {"score": Value("score", ("m", "n"))})
    emit.count_uses([score])
    value = emit.value(score)
    return (*emit.lines, f"score = {value}")
