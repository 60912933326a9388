"""What a user may say of a compile: every argument once, for Python, for the command line and for the manifest.

Each class is a record of keyword arguments. The type is what Python takes; the `Argument` beside it has the default,
what the documentation says, and the option of the command line. From the records come the signatures of `mycc.compile`
and its sisters (compiler/signatures.py), the options of the commands (commands/record.py), and which of them a package
keeps (CompileOptions.changed). This file imports neither the compiler nor the command line: both stand on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

__all__ = [
    "CACHE_DTYPES",
    "DTYPES",
    "QUANTIZE_FORMATS",
    "TASK_NAMES",
    "Argument",
    "CommonArguments",
    "CompileArguments",
    "Mode",
    "QuantizedArguments",
    "StepArguments",
    "TaskArguments",
    "TrainingArguments",
    "arguments_of",
]

#: torch.compile's modes
Mode = Literal["default", "reduce-overhead", "max-autotune"]

#: what a model can be converted to before it is compiled
DTYPES = ("f32", "f16", "bf16")
#: what keys and values of a text can be kept in
CACHE_DTYPES = ("f32", "bf16", "f16", "int8")
#: formats of weights in few bits: compiler/number_formats.py says what each is
QUANTIZE_FORMATS = ("int8", "int8-dynamic", "int4", "fp8")
#: what a model's folder can be compiled for: the names of transformers' pipelines, and "embedding"
TASK_NAMES = (
    "text-generation", "text2text-generation", "image-text-to-text", "automatic-speech-recognition", "embedding",
    "feature-extraction", "fill-mask", "text-classification", "token-classification", "question-answering",
    "image-classification",
)  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """One argument of a compile.

    Attributes:
        default: its value where none is given.
        doc: what it means, for the documentation of Python.
        option: its names on the command line; none: it is Python's alone.
        help: what the command line says of it, where that is not the same.
        kind: its type on the command line.
        metavar: what stands for its value there.
        recorded: a package's manifest keeps it where it is not the default.
        values: words that a shell completes for it.
    """

    default: Any
    doc: str = ""
    option: tuple[str, ...] = ()
    help: str = ""
    kind: Any = str | None
    metavar: str | None = None
    recorded: bool = False
    values: tuple[str, ...] = ()


def arguments_of(record: type) -> dict[str, tuple[Any, Argument]]:
    """The arguments of a record by name, each with the type that Python takes."""
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        found[name] = (hint.__origin__, hint.__metadata__[0])
    return found


class CommonArguments(TypedDict, total=False):
    """What every compile takes."""

    target: Annotated[str | Sequence[str], Argument(
        "cpu",
        'what to compile for: "cpu" (this machine\'s ISA level), "cpu:x86-64-v3", "cuda:sm_90", ...; several as a list '
        "or with commas between.",
        ("--target",), "cpu, cpu:x86-64-v3, cuda, cuda:sm_90, cuda:ptx, ...; several with commas.", str,
    )]  # fmt: skip
    dtype: Annotated[Any, Argument(
        None, 'the dtype to compute in, a torch dtype or "f32", "f16", "bf16"; None: the model\'s own.',
        ("--dtype",), "The dtype to compute in: f32, f16 or bf16. Default: the model's own.", recorded=True,
        values=DTYPES,
    )]  # fmt: skip
    verify: Annotated[bool, Argument(
        True, "compare the package with the model in float64 before it is written.",
        ("--verify/--no-verify",), "Compare with the model in float64.", bool, recorded=True,
    )]  # fmt: skip
    strict: Annotated[bool, Argument(
        False, "make an error of every warning.", ("--strict",), "Make an error of every warning.", bool, recorded=True,
    )]  # fmt: skip
    threads: Annotated[int | None, Argument(
        None, "threads of a call of the package; None: one per core where it runs.",
        ("--threads",), "Threads of a call. Default: one per core.", int | None, recorded=True,
    )]  # fmt: skip
    options: Annotated[Mapping[str, object] | Sequence[str] | None, Argument(
        None, '{"schedule.fuse": False} or ["schedule.fuse=false"]: the groups of options in compiler/options.py.',
        ("--set",), "Another option: schedule.fuse=false. --set x.y=1 lists them all.", list[str] | None,
        "GROUP.OPTION=VALUE",
    )]  # fmt: skip
    cache_dir: Annotated[str | os.PathLike[str] | None, Argument(
        None, "where compiled objects are kept; None: the user's cache directory.",
        ("--cache-dir",), "Where compiled objects are kept.", Path | None, "DIR",
    )]  # fmt: skip
    jobs: Annotated[int | None, Argument(
        None, "C++ compilers that run at once; None: one per core.",
        ("--jobs", "-j"), "C++ compilers at once. Default: one per core.", int | None,
    )]  # fmt: skip
    dump: Annotated[str | os.PathLike[str] | None, Argument(
        None, "directory for a text file per stage.", ("--dump",), "Write every stage's result there.", Path | None,
        "DIR",
    )]  # fmt: skip


class QuantizedArguments(CommonArguments, total=False):
    """What a compile takes that may store weights in few bits."""

    quantize: Annotated[str | None, Argument(
        None,
        'store weights in few bits: "int8", "int8-dynamic", "int4", "int4:group=64", "fp8"; see docs/quantization.md.',
        ("--quantize",), "Store weights as int8, int8-dynamic, int4, int4:group=64 or fp8.", metavar="FORMAT",
        values=QUANTIZE_FORMATS,
    )]  # fmt: skip
    quantize_skip: Annotated[str | Sequence[str], Argument(
        (), 'patterns of layers\' names that stay as they are, such as "lm_head" or "layers.0.*".',
        ("--quantize-skip",), "Layers that stay as they are: lm_head,layers.0.*.", list[str] | None, "PATTERN",
    )]  # fmt: skip
    max_error: Annotated[float | None, Argument(
        None, "the largest error, relative to the model's results, that quantisation may add.",
        ("--max-error",), "Refuse the model if quantisation changes its results by more, relative.", float | None, "E",
    )]  # fmt: skip


class CompileArguments(QuantizedArguments, total=False):
    """What `mycc.compile` takes."""

    mode: Annotated[Mode, Argument(
        "default", 'torch.compile\'s word: "default", "reduce-overhead" or "max-autotune".',
        ("--mode",), "torch.compile's modes.", Mode, recorded=True,
    )]  # fmt: skip
    tune: Annotated[bool, Argument(
        False,
        'measure kernel variants on this machine, and keep the choices in a file beside the package: out + ".lock".',
        ("--tune",), "Measure kernel variants here; keeps the choices in FILE.lock.", bool, recorded=True,
    )]  # fmt: skip
    lock: Annotated[str | os.PathLike[str] | None, Argument(
        None, "repeat the choices of such a file, without measuring.",
        ("--lock",), "Repeat the choices of a lock file.", Path | None, "FILE",
    )]  # fmt: skip
    specialize: Annotated[str | Sequence[str] | Mapping[str, Any], Argument(
        (),
        'dynamic sizes for which the package holds variants of its own, "batch=1,8 seq=128" or {"batch": (1, 8)}: a '
        "call of such sizes runs code that was compiled for them.",
        ("--specialize",), "Code of their own for these dynamic sizes: batch=1,8 seq=128.", list[str] | None,
        "NAME=N,N ...",
        recorded=True,
    )]  # fmt: skip
    calibrate: Annotated[Any, Argument(
        None,
        'inputs for static quantisation, with "int8": an .npz, "module:function", a function or a list.',
        ("--calibrate",), "inputs.npz or module:function, for static int8.", metavar="INPUTS",
    )]  # fmt: skip


class StepArguments(TypedDict, total=False):
    """What a training step takes beside its model."""

    freeze: Annotated[Sequence[str], Argument(
        (),
        'patterns of parameters\' names ("encoder.*") that do not change; nor do those without requires_grad and those '
        "that the optimizer lacks.",
        ("--freeze",), "With --train: parameters that do not change: encoder.*", list[str] | None, "PATTERN",
    )]  # fmt: skip
    clip_norm: Annotated[float | None, Argument(
        None, "gradients are clipped to this norm over all; a step may be given another.",
        ("--clip-norm",), "With --train: limits the norm of all gradients together.", float | None, "NORM",
    )]  # fmt: skip
    clip_value: Annotated[float | None, Argument(
        None, "each element of a gradient is clipped to this value; a step may be given another.",
        ("--clip-value",), "With --train: limits each element of a gradient.", float | None, "X",
    )]  # fmt: skip
    check_finite: Annotated[bool, Argument(
        False, "a step whose loss or gradients are not finite changes nothing.",
        ("--check-finite",), "With --train: skip steps whose loss or gradients are not finite.", bool,
    )]  # fmt: skip
    outputs: Annotated[bool, Argument(False, "a step returns what the model returns, too.")]
    accumulate: Annotated[bool, Argument(
        False, "entry points `accumulate` and `update` as well, for steps of several batches.",
        ("--accumulate",), "With --train: allows steps of several batches.", bool,
    )]  # fmt: skip
    entries: Annotated[Sequence[str] | None, Argument(
        None, "the entry points to make; None: step, evaluate, gradients, apply."
    )]  # fmt: skip
    memory_budget: Annotated[float, Argument(
        1.0,
        "the share of the activations that a step keeps for its backward, from 0 to 1; the rest is computed again.",
        ("--memory-budget",), "With --train: the share of activations that is kept, 0 to 1.", float, "SHARE",
    )]  # fmt: skip


class TrainingArguments(StepArguments, CommonArguments, total=False):
    """What `mycc.compile_training` takes."""

    mode: Annotated[Mode, Argument("default", "as for mycc.compile.")]


class TaskArguments(TypedDict, total=False):
    """What `mycc compile DIR --task NAME` takes beside: a task takes those that its function has as parameters."""

    max_length: Annotated[int | None, Argument(
        None, option=("--max-length",),
        help="Tokens of a text. Default: the model's own, at most 4096 (encoders: 512).", kind=int | None,
    )]  # fmt: skip
    tokenizer: Annotated[str | os.PathLike[str] | None, Argument(
        None, option=("--tokenizer",), help="With --task: a tokenizer.json instead of the model's own.",
        kind=Path | None, metavar="FILE",
    )]  # fmt: skip
    max_batch: Annotated[int | None, Argument(
        None, option=("--max-batch",), help="Texts or images of a call. Default: 1 (encoders: 32).", kind=int | None,
    )]  # fmt: skip
    cache_tokens: Annotated[int | None, Argument(
        None, option=("--cache-tokens",),
        help="Tokens of all texts that the cache holds. Default: as many as may come.", kind=int | None,
    )]  # fmt: skip
    max_source_length: Annotated[int | None, Argument(
        None, option=("--max-source-length",), help="Tokens that an encoder reads. Default: as --max-length.",
        kind=int | None,
    )]  # fmt: skip
    image_size: Annotated[int | None, Argument(
        None, option=("--image-size",), help="Height and width of images. Default: the model's own.",
        kind=int | None,
    )]  # fmt: skip
    cache_dtype: Annotated[str | None, Argument(
        None, option=("--cache-dtype",), help="The dtype of the cache: f32, bf16, f16, int8. Default: the model's.",
        values=CACHE_DTYPES,
    )]  # fmt: skip
    draft_tokens: Annotated[int | None, Argument(
        None, option=("--draft-tokens",), help="Tokens checked at once, for speculative decoding. Default: none.",
        kind=int | None,
    )]  # fmt: skip
