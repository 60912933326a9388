"""Files that are given where a package or a model's source is expected: what they are, and what helps.

A file is told by its first bytes, not by its name; nothing of it is run or unpickled.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import NamedTuple

from .files import open_regular

__all__ = ["Format", "not_safetensors", "recognise", "refusal", "task_of"]


_ONNX = (
    "mycc compiles the PyTorch model that it was exported from: give mycc that model's source.\n"
    "Without it, onnx2torch.convert(path) makes a PyTorch module of many ONNX files."
)
_COMPILED = "It is compiled already: mycc run, mycc inspect, mycc explain."


class Format(NamedTuple):
    """name: with its article ("an ONNX file"); package, source: whether it is one; advice: what to do with it;
    program: a source that torch.export saved; saved: how torch reads its weights, where torch.save wrote them."""

    name: str
    advice: str
    package: bool = False
    source: bool = False
    program: bool = False
    saved: str = ""


def recognise(path: str | os.PathLike[str]) -> Format | None:
    """What a file or folder is; None: nothing that is known, or it cannot be read."""
    name = os.fspath(path)
    if os.path.isdir(name):
        return _folder(name)
    try:
        head = _head(name)
    except (OSError, ValueError):
        return None
    if head[:4] == b"PK\x03\x04":
        return _archive(name)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _pickled(name, head)
    if head[:8] == b"\x89HDF\r\n\x1a\n":
        return Format("an HDF5 file (Keras)", "mycc compiles PyTorch models: write the model in PyTorch.")
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 27:
        return Format("a safetensors file", _weights("safetensors.torch", f"safetensors.torch.load_file({name!r})"))
    if head[4:8] == b"TFL3":
        return Format("a TensorFlow Lite file", "mycc compiles PyTorch models: write the model in PyTorch.")
    if name.endswith(".onnx") or (head[:1] == b"\x08" and b"onnx" in head[:200].lower()):
        return Format("an ONNX file", _ONNX)
    if name.endswith(".py"):
        return Format("a Python source", f"Compile it first: mycc compile {name} --out model.pkg", source=True)
    return None


def refusal(path: str | os.PathLike[str], package: bool = False, source: bool = False) -> tuple[str, str] | None:
    """What to say of a file that is not what is wanted, and what helps; None: it may be.

    package, source: what is wanted; with both either will do.
    """
    name, found = os.fspath(path), recognise(path)
    if found is None or (package and found.package) or (source and found.source):
        return None
    if package and source:
        return f"{name} is {found.name}, neither a package nor the source of a model", found.advice
    if package:
        return f"{name} is {found.name}, not a package", found.advice
    return f"{name} is {found.name}, not the source of a model", found.advice


def not_safetensors(path: str | os.PathLike[str], reason: object) -> tuple[str, str | None]:
    """What to say of a file that is read for its weights and is no safetensors file, and what helps."""
    name, found = os.fspath(path), recognise(path)
    if found is None or found.name.endswith("safetensors file"):
        return f"{name} is no safetensors file: {reason}", None
    hint = None
    if found.saved:
        hint = f"Convert it: safetensors.torch.save_file({found.saved}, 'weights.safetensors')"
    return f"{name} is {found.name}, not a safetensors file", hint


def _head(name: str) -> bytes:
    """The first bytes of a regular file. Raises OSError for another one."""
    with open(open_regular(name), "rb") as file:
        return file.read(4096)


#: how the names of transformers' classes end -> the task that they are for
_TASKS = {
    "ForCausalLM": "text-generation", "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text2text-generation", "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification", "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering", "ForImageClassification": "image-classification",
}  # fmt: skip


def task_of(architecture: str) -> str:
    """The task that a class of transformers is for, by how its name ends; a bare network is for its features."""
    return next((task for end, task in _TASKS.items() if architecture.endswith(end)), "feature-extraction")


def _folder(name: str) -> Format | None:
    path = os.path.join(name, "config.json")
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            kind = str(json.load(file)["architectures"][0])
    except (OSError, ValueError, LookupError, TypeError):
        kind = ""
    hint = (
        f"Say what it is for: mycc compile {name} --task {task_of(kind)} --out model.pkg\n"
        "`mycc compile --help` lists the tasks."
    )
    return Format("a folder of a Hugging Face model", hint)


def _archive(name: str) -> Format | None:
    try:
        with zipfile.ZipFile(name) as file:
            members, comment = file.namelist(), file.comment
    except (OSError, zipfile.BadZipFile):
        return None
    if comment.startswith(b"mycc:"):
        return Format("a package of mycc", _COMPILED, package=True)
    ends = {member.partition("/")[2] or member for member in members}
    if any(member.startswith(("models/", "archive_format")) or "/models/" in member for member in members) or (
        "serialized_exported_program.json" in ends
    ):
        advice = f"Compile it: mycc compile {name} --out model.pkg"
        return Format("a program of torch.export", advice, source=True, program=True)
    if "constants.pkl" in ends or any(end.startswith("code/") for end in ends):
        return Format("a TorchScript file", "TorchScript cannot be exported as a whole. Give mycc the source of the "
                      "module that was scripted or traced:\na file with `model` and `example_inputs`.")  # fmt: skip
    if "data.pkl" in ends:
        return _saved(name, members)
    return None


def _saved(name: str, members: list[str]) -> Format:
    """What torch.save wrote: tensors alone, or a pickled module."""
    member = next(m for m in members if m.endswith("data.pkl"))
    with zipfile.ZipFile(name) as file:
        return _of_pickle(name, file.read(member))


def _pickled(name: str, head: bytes) -> Format:
    try:
        with open(name, "rb") as file:
            return _of_pickle(name, file.read(1 << 20))
    except OSError:
        return _of_pickle(name, head)


def _of_pickle(name: str, data: bytes) -> Format:
    plain = (
        "__builtin__.",
        "collections.",
        "torch._utils.",
        "torch.",
        "numpy.",
        "builtins.",
        "_codecs.",
        "torch.storage.",
    )
    classes, keys = _contents(data)
    own = [c for c in classes if not c.startswith(plain) or c.startswith("torch.nn.modules.")]
    if own:
        return Format(f"a pickled object ({own[0]})", "Reading it would run code of the file. If you trust it, write a "
                      f"file with:\n  import torch\n  model = torch.load({name!r}, weights_only=False).eval()\n"
                      "  example_inputs = (...,)\nand compile that.")  # fmt: skip
    load = f"torch.load({name!r}, map_location='cpu')"
    if not keys:
        return Format("a state_dict saved by torch.save", _weights("torch", load), saved=load)
    key = next((key for key in keys if "model" in key or "state_dict" in key), keys[0])
    load += f"[{key!r}]"
    return Format("a checkpoint saved by torch.save", _weights("torch", load), saved=load)


def _weights(module: str, load: str) -> str:
    return (
        "It holds weights and no model. Write a file, say model.py, with:\n"
        f"  import {module}\n"
        "  from your_code import TheClass\n"
        "  model = TheClass(...)\n"
        f"  model.load_state_dict({load})\n"
        "  model.eval()\n"
        "  example_inputs = (...,)\n"
        "and compile that: mycc compile model.py --out model.pkg"
    )


def _contents(data: bytes) -> tuple[list[str], list[str]]:
    """The classes and functions that pickles name, in order, and the keys of the dictionaries in their dictionary; of
    a damaged one those before the damage.

    A file that torch.save wrote before its version 1.6 is several pickles, one behind the other.
    """
    classes: list[str] = []
    keys: list[str] = []
    stream = io.BytesIO(data)
    try:
        while stream.read(1) == b"\x80":
            stream.seek(-1, io.SEEK_CUR)
            _read_pickle(stream, classes, keys)
    except ValueError:
        pass
    return classes, [key for key in keys if key != "type_sizes"]  # which stands in the head of such a file


def _read_pickle(stream: io.BytesIO, classes: list[str], keys: list[str]) -> None:
    """Adds what a pickle names. A key is a string with a dictionary right behind it; the names of modules in a
    state_dict's _metadata are no keys. Raises ValueError where it is damaged."""
    import pickletools

    words: list[str] = []
    memo: dict[int, str] = {}
    last = ""  # what the last instruction made
    for code, argument, _ in pickletools.genops(stream):
        if code.name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else int(str(argument))] = last
            continue
        made = ""
        if code.name == "GLOBAL":
            made = str(argument).replace(" ", ".")
            classes.append(made)
        elif code.name == "STACK_GLOBAL" and len(words) > 1:
            made = f"{words[-2]}.{words[-1]}"
            classes.append(made)
        elif code.name in ("BINGET", "LONG_BINGET"):
            made = memo.get(int(str(argument)), "")
        elif code.name == "EMPTY_DICT":
            made = _DICTIONARIES[0]
        elif code.name in ("SHORT_BINUNICODE", "BINUNICODE", "UNICODE"):
            words.append(str(argument))
            made = _STRING
        if made in _DICTIONARIES and last == _STRING and "_metadata" not in words:
            keys.append(words[-1])
        last = made


_STRING = "a string"
_DICTIONARIES = ("{}", "collections.OrderedDict")
