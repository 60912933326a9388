"""Texts through a package's entry points: each has a row of the cache, new ones enter while others go on.

A round reads one piece of a prompt, if one waits, then takes a token more of every text that has been read: a long
prompt does not hold up the others for longer than a piece of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .constraints import Constraint
from .drafting import Drafter
from .options import Options
from .sampling import Chosen, Sampler

__all__ = ["Engine", "Text"]


class Text:
    """A text that is generated.

    Attributes:
        prompt: numbers of the tokens that were given.
        chosen: what was generated, the token that ended it not included.
        finish: None while it goes on, then "stop" (an end token), "length" or "cancelled".
        source: what it answers, of models with an encoder.
        drafter: what guesses its tokens for the model to check.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        options: Options,
        ends: frozenset[int],
        source: Any = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.prompt, self.options, self.ends, self.source = list(prompt), options, ends, source
        self.sampler = Sampler(options, self.prompt, constraint)
        self.chosen: list[Chosen] = []
        self.finish: str | None = None
        self.read = 0  # tokens of the prompt that the cache holds
        self.drafter: Drafter | None = None
        self.checks = self.drafted = self.accepted = 0  # calls that checked guesses, guesses, those that held

    @property
    def tokens(self) -> list[int]:
        """The numbers of the tokens that were chosen so far."""
        return [chosen.token for chosen in self.chosen]

    @property
    def given(self) -> list[int]:
        """The tokens that the caller gave: of the source, or else of the prompt."""
        return self.source if isinstance(self.source, list) else self.prompt

    def take(self, logits: Any, length: int) -> Chosen | None:
        """Chooses the next token; None when it ends the text."""
        chosen = self.sampler.choose(logits)
        constraint = self.sampler.constraint
        part = constraint is None or constraint.take(chosen.token)
        if chosen.token in self.ends or not part:
            self.finish = "stop"
            return None
        self.chosen.append(chosen)
        most = self.options.max_new_tokens
        if len(self.chosen) == most or len(self.prompt) + len(self.chosen) >= length:
            self.finish = "length"
        if constraint is not None and constraint.ended:
            self.finish = "stop"
        return chosen


class Engine:
    """Runs texts on one state of a package.

    A text enters by `add` and waits for a free row of the cache. `step` is one round. Not for several threads at once.

    reuse: whether a text takes over what a free row holds of its beginning, as a conversation that goes on does; not of
        models with states of a recurrence, which cannot go back.
    """

    def __init__(self, model: Any, task: Mapping[str, Any], reuse: bool = False) -> None:
        self.length, self.chunk, self.reuse = (
            int(task["length"]),
            int(task["chunk"]),
            reuse and not task.get("recurrent"),
        )
        self.vocabulary = int(task["vocabulary"])
        self.back = int(task.get("back", self.length))  # tokens that a row can go back: rings hold a window
        self.fixed = bool(task.get("recurrent"))  # prompts are read in whole pieces, and what is left token by token
        self.state = model.new_state()
        self.prefill, self.decode = model.entry("prefill"), model.entry("decode")
        self.checked = int(task.get("draft_tokens", 0))  # tokens that a call checks at most
        self.verify = model.entry("verify") if self.checked else None
        self.rows: list[Text | None] = [None] * int(task["texts"])
        self.filled: list[list[int]] = [[] for _ in self.rows]  # tokens that each row of the cache holds
        self.waiting: deque[Text] = deque()
        self._order = [0] * len(self.rows)  # when each row's text entered
        self._entered = 0

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Raises InputError for a prompt that cannot be continued."""
        if not len(prompt):
            raise InputError("the prompt is empty, and the model has no token to begin with")
        if len(prompt) >= self.length:
            raise InputError(
                f"the prompt has {len(prompt)} tokens; the package holds {self.length}, prompt and answer together",
                hint="Shorten it, or compile with a larger --max-length.",
            )
        self.check_tokens(prompt)

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raises InputError for a number that is no token."""
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                raise InputError(f"{token} is no token; they are numbered from 0 to {self.vocabulary - 1}")

    def check(self, text: Text) -> None:
        """Raises InputError for a text that cannot be generated."""
        if text.drafter is not None and self.verify is None:
            raise InputError(
                "the package has no function that checks guesses",
                hint="Compile it with --draft-tokens 8 (draft_tokens=8 in Python).",
            )
        self.check_prompt(text.prompt)

    def add(self, text: Text) -> None:
        """Raises InputError when the prompt is empty or too long."""
        self.check(text)
        self.waiting.append(text)

    def cancel(self, text: Text) -> None:
        """Ends a text; its row is free afterwards."""
        if text.finish is None:
            text.finish = "cancelled"
        if text in self.waiting:
            self.waiting.remove(text)
        self._leave(text)

    def cancel_all(self) -> None:
        for text in [*self.waiting, *(text for text in self.rows if text is not None)]:
            self.cancel(text)

    @property
    def places(self) -> int:
        """How many texts run at once at most."""
        return len(self.rows)

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(text is not None for text in self.rows)

    def step(self) -> Iterator[tuple[Text, Chosen | None]]:
        """One round: gives the texts that went on with their tokens, None for a text that ended without one."""
        self._admit()
        decoding = [text is not None and text.read == len(text.prompt) for text in self.rows]
        reading = [i for i, text in enumerate(self.rows) if text is not None and not decoding[i]]
        guesses = {i: guess for i, on in enumerate(decoding) if on and (guess := self._guessed(i))}
        for row, guess in guesses.items():
            yield from self._check(row, guess)
            decoding[row] = False
        results: list[tuple[Text, Chosen | None]] = []
        if reading:
            results += self._read(min(reading, key=lambda i: self._order[i]))
        if any(decoding):
            results += self._go_on(decoding)
        for text, _ in results:
            if text.finish is not None:
                self._leave(text)
        yield from results

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Gives free rows to those that wait, in their order."""
        free = [i for i, text in enumerate(self.rows) if text is None]
        while free and self.waiting:
            text = self.waiting.popleft()
            row = max(free, key=lambda i: (self._shared(i, text), -i)) if self.reuse else free[0]
            free.remove(row)
            text.read = self._shared(row, text) if self.reuse else 0
            del self.filled[row][text.read :]
            self.rows[row] = text
            self._entered += 1
            self._order[row] = self._entered

    def _shared(self, row: int, text: Text) -> int:
        """How many tokens of a prompt a row holds already; the last one is always read, for its logits."""
        most = min(len(self.filled[row]), len(text.prompt) - 1)
        held = self.filled[row]
        same = next((i for i in range(most) if held[i] != text.prompt[i]), most)
        return same if len(held) - same <= self.back else 0

    def _leave(self, text: Text) -> None:
        for row, other in enumerate(self.rows):
            if other is text:
                self.rows[row] = None
                if not self.reuse:
                    self.filled[row] = []

    # -- what other kinds of models need beside it -------------------------------------------------------------------

    def _enter(self, row: int, text: Text) -> None:
        """Before the first piece of a text's prompt is read into a row."""

    def _more(self, rows: Sequence[int], piece: tuple[int, int] | None = None) -> list[Any]:
        """Further inputs of a call on these rows. piece: where in its prompt the tokens lie that are read, the first
        and how many; None: each row gets a token more."""
        return []

    # -- calls --------------------------------------------------------------------------------------------------------

    def _read(self, row: int) -> list[tuple[Text, Chosen | None]]:
        """Reads a piece of the prompt in this row; behind its last piece comes the first token."""
        text = self.rows[row]
        assert text is not None
        if text.read == 0:
            self._enter(row, text)
        piece = text.prompt[text.read : text.read + self.chunk]
        entry = self.prefill
        if self.fixed and len(piece) < self.chunk:
            piece, entry = piece[:1], self.decode
        inputs = [np.array([piece], np.int64), np.array([text.read], np.int64)]
        if len(self.rows) > 1:
            inputs.append(np.array([row], np.int64))
        logits = entry(*inputs, *self._more([row], (text.read, len(piece))), state=self.state)
        text.read += len(piece)
        self.filled[row] += piece
        if text.read < len(text.prompt):
            return []
        return [(text, text.take(np.asarray(logits)[0], self.length))]

    def _guessed(self, row: int) -> list[int]:
        """What may follow the last token of this row's text."""
        text = self.rows[row]
        if text is None or text.drafter is None:
            return []
        room = min(self.checked, self.length - len(self.filled[row])) - 1
        if text.options.max_new_tokens is not None:
            room = min(room, text.options.max_new_tokens - len(text.chosen) - 1)
        if room < 1:
            return []
        return [t for t in text.drafter.propose(text.prompt + text.tokens, room) if t < self.vocabulary]

    def _check(self, row: int, guess: Sequence[int]) -> Iterator[tuple[Text, Chosen | None]]:
        """Reads the text's last token and what may follow it in one call; gives the tokens that are chosen, up to the
        first that was guessed wrongly."""
        text = self.rows[row]
        assert text is not None
        assert self.verify is not None
        tokens = [text.chosen[-1].token, *guess]
        inputs = [np.array([tokens], np.int64), np.array([len(self.filled[row])], np.int64)]
        if len(self.rows) > 1:
            inputs.append(np.array([row], np.int64))
        logits = np.asarray(self.verify(*inputs, *self._more([row]), state=self.state))
        text.checks += 1
        text.drafted += len(guess)
        for i, token in enumerate(tokens):
            self.filled[row].append(token)
            chosen = text.take(logits[i], self.length)
            held = chosen is not None and i < len(guess) and chosen.token == guess[i]
            text.accepted += held
            if text.finish is not None:
                self._leave(text)
            yield text, chosen
            if not held or text.finish is not None:
                return

    def _go_on(self, decoding: Sequence[bool]) -> list[tuple[Text, Chosen | None]]:
        """A token more for the rows that have been read. Free rows between them get a token that nobody reads; of
        models with states of a recurrence, which that would change, the call names the rows."""
        if self.fixed:
            rows = [i for i, on in enumerate(decoding) if on]
        else:
            rows = list(range(max(i for i, on in enumerate(decoding) if on) + 1))
        tokens, start = np.zeros((len(rows), 1), np.int64), np.zeros(len(rows), np.int64)
        for at, i in enumerate(rows):
            text = self.rows[i]
            if text is not None and decoding[i]:
                tokens[at, 0] = text.chosen[-1].token
                start[at] = len(self.filled[i])
            else:
                start[at] = min(len(self.filled[i]), self.length - 1)
        named = [np.array(rows, np.int64)] if self.fixed and len(self.rows) > 1 else []
        logits = np.asarray(self.decode(tokens, start, *named, *self._more(rows), state=self.state))
        found: list[tuple[Text, Chosen | None]] = []
        for at, i in enumerate(rows):
            text = self.rows[i]
            if text is not None and decoding[i]:
                self.filled[i].append(int(tokens[at, 0]))
                found.append((text, text.take(logits[at], self.length)))
        return found
