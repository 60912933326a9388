"""A folder in Hugging Face's form: which files it has to have, and what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.errors import CompileError
from ...runtime.formats import recognise

__all__ = ["Folder", "read_folder", "read_json"]

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FORM = (
    "A task is compiled from a local folder: config.json, the weights as safetensors, tokenizer.json.\n"
    "A model of the Hub is fetched first: hf download OWNER/NAME --local-dir FOLDER"
)
#: keys of tokenizer_config.json that a chat template may name
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class Folder:
    """What a folder holds beside its weights.

    Attributes:
        path: the folder, or a GGUF file.
        config: config.json.
        generation: generation_config.json; {} without one.
        tokenizer: the bytes of tokenizer.json; None without one.
        chat_template: a jinja2 template; None without one.
        special_tokens: the texts of the special tokens by their names: "bos_token" -> "<s>".
    """

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: bytes | None
    chat_template: str | None
    special_tokens: Mapping[str, str]

    @property
    def is_gguf(self) -> bool:
        """Whether it is one file of llama.cpp's form."""
        return self.path.suffix == ".gguf"

    @property
    def architecture(self) -> str:
        """The name of the model's class, or of its kind."""
        names = self.config.get("architectures") or [self.config.get("model_type", "unknown")]
        return str(names[0])


def read_folder(path: str | os.PathLike[str], own_tokenizer: bool = True) -> Folder:
    """Reads all but the weights, which are looked for. own_tokenizer: also that of a GGUF file.

    Raises:
        CompileError: a file is missing or cannot be read, or the weights are in a form that is not taken.
    """
    folder = Path(path)
    if folder.suffix == ".gguf" and folder.is_file():
        return _gguf(folder, own_tokenizer)
    if folder.is_file():
        raise _not_a_folder(folder)
    if not folder.is_dir():
        raise CompileError(
            f"there is no folder '{folder}'",
            hint=_FORM,
        )
    if not (folder / "config.json").is_file():
        raise CompileError(
            f"'{folder}' is not a model's folder: it has no config.json",
            hint="Name the folder that save_pretrained wrote, or a snapshot of a model's repository.",
        )
    config = read_json(folder / "config.json")
    _check_weights(folder)
    if config.get("quantization_config"):
        from ..checkpoints.network import check_folder

        check_folder(folder, config)
    about = _optional(folder / "tokenizer_config.json")
    return Folder(
        folder, config, _optional(folder / "generation_config.json"), _bytes(folder / "tokenizer.json"),
        _template(folder, about), _special_tokens(folder, about),
    )  # fmt: skip


def _not_a_folder(file: Path) -> CompileError:
    found = recognise(file)
    if found is None:
        return CompileError(f"'{file}' is no folder", hint=_FORM)
    hint = f"Leave --task out: mycc compile {file}" if found.source else found.advice
    return CompileError(f"'{file}' is {found.name}; --task is for a model's folder", hint=hint)


def _gguf(path: Path, own_tokenizer: bool) -> Folder:
    """What a GGUF file holds beside its weights."""
    from ..checkpoints.gguf_file import GgufFile

    file = GgufFile(path)
    ends = {n: file.config[n] for n in ("bos_token_id", "eos_token_id") if file.config[n] is not None}
    template = file.field("tokenizer.chat_template")
    tokenizer = file.tokenizer() if own_tokenizer else None
    return Folder(path, file.config, ends, tokenizer, template, file.special_tokens)


def _check_weights(folder: Path) -> None:
    """Raises CompileError unless all of the weights' files are there."""
    if (folder / _WEIGHTS).is_file():
        return
    if not (folder / _INDEX).is_file():
        others = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.gguf") for p in folder.glob(pattern))
        found = f"it has {', '.join(others[:3])}" if others else "there is no other file of weights either"
        raise CompileError(
            f"'{folder}' has neither {_WEIGHTS} nor {_INDEX}; {found}",
            hint="Load the model with transformers and write it by save_pretrained, which makes safetensors.",
        )
    shards = set(read_json(folder / _INDEX).get("weight_map", {}).values())
    if not shards:
        raise CompileError(f"'{folder / _INDEX}' names no file of weights")
    missing = sorted(name for name in shards if not (folder / name).is_file())
    if missing:
        raise CompileError(
            f"{len(missing)} of the {len(shards)} files of weights are missing in '{folder}'", details=missing[:8],
            hint="Copy them there: the folder was not copied as a whole.",
        )  # fmt: skip


def read_json(path: Path, kind: type = dict) -> Any:
    """A file's JSON. Raises CompileError where it cannot be read, or is not an object (kind list: a list)."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CompileError(f"cannot read '{path}': {error}") from None
    if not isinstance(value, kind):
        raise CompileError(f"'{path}' is not a JSON {'list' if kind is list else 'object'}")
    return value


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error}") from None


def _template(folder: Path, about: Mapping[str, Any]) -> str | None:
    """The template of its own file, or of tokenizer_config.json: the text, or of several the one called default."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    given = about.get("chat_template")
    if isinstance(given, list):
        named = {row.get("name"): row.get("template") for row in given}
        given = named.get("default")
    return given if isinstance(given, str) else None


def _special_tokens(folder: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """From tokenizer_config.json, else from special_tokens_map.json."""
    found: dict[str, str] = {}
    for source in (_optional(folder / "special_tokens_map.json"), about):
        for name in _SPECIAL:
            token = source.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                found[name] = text
    return found
