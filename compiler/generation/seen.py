"""`mycc.compile_image_text`: a vision-language model becomes a package that answers prompts with images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from ...arguments import QuantizedArguments
from ...runtime.errors import CompileError
from ..api import check_out, observers_of, require_torch, run_request
from ..faults import reporting_faults
from ..observe import Observer
from ..options import CompileOptions
from ..signatures import takes
from .common import load_model, positive, task_request
from .compile import CHUNK, dynamic_most, length_of, task_of
from .folder import read_json
from .images import ImageEncoder, image_settings, image_size
from .network import require_transformers

__all__ = ["compile_image_text"]


@takes(QuantizedArguments)
def compile_image_text(
    model: Any,
    *,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_batch: int = 1,
    chunk: int = CHUNK,
    image_size: Any = None,
    tokenizer: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[QuantizedArguments],
) -> Path:
    """Compiles a vision-language model (LLaVA, Qwen2.5-VL) to a package: `generate(prompt, images=[...])`.

    Args:
        model: a local folder in Hugging Face's form, or such a model of transformers.
        out: the file to write. It appears whole or not at all.
        max_length: tokens of a text, those of its images included; None: what the model was made for, at most 4096.
        max_batch: texts that are generated at once.
        chunk: tokens of a prompt that one call reads at most.
        image_size: of models that take any, the height and width that images are brought to; None: 448 x 448.
        tokenizer: a tokenizer.json, for a model that is not a folder.
        name, progress: as in mycc.compile. observers: more of them.
        **options: QuantizedArguments of arguments.py.

    Raises:
        CompileError: the folder is not whole, the architecture is not taken, or an option is wrong.
    """
    require_torch()
    require_transformers()
    observers = [*observers, *observers_of(progress)]
    with reporting_faults("request"):
        texts = positive("max_batch", max_batch)
        checked = CompileOptions.of(specialize="batch=1" if texts > 1 else (), **options)
        check_out(out)
        network, folder = load_model(model, "AutoModelForImageTextToText", checked, observers)
        length = length_of(network, max_length)
        piece = min(positive("chunk", chunk), length)
        entries, facts = _entries(network, length, texts, piece, image_size, "cuda" in checked.families)
        about = folder.path / "preprocessor_config.json" if folder is not None else None
        facts["image"] |= image_settings(read_json(about) if about is not None and about.is_file() else {})
        task = task_of("image-text-to-text", network, folder, tokenizer, facts)
        request = task_request(entries, checked, out, name, task, observers)
    return run_request(request, observers)


def _entries(
    network: Any, length: int, texts: int, chunk: int, asked: Any, whole: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What mycc.compile takes, and what the manifest says of it."""
    import torch

    from .seen_module import DecodeSeen, PrefillSeen, SeenTextModel

    height, width = image_size(network, asked)
    token = getattr(network.config, "image_token_id", None)
    if token is None:
        token = getattr(network.config, "image_token_index", None)
    if token is None:
        raise CompileError("config.json does not say which token stands for an image (image_token_id)")
    encoder, rows = ImageEncoder(network, height, width).eval(), dynamic_most(texts) if texts > 1 else 1
    model = SeenTextModel(network, encoder, token, length, rows, whole, chunk)
    if model.recurrent:
        raise CompileError(f"{type(network).__name__} keeps states of recurrences, which this task does not take")
    model.check_images(encoder)
    sample = torch.Generator().manual_seed(0)
    pixels = torch.randn((3, height, width), generator=sample)
    with torch.no_grad():
        vectors = encoder(pixels)
    vocabulary = network.config.get_text_config(decoder=True).vocab_size
    count, zero = min(8, chunk), torch.zeros(1, dtype=torch.int64)
    tokens = torch.randint(0, vocabulary, (1, count), generator=sample)
    tokens[0, ::2] = token
    several = torch.export.Dim("count", min=1, max=dynamic_most(chunk))
    inputs: dict[str, Any] = {"tokens": tokens, "start": zero}
    shapes: dict[str, Any] = {"tokens": {1: several}, "start": None}
    if texts > 1:
        inputs["row"], shapes["row"] = zero, None
    inputs["vectors"] = torch.randn((1, count, vectors.shape[1]), generator=sample)
    shapes["vectors"] = {1: several}
    batch = {0: torch.export.Dim("batch", min=1, max=rows)} if texts > 1 else None
    last = torch.randint(0, vocabulary, (rows, 1), generator=sample)
    given: dict[str, Any] = {"tokens": last, "start": torch.arange(rows)}
    if encoder.grid is not None:
        inputs["at"], shapes["at"] = torch.arange(count).expand(3, 1, -1).contiguous(), {2: several}
        given["shift"] = torch.zeros(rows, dtype=torch.int64)
    facts: dict[str, Any] = {"length": length, "texts": texts, "chunk": chunk, "vocabulary": vocabulary}
    facts["image"] = {
        "token": token, "count": vectors.shape[0], "size": vectors.shape[1], "height": height, "width": width,
        "grid": encoder.grid,
    }  # fmt: skip
    return {
        "see": (encoder, (pixels,)),
        "prefill": (PrefillSeen(model), (), inputs, shapes),
        "decode": (DecodeSeen(model), (), given, dict.fromkeys(given, batch)),
    }, facts
