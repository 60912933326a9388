"""`mycc.compile_transformer`: a folder whose network is run once for each answer, such as a classifier."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from .common import example_texts, load_model, positive, task_request, text_length
from .compile import dynamic_most
from .folder import Folder, read_folder, read_json
from .images import image_settings
from .network import require_transformers

__all__ = ["FORWARD_TASKS", "ForwardTask", "compile_transformer"]

#: texts or images that one call takes at most
BATCH = 32
#: height and width of images, where no file of the folder says them
_SIDE = 224


@dataclass(frozen=True)
class ForwardTask:
    """loader: the class of transformers that loads the network. results: the fields of its result that a package gives.
    labels: whether config.json names the classes (id2label)."""

    loader: str
    results: tuple[str, ...]
    labels: bool = False


#: by the names that transformers' pipelines have for them
FORWARD_TASKS: Mapping[str, ForwardTask] = {
    "feature-extraction": ForwardTask("AutoModel", ("last_hidden_state",)),
    "fill-mask": ForwardTask("AutoModelForMaskedLM", ("logits",)),
    "image-classification": ForwardTask("AutoModelForImageClassification", ("logits",), labels=True),
    "question-answering": ForwardTask("AutoModelForQuestionAnswering", ("start_logits", "end_logits")),
    "text-classification": ForwardTask("AutoModelForSequenceClassification", ("logits",), labels=True),
    "token-classification": ForwardTask("AutoModelForTokenClassification", ("logits",), labels=True),
}


@takes(QuantizedArguments)
def compile_transformer(
    folder: str | os.PathLike[str],
    *,
    task: str,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_batch: int = BATCH,
    image_size: int | tuple[int, int] | None = None,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[QuantizedArguments],
) -> Path:
    """Compiles a folder whose network is run once for each answer. Its example inputs come from config.json.

    The package has one function. Of texts it takes input_ids and attention_mask, and token_type_ids where the model has
    several types: i64[batch, count] each. Of images it takes pixel_values: f32[batch, channels, height, width]. It
    gives a dictionary: `last_hidden_state`, `logits`, or `start_logits` and `end_logits`.

    Args:
        folder: a local folder in Hugging Face's form.
        task: "feature-extraction", "fill-mask", "image-classification", "question-answering", "text-classification" or
            "token-classification".
        out: the file to write. It appears whole or not at all.
        max_length: tokens of a text; None: what the model was made for, at most 512.
        max_batch: texts or images that one call takes at most.
        image_size: height and width of images; None: what config.json or preprocessor_config.json says, or 224.
        name, progress: as in mycc.compile. observers: more of them.
        **options: QuantizedArguments of arguments.py.

    Raises:
        CompileError: the folder is not whole, the architecture has no such form, or an option is wrong.
    """
    if task not in FORWARD_TASKS:
        raise CompileError(f"there is no task '{task}' here", hint=f"Tasks: {', '.join(FORWARD_TASKS)}.")
    row = FORWARD_TASKS[task]
    require_torch()
    require_transformers()
    observers = [*observers, *observers_of(progress)]
    with reporting_faults("request"):
        checked = CompileOptions.of(**options)
        batch = positive("max_batch", max_batch)
        check_out(out)
        source = read_folder(folder)
        network, _ = load_model(source, row.loader, checked, observers)
        entry, facts = _entry(network, source, row, batch, max_length, image_size)
        facts = {"name": task, "architecture": type(network).__name__, "batch": batch, **facts}
        if row.labels:
            facts["labels"] = [network.config.id2label[i] for i in range(network.config.num_labels)]
        files = {"tokenizer.json": source.tokenizer} if source.tokenizer is not None and "length" in facts else {}
        task_and_notes = (Task(facts, files), ())
        request = task_request({"forward": entry}, checked, out, name, task_and_notes, observers)
    return run_request(request, observers)


def _entry(
    network: Any,
    folder: Folder,
    row: ForwardTask,
    batch: int,
    max_length: int | None,
    image_size: int | tuple[int, int] | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What mycc.compile takes, and what the manifest says of it."""
    reads = network.main_input_name
    if reads == "input_ids" and not network.config.is_encoder_decoder:
        if image_size is not None:
            raise CompileError(f"image_size is for models of images; {type(network).__name__} reads texts")
        return _of_texts(network, row, batch, max_length)
    if reads == "pixel_values":
        if max_length is not None:
            raise CompileError(f"max_length is for models of texts; {type(network).__name__} reads images")
        return _of_images(network, folder, row, batch, image_size)
    what = "has an encoder and a decoder" if reads == "input_ids" else f"reads {reads}"
    raise CompileError(
        f"{type(network).__name__} {what}; this task takes models that read input_ids or pixel_values once",
        hint="Compile such a model from a file that makes it: see examples/bert.py.",
    )


def _batch(batch: int) -> dict[int, Any]:
    import torch

    return {0: torch.export.Dim("batch", min=1, max=dynamic_most(batch))} if batch > 1 else {}


def _of_texts(
    network: Any, row: ForwardTask, batch: int, max_length: int | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    from .forward_module import ReadTexts

    length = text_length(network, max_length)
    tokens, mask = example_texts(network, batch, length)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    types = getattr(network.config, "type_vocab_size", None) or 0
    if types > 1 and "token_type_ids" in inspect.signature(network.forward).parameters:
        kinds = torch.zeros_like(tokens)
        kinds[:, tokens.shape[1] // 2 :] = 1
        inputs["token_type_ids"] = kinds
    sizes = {**_batch(batch), 1: torch.export.Dim("count", min=1, max=dynamic_most(length))}
    module = ReadTexts(network, row.results)
    return (module, (), inputs, dict.fromkeys(inputs, sizes)), {"length": length}


def _of_images(
    network: Any, folder: Folder, row: ForwardTask, batch: int, asked: int | tuple[int, int] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    from .forward_module import ReadImages

    path = folder.path / "preprocessor_config.json"
    about = read_json(path) if path.is_file() else {}
    height, width = _image_size(network.config, about, asked)
    shape = (min(2, batch), getattr(network.config, "num_channels", 3), height, width)
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    facts = {"image": {"size": [height, width], **image_settings(about)}}
    return (ReadImages(network, row.results), (pixels,), None, {"pixel_values": _batch(batch)}), facts


def _image_size(config: Any, about: Mapping[str, Any], asked: int | tuple[int, int] | None) -> tuple[int, int]:
    """Height and width: asked for, of config.json, of preprocessor_config.json, or 224."""
    given = asked if asked is not None else getattr(config, "image_size", None)
    for field in ("crop_size", "size"):
        given = given if given is not None else about.get(field)
    if isinstance(given, Mapping):
        given = (given["height"], given["width"]) if "height" in given else given.get("shortest_edge")
    given = _SIDE if given is None else given
    pair = (given, given) if isinstance(given, int) else tuple(given)
    if len(pair) != 2:
        raise CompileError(f"image_size has to be a height and a width, not {given!r}")
    return positive("image_size", pair[0]), positive("image_size", pair[1])
