"""What `Model.generate` and its kin do: texts in, texts out, over an engine for each call."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import Error, InputError, LoadError
from .constraints import Constraint, Constraints
from .drafting import make_drafter
from .engine import Engine, Text
from .options import Options, read_options
from .sampling import Chosen
from .scheduler import Scheduler, is_native
from .stream import Detokenizer, StopTexts
from .tokenizer import Tokenizer

__all__ = ["Generator", "TextStream", "TokenStream", "Writer", "drafted", "template_values", "token_numbers"]

AnyEngine = Engine | Scheduler
#: states that a model keeps for the next call
_KEPT = 2
#: the task of a package -> the module beside this one, and its class
_CLASSES = {
    "automatic-speech-recognition": ("speech", "Transcriber"),
    "image-text-to-text": ("seen", "SeenGenerator"),
    "text-generation": ("texts", "Generator"),
    "text2text-generation": ("sources", "SourceGenerator"),
}


class Generator:
    """Generates texts with a package; for any number of threads, which take a state of the package each.

    task: the manifest's row. read: name of a file of the task -> its bytes.
    """

    engine_class = Engine

    def __init__(self, model: Any, task: Mapping[str, Any], read: Callable[[str], bytes | None]) -> None:
        self._model, self._task, self._read = model, task, read
        self._settings: Mapping[str, Any] = task.get("settings", {})
        self._engines: list[AnyEngine] = []
        self._lock = threading.Lock()
        self._tokenizer: Tokenizer | None = None
        self._constraints: Constraints | None = None
        ends = self._settings.get("eos_token_id", ())
        self._ends = frozenset([ends] if isinstance(ends, int) else ends)
        self.length, self.vocabulary = int(task["length"]), int(task["vocabulary"])

    @property
    def most_read(self) -> int:
        """How many tokens of a prompt the package takes at most."""
        return self.length

    @property
    def tokenizer(self) -> Tokenizer:
        """The package's. Raises InputError when it has none."""
        if self._tokenizer is None:
            data, template = self._read("tokenizer.json"), self._read("chat_template.jinja")
            if data is None:
                raise InputError(
                    "the package has no tokenizer", hint="Use generate_tokens, which takes and gives numbers of tokens."
                )
            text = None if template is None else template.decode()
            self._tokenizer = Tokenizer(data, text, self._task.get("special_tokens", {}))
        return self._tokenizer

    def options(self, given: Mapping[str, Any]) -> Options:
        """The checked options of a text. Raises InputError for one that is unknown or wrong."""
        return read_options(self._settings, given, self.vocabulary)

    def text(self, prompt: Sequence[int], options: Options) -> Text:
        """A text to be given to an engine."""
        tokens = token_numbers(prompt)
        if not tokens and "bos_token_id" in self._settings:
            tokens = [int(self._settings["bos_token_id"])]
        return self.made(tokens, options)

    def made(self, tokens: Sequence[int], options: Options, source: Any = None) -> Text:
        """A text that begins with some tokens, with what ends it and the form that it has."""
        return Text(tokens, options, self.ends(options), source, self._constraint(options))

    def _constraint(self, options: Options) -> Constraint | None:
        if options.json_schema is None and options.grammar is None and options.regex is None:
            return None
        if self._constraints is None:
            data = self._read("tokenizer.json")
            if data is None:
                raise InputError("json_schema, grammar and regex need a tokenizer, and the package has none")
            self._constraints = Constraints(data, self.vocabulary, sorted(self._ends))
        return self._constraints.of(options)

    def ends(self, options: Options) -> frozenset[int]:
        """The tokens that end a text."""
        return frozenset(options.stop_tokens) | (frozenset() if options.ignore_eos else self._ends)

    def tokens(self, prompt: Sequence[int], given: Mapping[str, Any], draft: Any = None) -> TokenStream:
        """A stream of the tokens that follow those of a prompt. Raises InputError for a wrong option or prompt."""
        options = self.options(given)
        if options.stop:
            raise InputError("stop is for texts; tokens end at stop_tokens")
        return TokenStream(self, drafted(self.text(prompt, options), draft))

    def stream(self, prompt: str | Sequence[int], given: Mapping[str, Any], draft: Any = None) -> TextStream:
        """A stream of the text that follows a prompt. Raises InputError for a wrong option or prompt."""
        options = self.options(given)
        return TextStream(self, drafted(self.text(self.encoded(prompt), options), draft))

    def batch(self, prompts: Sequence[str | Sequence[int]], given: Mapping[str, Any], draft: Any = None) -> list[str]:
        """The texts that follow several prompts, generated side by side."""
        if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
            raise InputError("generate_batch takes several prompts, in a list; generate takes one")
        prompts = list(prompts)
        options = self.options(given)
        texts = [drafted(self.text(self.encoded(prompt), options), draft) for prompt in prompts]
        writers = {id(text): Writer(self.tokenizer, text) for text in texts}
        pieces: dict[int, list[str]] = {id(text): [] for text in texts}
        with self.engine() as engine:
            for text in texts:
                engine.check(text)
            for text in texts:
                engine.add(text)
            while engine.busy:
                for text, chosen in engine.step():
                    pieces[id(text)].append(writers[id(text)].add(chosen, text.finish))
                    if writers[id(text)].stopped and text.finish is None:
                        engine.cancel(text)
                        text.finish = "stop"
        return ["".join(pieces[id(text)]) for text in texts]

    def chat(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any], draft: Any = None) -> TextStream:
        """A stream of the answer to messages, by the chat template. Raises InputError as `stream`."""
        values, options = template_values(given)
        prompt = self.chat_tokens(messages, values)
        return TextStream(self, drafted(self.text(prompt, self.options(options)), draft))

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> list[int]:
        """The tokens of the prompt that the chat template makes of messages. values: what else it may use."""
        return self.tokenizer.encode(self.tokenizer.chat(messages, values), special=False, bound=self.most_read)

    def encoded(self, prompt: str | Sequence[int]) -> Sequence[int]:
        """The tokens of a prompt, a text or tokens already."""
        return self.tokenizer.encode(prompt, bound=self.most_read) if isinstance(prompt, str) else prompt

    def engine(self, reuse: bool = False) -> _Lent:
        """An engine for a `with`; it is kept for the next call when nothing went wrong."""
        return _Lent(self, reuse)

    def take(self, reuse: bool) -> AnyEngine:
        """An engine that nobody else uses: one that was given back, or a new one. reuse: with a kept prefix."""
        with self._lock:
            fitting = [engine for engine in self._engines if engine.reuse == reuse]
            if fitting:
                self._engines.remove(fitting[-1])
                return fitting[-1]
        return self.new_engine(reuse)

    def new_engine(self, reuse: bool) -> AnyEngine:
        """An engine that nobody else has: the native one for what it can do."""
        if is_native(self._model, self._task):
            return Scheduler(self._model, self._task, reuse)
        return self.engine_class(self._model, self._task, reuse)

    def give_back(self, engine: AnyEngine) -> None:
        """Keeps an engine for the next text, unless enough are kept."""
        with self._lock:
            if len(self._engines) < _KEPT:
                self._engines.append(engine)


class _Lent:
    def __init__(self, generator: Generator, reuse: bool) -> None:
        self._generator, self._reuse = generator, reuse

    def __enter__(self) -> AnyEngine:
        self._engine = self._generator.take(self._reuse)
        return self._engine

    def __exit__(self, kind: Any, *_: Any) -> None:
        """After an error of a call the cache may hold anything: the engine goes."""
        if kind is None or issubclass(kind, GeneratorExit | InputError):
            self._engine.cancel_all()
            self._generator.give_back(self._engine)


class TokenStream:
    """The tokens that follow a prompt, as they are chosen: iterate over it.

    Attributes:
        chosen: those so far, with their log-probabilities where these were asked for.
        tokens: their numbers.
        finish_reason: None while it goes on, then "stop" or "length".
        statistics: of speculative decoding.
    """

    def __init__(self, generator: Generator, text: Text) -> None:
        self._text = text
        with generator.engine() as engine:  # refuses a prompt before the first token is asked for
            engine.check(text)
        self._chosen = _chosen(generator, text)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        for chosen in self._chosen:
            if chosen is not None:
                return chosen.token
        raise StopIteration

    @property
    def chosen(self) -> list[Chosen]:
        """What was chosen so far, token by token, with probabilities where they were asked for."""
        return list(self._text.chosen)

    @property
    def tokens(self) -> list[int]:
        """The numbers of the tokens that were chosen so far."""
        return self._text.tokens

    @property
    def finish_reason(self) -> str | None:
        """Why it ended: "stop" or "length"; None: it goes on."""
        return self._text.finish

    @property
    def statistics(self) -> dict[str, Any]:
        """Of the guesses of a draft: `drafted` tokens, `accepted` ones, the `rate` of these, and `checks`, the calls
        that checked them; `tokens`, all that were generated."""
        text = self._text
        rate = text.accepted / text.drafted if text.drafted else 0.0
        return {
            "tokens": len(text.chosen), "drafted": text.drafted, "accepted": text.accepted, "rate": rate,
            "checks": text.checks,
        }  # fmt: skip


class TextStream:
    """The text that follows a prompt, piece by piece as it is generated: iterate over it. The pieces joined are it.

    Attributes:
        tokens, chosen, finish_reason, statistics: as of TokenStream.
        prompt_tokens: numbers of the prompt's tokens.
    """

    def __init__(self, generator: Generator, text: Text) -> None:
        self._stream = TokenStream(generator, text)
        self._text = text
        self._writer = Writer(generator.tokenizer, text)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._writer.ended:
            token = next(self._stream, None)
            piece = self._writer.add(None if token is None else self._text.chosen[-1], self._text.finish)
            if self._writer.stopped:
                self._stream._chosen.close()
                self._text.finish = "stop"
            if piece:
                return piece
        raise StopIteration

    def text(self) -> str:
        """All that is left of it, as one text."""
        return "".join(self)

    @property
    def chosen(self) -> list[Chosen]:
        """What was chosen so far, token by token, with probabilities where they were asked for."""
        return self._stream.chosen

    @property
    def tokens(self) -> list[int]:
        """The numbers of the tokens that were chosen so far."""
        return self._stream.tokens

    @property
    def prompt_tokens(self) -> list[int]:
        """The numbers of the prompt's tokens."""
        return list(self._text.given)

    @property
    def finish_reason(self) -> str | None:
        """Why it ended: "stop" or "length"; None: it goes on."""
        return self._stream.finish_reason

    @property
    def statistics(self) -> dict[str, Any]:
        """Counts and times of the text: see TokenStream."""
        return self._stream.statistics


class Writer:
    """Makes pieces of text of a text's tokens. ended: nothing follows; stopped: a stop text was found."""

    def __init__(self, tokenizer: Tokenizer, text: Text) -> None:
        self._detokenizer = Detokenizer(tokenizer, text.prompt)
        self._stops = StopTexts(text.options.stop)
        self.ended = False

    @property
    def stopped(self) -> bool:
        """Whether one of the texts to stop at has come."""
        return self._stops.found

    def add(self, chosen: Chosen | None, finish: str | None) -> str:
        """The piece that a token makes known, None for no token; with the last one, which has a reason to finish, all
        that is left."""
        if self.ended:
            return ""
        piece = "" if chosen is None else self._stops.add(self._detokenizer.add(chosen.token))
        if finish is not None and not self._stops.found:
            piece += self._stops.add(self._detokenizer.end())
            piece += "" if self._stops.found else self._stops.end()
        self.ended = self._stops.found or finish is not None
        return piece


def template_values(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What a chat's template gets beside the messages (`chat_template_kwargs`), and the call's other options."""
    options = dict(given)
    values = options.pop("chat_template_kwargs", None)
    if values is not None and not (isinstance(values, Mapping) and all(isinstance(name, str) for name in values)):
        raise InputError(f"chat_template_kwargs has to be a dict of names and values, not {values!r}")
    return values or {}, options


def token_numbers(prompt: Any) -> list[int]:
    """The numbers of a prompt's tokens. Raises InputError for what is no sequence of whole numbers."""
    try:
        if isinstance(prompt, bytes | bytearray):
            raise TypeError
        return [operator.index(token) for token in prompt]
    except TypeError:
        raise InputError("a prompt is a text, or a list of whole numbers, those of its tokens") from None


def drafted(text: Text, draft: Any) -> Text:
    """The text with what guesses its tokens."""
    text.drafter = make_drafter(draft)
    return text


def _chosen(generator: Generator, text: Text) -> Any:
    """The tokens of one text, None for its end; the engine is lent while they are asked for."""
    with generator.engine() as engine:
        engine.add(text)
        while engine.busy:
            for _, chosen in engine.step():
                yield chosen


def generator_of(model: Any, task: Mapping[str, Any] | None, read: Callable[[str], bytes | None]) -> Generator:
    """Raises InputError for a package that was not compiled for text, LoadError for one whose row is not whole."""
    name = (task or {}).get("name")
    if not task or name not in _CLASSES:
        raise InputError(
            "the package does not generate text",
            hint="Compile a model's folder: mycc compile DIR --task text-generation --out text.pkg",
        )
    if task.get("format", 1) != 1:
        raise LoadError(f"the package's text generation has format {task.get('format')}, which this mycc does not know")
    try:
        found = getattr(import_module(f".{_CLASSES[name][0]}", __package__), _CLASSES[name][1])
        return found(model, task, read)
    except Error:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LoadError(f"what the package says of its text generation is not whole: {error!r}") from None
