"""`Model.transcribe`: the text of sound, by windows of the length that the model reads."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from .options import Options
from .sampling import Chosen
from .sources import SourceEngine, SourceGenerator
from .texts import TextStream

__all__ = ["Transcriber", "Transcript"]

#: samples of the widths of a WAV file: bytes -> dtype and what is one
_WIDTHS = {1: ("u1", 128.0), 2: ("<i2", 32768.0), 4: ("<i4", 2147483648.0)}


class Transcriber(SourceGenerator):
    """Writes down speech with a package; for any number of threads."""

    def __init__(self, model: Any, task: Mapping[str, Any], read: Any) -> None:
        super().__init__(model, task, read)
        about = task["source"]
        self.samples, self.rate = int(about["samples"]), int(about["rate"])
        self.shape: tuple[int, int] = tuple(about["shape"])
        self._features = model.entry("features")

    def text(self, prompt: Any, options: Options) -> Any:
        raise InputError("the package writes down speech", hint="Use transcribe with samples.")

    def transcribe(self, audio: Any, language: str | None, task: str | None, given: Mapping[str, Any]) -> Transcript:
        """The text of sound: samples, features, or the path of a WAV file."""
        options = self.options(given)
        if task is not None and task not in self._beginning.get("task_to_id", {}):
            known = ", ".join(self._beginning.get("task_to_id", {})) or "none"
            raise InputError(f"the model has no task {task!r}", hint=f"It has: {known}.")
        spoken = None if language is None else self.language_token(language)
        return Transcript(self, self.windows(audio), spoken, task, options)

    def windows(self, audio: Any) -> list[Any]:
        """Features f32[bands, frames] of each window of sound."""
        if isinstance(audio, str) or hasattr(audio, "__fspath__"):
            audio = _read_wave(audio, self.rate)
        given = np.asarray(audio)
        if given.ndim == 2 and given.shape == self.shape:
            return [np.ascontiguousarray(given, np.float32)]
        if given.ndim != 1 or not len(given):
            raise InputError(
                f"sound is samples[count] at {self.rate} Hz or features[{self.shape[0]}, {self.shape[1]}], "
                f"not an array of shape {list(given.shape)}"
            )
        if given.dtype.kind in "iu":
            kinds = {np.dtype(kind): one for kind, one in _WIDTHS.values()}
            if given.dtype not in kinds or given.dtype == np.uint8:
                raise InputError(f"samples are floats from -1 to 1, int16 or int32, not {given.dtype}")
            given = given.astype(np.float32) / np.float32(kinds[given.dtype])
        given = given.astype(np.float32)
        if not np.isfinite(given).all():
            raise InputError("the samples hold NaN or infinities")
        pieces = [given[first : first + self.samples] for first in range(0, len(given), self.samples)]
        whole = [np.pad(piece, (0, self.samples - len(piece))) for piece in pieces]
        return [np.array(self._features(piece)) for piece in whole]

    def language_token(self, language: str) -> int:
        """The number of a language's token, by its code ("en") or its token ("<|en|>")."""
        known = self._beginning.get("lang_to_id", {})
        for word in (language, f"<|{language.lower()}|>"):
            if word in known:
                return int(known[word])
        codes = ", ".join(sorted(name.strip("<|>") for name in known)) or "one language alone"
        raise InputError(f"the model does not know the language {language!r}", hint=f"It knows: {codes}.")

    def language_of(self, features: Any) -> int | None:
        """The token of the language that is spoken; None of a model of one language."""
        numbers = [int(token) for token in self._beginning.get("lang_to_id", {}).values()]
        if not numbers:
            return None
        with self.engine() as engine:
            assert isinstance(engine, SourceEngine)
            start = [int(self._beginning["decoder_start_token_id"])]
            logits = engine.logits(self.answer(features, start, self.options({})))
        return max(numbers, key=lambda token: float(logits[token]))

    def language_name(self, token: int | None) -> str | None:
        """The code of a language's token."""
        names = {int(number): name for name, number in self._beginning.get("lang_to_id", {}).items()}
        return None if token is None else names[token].strip("<|>")

    def begin(self, language: int | None, task: str | None) -> list[int]:
        """The tokens that an answer begins with."""
        row = self._beginning
        begin = [int(row["decoder_start_token_id"])]
        if language is not None:
            begin.append(language)
        elif "lang_to_id" not in row:
            begin += [int(token) for _, token in sorted(row.get("forced_decoder_ids", ())) if token is not None]
        if "task_to_id" in row:
            begin.append(int(row["task_to_id"][task or row.get("task") or "transcribe"]))
        silent = row.get("no_timestamps_token_id")
        if silent is not None and begin[-1] != int(silent):
            begin.append(int(silent))
        return begin


class Transcript:
    """The text of sound, piece by piece: iterate over it. The pieces joined are the text.

    Attributes:
        language: the code of the language that is spoken, once the first window is read; None of a model of one alone.
        tokens, chosen: what was generated so far.
        finish_reason: None while it goes on, then "stop", or "length" when a window's text had no end.
    """

    def __init__(
        self, transcriber: Transcriber, windows: list[Any], language: int | None, task: str | None, options: Options
    ) -> None:
        self._transcriber, self._options, self._task = transcriber, options, task
        self._language = language
        self._windows = windows
        self._done: list[TextStream] = []
        self._pieces = self._run()

    def _run(self) -> Iterator[str]:
        made = self._transcriber
        for features in self._windows:
            if self._language is None:
                self._language = made.language_of(features)
            answer = made.answer(features, made.begin(self._language, self._task), self._options)
            stream = TextStream(made, answer)
            self._done.append(stream)
            yield from stream

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def text(self) -> str:
        """All that is left of it, as one text."""
        return "".join(self)

    @property
    def language(self) -> str | None:
        """The code of the language that is spoken; None: the model knows one alone."""
        return self._transcriber.language_name(self._language)

    @property
    def chosen(self) -> list[Chosen]:
        """What was chosen so far, token by token, with probabilities where they were asked for."""
        return [chosen for stream in self._done for chosen in stream.chosen]

    @property
    def tokens(self) -> list[int]:
        """The numbers of the tokens that were chosen so far."""
        return [chosen.token for chosen in self.chosen]

    @property
    def finish_reason(self) -> str | None:
        """Why it ended: "stop" or "length"; None: it goes on."""
        reasons = [stream.finish_reason for stream in self._done]
        if len(reasons) < len(self._windows) or None in reasons:
            return None
        return "length" if "length" in reasons else "stop"


def _read_wave(path: Any, rate: int) -> Any:
    """f32[samples] of a WAV file, the mean of its channels."""
    try:
        with wave.open(str(path), "rb") as file:
            about, data = file.getparams(), file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise InputError(f"cannot read '{path}' as a WAV file: {error}") from None
    if about.framerate != rate:
        raise InputError(
            f"'{path}' has {about.framerate} samples a second; the model takes {rate}",
            hint=f"Convert it: ffmpeg -i {path} -ar {rate} -ac 1 out.wav",
        )
    if about.sampwidth not in _WIDTHS:
        raise InputError(f"'{path}' has samples of {8 * about.sampwidth} bits; 8, 16 and 32 are taken")
    kind, one = _WIDTHS[about.sampwidth]
    values = np.frombuffer(data, kind).astype(np.float32)
    values = (values - one) / one if about.sampwidth == 1 else values / np.float32(one)
    return values.reshape(-1, about.nchannels).mean(1)
