"""From logits to a token: penalties, bias, temperature, and what is left out of the draw, in transformers' order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .constraints import Constraint
from .options import Options

__all__ = ["Chosen", "Sampler"]

Array = Any  # an array of numpy


class Chosen:
    """A token, and what is known of it.

    Attributes:
        token: its number.
        logprob: the logarithm of its probability by the model's logits; None unless logprobs were asked for.
        top: the likeliest tokens with theirs, the likeliest first.
    """

    __slots__ = ("logprob", "token", "top")

    def __init__(self, token: int, logprob: float | None = None, top: Sequence[tuple[int, float]] = ()) -> None:
        self.token, self.logprob, self.top = token, logprob, tuple(top)

    def __repr__(self) -> str:
        return f"Chosen({self.token})" if self.logprob is None else f"Chosen({self.token}, logprob={self.logprob:.4f})"


class Sampler:
    """Chooses the tokens of one text.

    prompt: numbers of the text's tokens so far; the repetition penalty is for them too. constraint: what says which
        tokens may follow; None: all may.
    """

    def __init__(self, options: Options, prompt: Sequence[int], constraint: Constraint | None = None) -> None:
        self.options, self.constraint = options, constraint
        self.seen = set(prompt)
        self.generated: Counter[int] = Counter()
        self.random = np.random.default_rng(options.seed)
        bias = options.logit_bias or {}
        self.not_first = np.array(options.begin_suppress_tokens, np.int64)
        self.biased = np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)

    def choose(self, logits: Array) -> Chosen:
        """The next token. logits: f32[vocabulary], not changed."""
        changed = self._penalised(logits)
        if self.constraint is not None:
            changed = _masked(changed, logits, self.constraint.allowed())
        token = self._draw(changed)
        self.seen.add(token)
        self.generated[token] += 1
        return self.described(token, logits)

    def _penalised(self, logits: Array) -> Array:
        options, changed = self.options, logits
        if options.repetition_penalty != 1.0:
            changed = changed.copy()
            at = np.fromiter(self.seen, np.int64, len(self.seen))
            penalty = np.float32(options.repetition_penalty)
            changed[at] = np.where(changed[at] < 0, changed[at] * penalty, changed[at] / penalty)
        if self.generated and (options.presence_penalty or options.frequency_penalty):
            changed = changed.copy()
            at = np.fromiter(self.generated, np.int64, len(self.generated))
            counts = np.fromiter(self.generated.values(), np.float32, len(self.generated))
            changed[at] -= np.float32(options.presence_penalty) + np.float32(options.frequency_penalty) * counts
        if len(self.biased[0]):
            changed = changed.copy()
            changed[self.biased[0]] += self.biased[1]
        if len(self.not_first) and not self.generated:
            changed = changed.copy()
            changed[self.not_first] = -np.inf
        return changed

    def _draw(self, logits: Array) -> int:
        options = self.options
        if options.temperature == 0 or options.top_k == 1:
            return int(logits.argmax())
        scores = logits.astype(np.float64) / options.temperature
        tokens = None
        if 0 < options.top_k < len(scores):
            tokens = _likeliest(logits, options.top_k)
            scores = scores[tokens]
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        if options.top_p < 1.0:
            weights = _nucleus(weights, options.top_p)
        if options.min_p > 0.0:
            weights = np.where(weights >= options.min_p * weights.max(), weights, 0.0)
        place = int(np.searchsorted(np.cumsum(weights), self.random.random() * weights.sum(), side="right"))
        place = min(place, int(np.flatnonzero(weights)[-1]))
        return place if tokens is None else int(tokens[place])

    def described(self, token: int, logits: Array) -> Chosen:
        """A token with the log-probabilities that were asked for."""
        count = self.options.logprobs
        if count is None:
            return Chosen(token)
        wide = logits.astype(np.float64)
        high = wide.max()
        total = high + np.log(np.exp(wide - high).sum())
        count = min(count, len(wide))
        order = np.argpartition(-wide, count - 1)[:count] if count else np.zeros(0, np.int64)
        order = order[np.argsort(-wide[order], kind="stable")]
        return Chosen(token, float(wide[token] - total), [(int(i), float(wide[i] - total)) for i in order])


def _masked(changed: Array, logits: Array, allowed: Array) -> Array:
    """The logits of the tokens that are allowed; without penalties and bias where these forbid all of them."""
    masked = np.where(allowed, changed, -np.inf)
    return masked if np.isfinite(masked).any() else np.where(allowed, logits, -np.inf)


def _likeliest(logits: Array, count: int) -> Array:
    """The tokens of the largest logits, in the order of their numbers; of equal ones the first."""
    least = np.partition(logits, -count)[-count]
    above, equal = np.flatnonzero(logits > least), np.flatnonzero(logits == least)
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def _nucleus(weights: Array, most: float) -> Array:
    """The weights of the fewest tokens, the likeliest first, that add up to `most`; those of the others are 0."""
    order = np.argsort(-weights, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept = order[before < most]
    if not len(kept):
        kept = order[:1]
    left = np.zeros_like(weights)
    left[kept] = weights[kept]
    return left
