"""`mycc.compile_generation`: a causal language model becomes a package that generates text."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Unpack

from ...arguments import CACHE_DTYPES, QuantizedArguments
from ...runtime.errors import CompileError, InputError
from ...runtime.generation.tokenizer import compiled_template
from ..api import check_out, observers_of, require_torch, run_request
from ..faults import reporting_faults
from ..observe import Observer, running_stage
from ..options import CompileOptions
from ..request import Task
from ..signatures import takes
from .common import load_model, positive, task_request
from .folder import Folder
from .network import require_transformers
from .settings import generation_settings

__all__ = ["compile_generation", "dynamic_most", "length_of", "task_of"]

#: tokens of a prompt that one call reads at most
CHUNK = 512
#: so for models with states of recurrences, whose scans have a fixed length: their calls read so many, fewer, or one
RECURRENT_CHUNK, SHORT_CHUNK = 64, 8


@takes(QuantizedArguments)
def compile_generation(
    model: Any,
    *,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_batch: int = 1,
    cache_tokens: int | None = None,
    chunk: int = CHUNK,
    draft_tokens: int = 0,
    cache_dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[QuantizedArguments],
) -> Path:
    """Compiles a causal language model to a package that generates text without torch.

    The package has two entry points that share weights and a cache of keys and values: `prefill` reads a piece of a
    prompt, `decode` takes one token more of each text. For GPUs further ones (`argmax`, `draw` and others) choose
    tokens by the logits, which stay there. The package holds the tokenizer, the chat template and the settings of
    generation_config.json.

    Args:
        model: a local folder in Hugging Face's form (config.json, safetensors, tokenizer.json), whose weights may be
            quantised, a GGUF file, or a causal language model of transformers.
        out: the file to write. It appears whole or not at all.
        max_length: tokens of a text, prompt and answer together; None: what the model was made for, at most 4096.
        max_batch: texts that are generated at once.
        cache_tokens: tokens of all texts that the cache holds, where max_batch is above 1; None: as many as max_batch
            texts of max_length have. Texts take blocks of it as they grow; where none is left, one waits for others.
        chunk: tokens of a prompt that one call reads at most; longer prompts are read in pieces.
        draft_tokens: how many tokens a third entry point, `verify`, checks in one call, for speculative decoding
            (`generate(..., draft="lookup")`); 0: none.
        cache_dtype: the dtype of keys and values in the cache: "f32", "bf16", "f16", or "int8" with a scale for each
            position and head; None: the model's. What it adds to the error of the logits is measured and said.
        tokenizer: a tokenizer.json, or the folder of one, instead of the model's own.
        name, progress: as in mycc.compile. observers: more of them.
        **options: QuantizedArguments of arguments.py; "int4" and "int8" are for linear layers and the embedding.

    Returns:
        The package's path.

    Raises:
        CompileError: the folder is not whole, the architecture is not taken, or an option is wrong.
    """
    require_torch()
    require_transformers()
    observers = [*observers, *observers_of(progress)]
    with reporting_faults("request"):
        specialize = "batch=1" if max_batch > 1 else ()
        checked = CompileOptions.of(specialize=specialize, **options)
        check_out(out)
        whole = "cuda" in checked.families  # there a size that depends on a value has the host wait
        from .blocks import block_count

        network, folder = load_model(model, "AutoModelForCausalLM", checked, observers, tokenizer is None)
        length = length_of(network, max_length)
        texts, piece = positive("max_batch", max_batch), min(positive("chunk", chunk), length)
        checks = 0 if draft_tokens == 0 else positive("draft_tokens", draft_tokens)
        blocks = block_count(cache_tokens, length, texts, checks)
        if cache_dtype is not None and cache_dtype not in CACHE_DTYPES:
            raise CompileError(f"cache_dtype has to be one of {', '.join(CACHE_DTYPES)}, not {cache_dtype!r}")
        entries, facts = _entries(network, length, texts, piece, whole, checks, blocks, cache_dtype)
        if facts["recurrent"] and cache_tokens is not None:
            raise CompileError(
                f"cache_tokens does not go with {type(network).__name__}, which keeps states of recurrences",
                hint="Each of its texts has a row of the cache, by max_batch.",
            )
        if cache_dtype is not None:
            with running_stage(observers, "cache") as stage:
                facts["cache"] = _cache_facts(network, cache_dtype, length)
                stage.summary = f"{cache_dtype}; logits differ by {facts['cache']['error']:.1e}"
        task = task_of("text-generation", network, folder, tokenizer, facts)
        request = task_request(entries, checked, out, name, task, observers)
    return run_request(request, observers)


def length_of(network: Any, asked: int | None) -> int:
    """How many tokens a text may have."""
    most = getattr(network.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if asked is None:
        return min(most or 4096, 4096)
    if positive("max_length", asked) < 2:
        raise CompileError("max_length has to be at least 2: a token of a prompt, and one behind it")
    if most is not None and asked > most:
        raise CompileError(
            f"max_length is {asked}, but the model knows {most} positions (max_position_embeddings in config.json)"
        )
    return asked


def _entries(
    network: Any,
    length: int,
    texts: int,
    chunk: int,
    whole: bool,
    checks: int = 0,
    blocks: int = 0,
    kept: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What mycc.compile takes, and what the manifest says of it.

    whole: the package is for GPUs: attention reads the whole cache, and the device chooses tokens. checks: tokens that
    one call of `verify` takes at most; 0: there is none.
    blocks: of a cache that texts share; 0: it has a row for each. kept: the dtype of the cache.
    """
    import torch

    from .argmax import argmax_entry
    from .blocks import block_entries
    from .cache import BLOCK, TILE
    from .draws import CANDIDATES, draw_entries
    from .module import Decode, Prefill, TextModel, Verify, reads_pieces
    from .packed import packed_entry

    rows = dynamic_most(texts) if texts > 1 else 1
    model = TextModel(network, length, rows, whole, blocks, max(chunk, checks), kept)
    zero = torch.zeros(1, dtype=torch.int64)
    vocabulary = network.config.get_text_config(decoder=True).vocab_size
    sample = torch.Generator().manual_seed(0)

    def tokens(rows: int, count: int) -> torch.Tensor:
        return torch.randint(0, vocabulary, (rows, count), generator=sample)

    if model.recurrent:
        chunk, blocks = min(chunk, RECURRENT_CHUNK) if reads_pieces(network) else 1, 0
    prompt = chunk if model.recurrent else min(16, chunk)
    count = (
        {1: torch.export.Dim("count", min=1, max=dynamic_most(chunk))} if chunk > 1 and not model.recurrent else None
    )
    facts: dict[str, Any] = {"length": length, "texts": texts, "chunk": chunk, "vocabulary": vocabulary}
    facts["recurrent"] = model.recurrent
    batch = {0: torch.export.Dim("batch", min=1, max=rows)} if texts > 1 else None
    chosen = {}
    if whole and not checks:
        chosen = {"argmax": argmax_entry(vocabulary, rows, batch), **draw_entries(vocabulary, rows, batch)}
        facts["candidates"] = min(CANDIDATES, vocabulary)
    if blocks:
        made = block_entries(model, rows, tokens(1, prompt), tokens(rows, 1), count)
        packed = packed_entry(model, rows, chunk, vocabulary)
        if packed:
            facts["tile"] = TILE
        return {**made, **packed, **chosen}, {**facts, "block": BLOCK, "blocks": blocks}
    prefill: dict[str, Any] = {"tokens": count, "start": None}
    inputs: tuple[Any, ...] = (tokens(1, prompt), zero)
    if texts > 1:
        prefill["row"], inputs = None, (*inputs, zero)
    decode: tuple[Any, ...] = (Decode(model), (tokens(rows, 1), torch.arange(rows) % length))
    if batch is not None:
        names = ["tokens", "start"]
        if model.recurrent:  # a call must not change the states of other rows
            names.append("row")
            decode = (decode[0], (*decode[1], torch.arange(rows)))
        decode = (*decode, None, dict.fromkeys(names, batch))
    if model.slots < length:
        facts["back"] = max(chunk, checks) - 1  # tokens that may be taken back
    entries = {"prefill": (Prefill(model), inputs, None, prefill), "decode": decode, **chosen}
    if model.recurrent and chunk > SHORT_CHUNK:
        entries["prefill_short"] = (Prefill(model), (tokens(1, SHORT_CHUNK), *inputs[1:]), None, prefill)
        facts["short"] = SHORT_CHUNK
    if checks:
        if model.recurrent:
            raise CompileError(
                f"{type(network).__name__} keeps states of recurrences, which cannot go back where a guess was wrong",
                hint="Leave --draft-tokens out.",
            )
        checks = min(checks, length)
        facts["draft_tokens"] = checks
        several = {1: torch.export.Dim("count", min=1, max=dynamic_most(checks))}
        given = (tokens(1, min(4, dynamic_most(checks))), *inputs[1:])
        entries["verify"] = (Verify(model), given, None, {**prefill, "tokens": several})
    return entries, facts


def _cache_facts(network: Any, kept: str, length: int) -> dict[str, Any]:
    """What the manifest says of a cache in another dtype: `dtype`, and `error`, by how much logits differ."""
    import torch

    from .module import cache_error

    vocabulary = network.config.get_text_config(decoder=True).vocab_size
    count = min(length, 64) // 2 * 2
    tokens = torch.randint(0, vocabulary, (1, count), generator=torch.Generator().manual_seed(1))
    return {"dtype": kept, "error": cache_error(network, kept, tokens)}


def dynamic_most(most: int) -> int:
    """The largest value of a dynamic size from 1 to `most`: at least 3, as torch.export takes one from 1 to 2 for a
    constant."""
    return max(most, 3)


def task_of(
    name: str,
    network: Any,
    folder: Folder | None,
    tokenizer: str | os.PathLike[str] | None,
    facts: dict[str, Any],
    followed: Collection[str] = (),
) -> tuple[Task, list[str]]:
    """What the package of a task holds beside its code, and warnings. followed: as of generation_settings."""
    files: dict[str, bytes] = {}
    words = None if folder is None else folder.tokenizer
    if tokenizer is not None:
        try:
            given = Path(tokenizer)
            words = (given / "tokenizer.json" if given.is_dir() else given).read_bytes()
        except OSError as error:
            raise CompileError(f"cannot read the tokenizer '{tokenizer}': {error.strerror}") from None
    config = folder.generation if folder is not None else {}
    if not config and getattr(network, "generation_config", None) is not None:
        config = network.generation_config.to_diff_dict()
    settings, notes = generation_settings(config, network.config.get_text_config(decoder=True).to_dict(), followed)
    rows: dict[str, Any] = {"name": name, "architecture": type(network).__name__, **facts}
    rows["settings"] = settings
    if words is not None:
        files["tokenizer.json"] = words
    elif folder is not None:
        notes.append(f"'{folder.path}' has no tokenizer.json: the package takes and gives numbers of tokens alone")
    if folder is not None:
        rows["special_tokens"] = dict(folder.special_tokens)
        if folder.chat_template is not None:
            files["chat_template.jinja"] = folder.chat_template.encode()
            try:
                compiled_template(folder.chat_template)
            except InputError as error:
                notes.append(f"{error}: the package refuses chats")
    return Task(rows, files), notes
