"""`mycc.compile_embedding`: a text encoder becomes a package that gives one vector for each text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from ...arguments import CommonArguments
from ...runtime.errors import CompileError
from ..api import check_out, observers_of, require_torch, run_request
from ..faults import reporting_faults
from ..observe import Observer
from ..options import CompileOptions
from ..request import Task
from ..signatures import takes
from .common import example_texts, load_model, task_request, text_length
from .compile import dynamic_most
from .folder import read_folder, read_json
from .network import require_transformers

__all__ = ["Pooling", "compile_embedding", "read_pooling"]

#: texts that one call takes at most
BATCH = 32
#: how the vectors of tokens become one: the field of 1_Pooling/config.json that asks for it -> our name
_MODES = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last", "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt",
}  # fmt: skip
_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class Pooling:
    """mode: "mean", "first", "last", "max" or "mean_sqrt" of the tokens' vectors; unit: divided by its length."""

    mode: str
    unit: bool
    length: int | None  # tokens of a text, as the folder says it


@takes(CommonArguments)
def compile_embedding(
    folder: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    max_length: int | None = None,
    max_batch: int = BATCH,
    name: str | None = None,
    progress: bool | Observer | None = None,
    observers: Sequence[Observer] = (),
    **options: Unpack[CommonArguments],
) -> Path:
    """Compiles the folder of a text encoder, of sentence-transformers or plain, to a package for `Model.embed`.

    The package's function is forward(tokens: i64[batch, count], mask: i64[batch, count]) -> f32[batch, size].

    Args:
        folder: a local folder in Hugging Face's form. How vectors are pooled stands in its modules.json and
            1_Pooling/config.json; without these it is their mean.
        out: the file to write.
        max_length: tokens of a text; longer ones are cut. None: what the folder says, at most 512.
        max_batch: texts that one call takes at most.
        name, progress: as in mycc.compile. observers: more of them.
        **options: CommonArguments of arguments.py.

    Raises:
        CompileError: the folder is not whole, the architecture is not taken, or an option is wrong.
    """
    require_torch()
    require_transformers()
    observers = [*observers, *observers_of(progress)]
    with reporting_faults("request"):
        checked = CompileOptions.of(**options)
        check_out(out)
        source = read_folder(folder)
        pooling = read_pooling(source.path)
        if source.tokenizer is None:
            raise CompileError(f"'{source.path}' has no tokenizer.json, which an encoder of texts needs")
        network, _ = load_model(source, "AutoModel", checked, observers)
        length = text_length(network, max_length, pooling.length)
        entry = _entry(network, pooling, length, max_batch)
        pad = network.config.get_text_config().pad_token_id
        facts = {
            "name": "embedding", "architecture": type(network).__name__, "length": length, "texts": max_batch,
            "pad": pad if pad is not None else 0, "size": network.config.get_text_config().hidden_size,
        }  # fmt: skip
        task = Task(facts, {"tokenizer.json": source.tokenizer})
        request = task_request({"forward": entry}, checked, out, name, (task, ()), observers)
    return run_request(request, observers)


def read_pooling(folder: Path) -> Pooling:
    """How a folder of sentence-transformers pools. Raises CompileError for a step that is not taken."""
    about = folder / "sentence_bert_config.json"
    length = read_json(about).get("max_seq_length") if about.is_file() else None
    listed = folder / "modules.json"
    if not listed.is_file():
        return Pooling("mean", False, length)
    rows = read_json(listed, list)
    kinds = [str(row.get("type", "")).rpartition(".")[2] for row in rows]
    other = [kind for kind in kinds if kind not in _MODULES]
    if other or "Pooling" not in kinds:
        what = f"the step {other[0]}" if other else "no step of pooling"
        raise CompileError(f"'{listed}' asks for {what}; packages take {', '.join(_MODULES)}")
    config = read_json(folder / rows[kinds.index("Pooling")].get("path", "1_Pooling") / "config.json")
    modes = [mode for field, mode in _MODES.items() if config.get(field)]
    if isinstance(config.get("pooling_mode"), str):
        names = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt"}
        modes = [names.get(config["pooling_mode"], config["pooling_mode"])]
    if len(modes) != 1 or modes[0] not in _MODES.values():
        raise CompileError(f"the folder pools vectors in a way that packages do not take: {', '.join(modes) or 'none'}")
    return Pooling(modes[0], "Normalize" in kinds, length)


def _entry(network: Any, pooling: Pooling, length: int, texts: int) -> tuple[Any, ...]:
    import torch

    from .pooled import PooledEncoder

    if not isinstance(texts, int) or texts < 1:
        raise CompileError(f"max_batch has to be a whole number from 1, not {texts!r}")
    tokens, mask = example_texts(network, texts, length)
    sizes = {1: torch.export.Dim("count", min=1, max=dynamic_most(length))}
    if texts > 1:
        sizes[0] = torch.export.Dim("batch", min=1, max=dynamic_most(texts))
    return PooledEncoder(network, pooling.mode, pooling.unit), (tokens, mask), None, {"tokens": sizes, "mask": sizes}
