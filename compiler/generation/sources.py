"""`mycc.compile_text2text` and `mycc.compile_speech`: encoder-decoders, of texts and of sound."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from ...arguments import QuantizedArguments
from ...runtime.errors import CompileError
from ..api import check_out, observers_of, require_torch, run_request
from ..faults import reporting_faults
from ..observe import Observer
from ..options import CompileOptions
from ..request import Task
from ..signatures import takes
from .common import load_model, positive, task_request
from .compile import dynamic_most, task_of
from .folder import Folder, read_json
from .network import require_transformers

__all__ = ["compile_speech", "compile_text2text"]

#: tokens that one call of the decoder reads at most
CHUNK = 64
#: tokens of a source and of an answer, where the model knows no limit
LENGTH = 512


@dataclass(frozen=True)
class _Source:
    """What an encoder takes.

    Attributes:
        example: one source.
        length: positions that the encoder gives at most.
        fixed: whether it always gives so many.
        size: the name and the most of the example's size that changes from source to source, which is its last.
        entries: further entry points of the package.
        facts: what the manifest says of it.
    """

    example: Any
    length: int
    fixed: bool
    size: tuple[str, int] | None
    entries: dict[str, Any]
    facts: dict[str, Any]


@takes(QuantizedArguments)
def compile_text2text(
    model: Any,
    *,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_source_length: int | None = None,
    max_batch: int = 1,
    tokenizer: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[QuantizedArguments],
) -> Path:
    """Compiles an encoder-decoder of texts (T5, BART, Marian) to a package: `generate` answers a text with a text.

    Args:
        model: a local folder in Hugging Face's form, or such a model of transformers.
        out: the file to write. It appears whole or not at all.
        max_length: tokens of an answer; None: what the model was made for, at most 512.
        max_source_length: tokens of a text that is answered; None: as max_length.
        max_batch: texts that are answered at once.
        tokenizer: a tokenizer.json, for a model that is not a folder.
        name, progress: as in mycc.compile. observers: more of them.
        **options: QuantizedArguments of arguments.py.

    Raises:
        CompileError: the folder is not whole, the architecture is not taken, or an option is wrong.
    """

    def source(network: Any, _: Folder | None, length: int) -> _Source:
        most = _length(network, max_source_length, "max_source_length") if max_source_length else length
        example = _tokens(network, (1, min(8, most)))
        return _Source(example, most, False, ("count", most), {}, {"kind": "text"})

    made = _Made("AutoModelForSeq2SeqLM", "text2text-generation", source, max_length, max_batch, tokenizer)
    return _compile(model, made, out, name, progress, observers, options)


@takes(QuantizedArguments)
def compile_speech(
    model: Any,
    *,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_batch: int = 1,
    tokenizer: str | os.PathLike[str] | None = None,
    features: Any = None,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[QuantizedArguments],
) -> Path:
    """Compiles a model of speech (Whisper) to a package: `transcribe` gives the text of samples.

    The package computes the features itself, from samples at the rate that preprocessor_config.json names.

    Args:
        model: a local folder in Hugging Face's form, or such a model of transformers.
        out: the file to write. It appears whole or not at all.
        max_length: tokens of a window's text; None: what the model was made for.
        max_batch: windows that are written down at once.
        tokenizer: a tokenizer.json, for a model that is not a folder.
        features: what preprocessor_config.json says, for a model that is not a folder.
        name, progress: as in mycc.compile. observers: more of them.
        **options: QuantizedArguments of arguments.py.

    Raises:
        CompileError: the folder is not whole, the architecture is not taken, or an option is wrong.
    """

    def source(network: Any, folder: Folder | None, _: int) -> _Source:
        import torch

        from .speech_features import SpeechFeatures

        given = features
        if folder is not None and (folder.path / "preprocessor_config.json").is_file():
            given = read_json(folder.path / "preprocessor_config.json")
        config = network.config
        mels, positions = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
        if mels is None or positions is None:
            raise CompileError(f"{type(network).__name__} does not take the features of Whisper")
        made = SpeechFeatures.of(given or {}, mels, 2 * positions)
        samples = torch.randn(made.samples, generator=torch.Generator().manual_seed(0)) * 0.1
        facts = {"kind": "speech", "samples": made.samples, "rate": made.rate, "shape": [mels, 2 * positions]}
        example = made(samples)[None]
        return _Source(example, positions, True, None, {"features": (made, (samples,))}, facts)

    made = _Made("AutoModelForSpeechSeq2Seq", "automatic-speech-recognition", source, max_length, max_batch, tokenizer)
    return _compile(model, made, out, name, progress, observers, options)


@dataclass(frozen=True)
class _Made:
    """What differs between the tasks: who loads the network, what its source is, and the arguments."""

    loader: str
    task: str
    source: Any
    max_length: int | None
    max_batch: int
    tokenizer: str | os.PathLike[str] | None


def _compile(
    model: Any,
    made: _Made,
    out: str | os.PathLike[str],
    name: str | None,
    progress: bool | Observer | None,
    observers: Sequence[Observer],
    options: QuantizedArguments,
) -> Path:
    require_torch()
    require_transformers()
    observers = [*observers, *observers_of(progress)]
    with reporting_faults("request"):
        texts = positive("max_batch", made.max_batch)
        checked = CompileOptions.of(specialize="batch=1" if texts > 1 else (), **options)
        check_out(out)
        network, folder = load_model(model, made.loader, checked, observers)
        length = _length(network, made.max_length, "max_length")
        source = made.source(network, folder, length)
        entries, facts = _entries(network, source, length, texts, checked)
        task, notes = task_of(made.task, network, folder, made.tokenizer, facts, _BEGINNING)
        task = _with_decoder(task, network, folder)
        request = task_request(entries, checked, out, name, (task, notes), observers)
    return run_request(request, observers)


def _length(network: Any, asked: int | None, name: str) -> int:
    """How many tokens an answer or a source may have."""
    config = network.config
    most = getattr(config, "max_target_positions", None) or getattr(config, "max_position_embeddings", None)
    if asked is None:
        return min(most or LENGTH, LENGTH)
    if positive(name, asked) < 2 or (most is not None and asked > most):
        raise CompileError(f"{name} has to be from 2 to {most or 'as many as memory holds'}, not {asked}")
    return asked


def _tokens(network: Any, shape: tuple[int, int]) -> Any:
    import torch

    return torch.randint(0, network.config.vocab_size, shape, generator=torch.Generator().manual_seed(0))


def _entries(
    network: Any, source: _Source, length: int, texts: int, options: CompileOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What mycc.compile takes, and what the manifest says of it."""
    import torch

    from .source_module import DecodeSource, Encode, PrefillSource, SourceModel

    rows, chunk = dynamic_most(texts) if texts > 1 else 1, min(CHUNK, length)
    whole = "cuda" in options.families
    model = SourceModel(network, source.example, length, source.length, rows, source.fixed, whole)
    model.check_rows(source.example)
    zero = torch.zeros(1, dtype=torch.int64)
    held = torch.full((rows,), min(5, source.length))
    # tokens and start are arguments of each function; the text's row and the source's length of some
    size = None if source.size is None else torch.export.Dim(source.size[0], min=1, max=dynamic_most(source.size[1]))
    encode: dict[str, Any] = {"source": None if size is None else {source.example.dim() - 1: size}}
    count = torch.export.Dim("read", min=1, max=dynamic_most(chunk))
    prefill: dict[str, Any] = {"tokens": {1: count}, "start": None}
    batch = {0: torch.export.Dim("batch", min=1, max=rows)} if texts > 1 else None
    decode: dict[str, Any] = {"tokens": batch, "start": batch}
    shapes = (encode, prefill, decode)
    inputs = [
        (source.example,),
        (_tokens(network, (1, min(4, chunk))), zero),
        (_tokens(network, (rows, 1)), torch.arange(rows)),
    ]
    if texts > 1:
        for i in (0, 1):
            shapes[i]["row"], inputs[i] = None, (*inputs[i], zero)
    arguments: list[dict[str, Any]] = [{}, {}, {}]
    if not source.fixed:
        prefill["source"], decode["source"] = None, batch
        arguments[1]["source"], arguments[2]["source"] = held[:1], held
    modules = (Encode(model), PrefillSource(model), DecodeSource(model))
    entries = {
        name: (module, given, more, dict(shape))
        for name, module, given, more, shape in zip(
            ("encode", "prefill", "decode"), modules, inputs, arguments, shapes, strict=True
        )
    }
    facts = {
        "length": length, "texts": texts, "chunk": chunk, "vocabulary": network.config.vocab_size,
        "source": {"length": source.length, "fixed": source.fixed, **source.facts},
    }  # fmt: skip
    return {**entries, **source.entries}, facts


#: fields of generation_config.json that say how an answer begins
_BEGINNING = (
    "decoder_start_token_id", "forced_bos_token_id", "forced_decoder_ids", "lang_to_id", "task_to_id", "language",
    "task", "no_timestamps_token_id",
)  # fmt: skip


def _with_decoder(task: Task, network: Any, folder: Folder | None) -> Task:
    """The task with what its answers begin with."""
    given = dict(folder.generation) if folder is not None else network.generation_config.to_dict()
    config = network.config.to_dict()
    known = {name: given.get(name, config.get(name)) for name in _BEGINNING}
    if known["decoder_start_token_id"] is None:
        raise CompileError(f"{type(network).__name__} does not say what an answer begins with (decoder_start_token_id)")
    return replace(task, facts={**task.facts, "beginning": {k: v for k, v in known.items() if v is not None}})
