"""Files that are given where a package or a model's source is expected: what they are, and what helps.

A file is told by its first bytes, not by its name; nothing of it is run or unpickled.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import NamedTuple

from .files import open_regular

__all__ = ["Format", "recognise"]


_ONNX = (
    "mycc compiles the PyTorch model that it was exported from: give mycc that model's source.\n"
    "Without it, onnx2torch.convert(path) makes a PyTorch module of many ONNX files."
)
_COMPILED = "It is compiled already: mycc run, mycc inspect, mycc explain."


class Format(NamedTuple):
    """name: with its article ("an ONNX file"); package, source: whether it is one; advice: what to do with it."""

    name: str
    advice: str
    package: bool = False
    source: bool = False


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
        return Format("a safetensors file", _weights(name, "safetensors.torch.load_file"))
    if head[4:8] == b"TFL3":
        return Format("a TensorFlow Lite file", "mycc compiles PyTorch models: write the model in PyTorch.")
    if name.endswith(".onnx") or (head[:1] == b"\x08" and b"onnx" in head[:200].lower()):
        return Format("an ONNX file", _ONNX)
    if name.endswith(".py"):
        return Format("a Python source", f"Compile it first: mycc compile {name} --out model.pkg", source=True)
    return None


def _head(name: str) -> bytes:
    """The first bytes of a regular file. Raises OSError for another one."""
    with open(open_regular(name), "rb") as file:
        return file.read(4096)


#: how the names of transformers' classes end -> the task that they are for
_TASKS = {
    "ForCausalLM": "text-generation", "ForConditionalGeneration": "text2text-generation", "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification", "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering", "ForImageClassification": "image-classification",
}  # fmt: skip


def _folder(name: str) -> Format | None:
    path = os.path.join(name, "config.json")
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            kind = str(json.load(file)["architectures"][0])
    except (OSError, ValueError, LookupError, TypeError):
        kind = ""
    task = next((task for end, task in _TASKS.items() if kind.endswith(end)), "feature-extraction")
    hint = (
        f"Say what it is for: mycc compile {name} --task {task} --out model.pkg\n`mycc compile --help` lists the tasks."
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
        return Format("a program of torch.export", f"Compile it: mycc compile {name} --out model.pkg", source=True)
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
        return _of_classes(name, _classes(file.read(member)))


def _pickled(name: str, head: bytes) -> Format:
    try:
        with open(name, "rb") as file:
            return _of_classes(name, _classes(file.read(1 << 20)))
    except OSError:
        return _of_classes(name, _classes(head))


def _of_classes(name: str, classes: list[str]) -> Format:
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
    own = [c for c in classes if not c.startswith(plain) or c.startswith("torch.nn.modules.")]
    if own:
        return Format(f"a pickled object ({own[0]})", "Reading it would run code of the file. If you trust it, write a "
                      f"file with:\n  import torch\n  model = torch.load({name!r}, weights_only=False).eval()\n"
                      "  example_inputs = (...,)\nand compile that.")  # fmt: skip
    return Format("a state_dict saved by torch.save", _weights(name, "torch.load"))


def _weights(name: str, load: str) -> str:
    return (
        "It holds weights and no model. Write a file with:\n"
        "  model = TheClass(...)\n"
        f"  model.load_state_dict({load}({name!r}))\n"
        "  model.eval()\n"
        "  example_inputs = (...,)\n"
        "and compile that."
    )


def _classes(data: bytes) -> list[str]:
    """The classes and functions that a pickle names, in order; of a damaged one those before the damage."""
    import pickletools

    found: list[str] = []
    words: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name == "GLOBAL":
                found.append(str(argument).replace(" ", "."))
            elif code.name in ("SHORT_BINUNICODE", "BINUNICODE", "UNICODE"):
                words.append(str(argument))
            elif code.name == "STACK_GLOBAL" and len(words) > 1:
                found.append(f"{words[-2]}.{words[-1]}")
    except ValueError:
        pass
    return found
