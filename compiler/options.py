"""All options of a compile, typed, in one place.

`--set group.option=value` reaches every option of the groups below. Those that alter the generated code are part of
`CompileOptions.fingerprint()`, the options' share of every cache key.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Unpack, get_args, get_origin, get_type_hints

from ..arguments import DTYPES, TASK_NAMES, CompileArguments, Mode, arguments_of
from ..runtime.errors import CompileError
from .machine.gpu import Device, chip_of, device_for
from .machine.targets import Family, Target, host_target, known_names
from .machine.targets import parse_targets as named_targets
from .number_formats import Quantization, parse_quantization

__all__ = [
    "BuildOptions",
    "CodegenOptions",
    "CompileOptions",
    "GraphOptions",
    "Mode",
    "ScheduleOptions",
    "VerifyOptions",
    "check_task",
    "parse_settings",
    "parse_sizes",
    "parse_targets",
]

#: graph passes that make one operator of several, which then rounds to 16 bits once
ROUNDING_PASSES = (
    "fold-batch-norm",
    "recognize-norms",
    "recognize-activations",
    "recognize-attention",
    "attention-operands",
)


@dataclass(frozen=True)
class GraphOptions:
    """Rewrites of the operator graph."""

    fold_constants: bool = True  # compute what depends on weights alone at compile time
    fold_batch_norm: bool = True  # put batch norm's scale into the convolution's weights
    #: compute norms, activations and attention that a model spells out operator by operator, so that each result is
    #: rounded to the model's 16-bit type as eager rounds it
    eager_roundings: bool = False

    @property
    def skipped_passes(self) -> tuple[str, ...]:
        """Names of the graph passes that are turned off."""
        if self.eager_roundings:
            rest = replace(self, eager_roundings=False).skipped_passes
            return tuple(dict.fromkeys((*rest, *ROUNDING_PASSES)))
        switches = {"fold-constants": self.fold_constants, "fold-batch-norm": self.fold_batch_norm}
        return tuple(name for name, on in switches.items() if not on)


@dataclass(frozen=True)
class ScheduleOptions:
    """What becomes a kernel."""

    fuse: bool = True  # one kernel for what can share one; off: a kernel per operator, to look for a wrong one
    epilogues: bool = True  # let matrix products and convolutions finish their elements in place
    prologues: bool = True  # let matrix products on GPUs compute what they multiply, where that takes less time
    off: tuple[str, ...] = ()  # names of passes to leave out, with commas between: schedule/passes.py, planning.py

    @property
    def switched_off(self) -> frozenset[str]:
        """Names of the passes that are left out."""
        epilogues = () if self.epilogues else ("epilogues", "glu", "conv-chains")
        return frozenset((*self.off, *epilogues, *(() if self.prologues else ("prologues",))))


@dataclass(frozen=True)
class CodegenOptions:
    """The generated sources."""

    sources: bool = True  # keep them in the package
    #: convolutions of 3x3 taps or more by tiles of 2x2 or 3x3 outputs; f43: also of 4x4, error up to 4 x eager's
    winograd: Literal["f23", "f33", "f43", "off"] = "f33"
    tf32: bool = False  # on a GPU: let products of float32 round their operands to 10 bits of mantissa
    #: the chip to choose tiles and splits for, where a target has several: of cuda:sm_90 h200 or h100
    gpu: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.gpu:
            chip_of(name)  # raises where there is none


@dataclass(frozen=True)
class BuildOptions:
    """The C++ compiler, which $CXX chooses."""

    flags: str = ""  # added to its own, as in a shell

    def __post_init__(self) -> None:
        try:
            shlex.split(self.flags)
        except ValueError as error:
            raise CompileError(f"cannot read option build.flags, {self.flags!r}: {str(error).lower()}") from None

    @property
    def words(self) -> tuple[str, ...]:
        """The flags one by one."""
        return tuple(shlex.split(self.flags))


@dataclass(frozen=True)
class VerifyOptions:
    """The comparison with the model, in float64."""

    factor: float = 2.0  # error allowed, as a multiple of eager's
    floor: float = 1e-7  # and on top of it
    seed: int = 0  # of the check inputs

    def __post_init__(self) -> None:
        for name, value in (("factor", self.factor), ("floor", self.floor)):
            if not 0 <= value < math.inf:
                raise CompileError(f"option verify.{name} has to be a number from 0, not {value}")


@dataclass(frozen=True)
class CompileOptions:
    """The options of one compile, checked.

    Attributes:
        targets: what to compile for, each once; "cpu" has become the level of the machine at hand.
        dtype: to compute in, "f32", "f16" or "bf16"; None: the model's own.
        mode: torch.compile's word.
        threads: default number of threads of the package, None: one per core where it runs.
        tune: measure kernel variants on this machine; so does mode "max-autotune".
        lock: file whose choices are repeated without measuring.
        verify: compare the package with the model before it is written.
        specialize: name of a dynamic size -> values for which the package holds variants of its own.
        strict: warnings are errors.
        jobs: C++ compilers at once, None: one per core.
        cache_dir: None for the user's cache directory.
        dump: directory for a file per stage, or None.
        quantize: which weights to store as integers, and how; None: as the model has them.
    """

    targets: tuple[Target, ...] = field(default_factory=lambda: (host_target(),))
    dtype: str | None = None
    mode: Mode = "default"
    threads: int | None = None
    tune: bool = False
    lock: Path | None = None
    verify: bool = True
    specialize: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    strict: bool = False
    jobs: int | None = None
    cache_dir: Path | None = None
    dump: Path | None = None
    quantize: Quantization | None = None
    graph: GraphOptions = field(default_factory=GraphOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    codegen: CodegenOptions = field(default_factory=CodegenOptions)
    build: BuildOptions = field(default_factory=BuildOptions)
    numerics: VerifyOptions = field(default_factory=VerifyOptions)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise CompileError(f"unknown mode '{self.mode}'", hint=f"Modes: {', '.join(get_args(Mode))}.")
        for name, value in (("threads", self.threads), ("jobs", self.jobs)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise CompileError(f"{name} has to be a number from 1, not {value!r}")
        if self.dtype not in (None, *DTYPES):
            raise CompileError(f"unknown dtype '{self.dtype}'", hint=f"Dtypes: {', '.join(DTYPES)}.")
        if self.strict and (ineffective := self.ineffective()):
            raise CompileError(ineffective[0], details=ineffective[1:], hint="Without strict this is a warning.")

        if self.lock is not None and self.tuning:
            raise CompileError(
                "a lock file repeats choices, tune and mode 'max-autotune' measure them anew: give one of them only"
            )

    @property
    def tuning(self) -> bool:
        """Whether kernel variants are to be measured."""
        return self.tune or self.mode == "max-autotune"

    @property
    def families(self) -> tuple[Family, ...]:
        """Of the targets, each once."""
        return tuple(dict.fromkeys(target.family for target in self.targets))

    def device(self, target: Target) -> Device:
        """The GPU that a target's kernels are made for."""
        return device_for(target, self.codegen.tf32, self.codegen.gpu)

    def fingerprint(self) -> str:
        """A hash of the options that alter generated code or objects."""
        altering = (
            self.dtype,
            self.quantize,
            self.mode,
            self.tune,
            self.graph,
            self.schedule,
            self.codegen,
            self.build,
        )
        return hashlib.sha256(repr(altering).encode()).hexdigest()

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults by name ("codegen.tf32"), as JSON values; no paths."""
        plain = CompileOptions(targets=self.targets)
        found: dict[str, Any] = {}
        for name in (n for n, (_, argument) in arguments_of(CompileArguments).items() if argument.recorded):
            if getattr(self, name) != getattr(plain, name):
                found[name] = getattr(self, name)
        for group in ("graph", "schedule", "codegen", "build", "numerics"):
            own, other = getattr(self, group), getattr(plain, group)
            for f in fields(own):
                if getattr(own, f.name) != getattr(other, f.name):
                    found[f"{group}.{f.name}"] = getattr(own, f.name)
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in found.items()}

    def ineffective(self) -> list[str]:
        """What was asked for and has no effect on these targets, a sentence each."""
        found: list[str] = []
        families = self.families
        if "cuda" not in families and self.mode == "reduce-overhead":
            found.append("mode 'reduce-overhead' has no effect on target cpu (CUDA graphs are for GPUs)")
        if "cpu" not in families and self.lock is not None:
            found.append("the lock file has no effect: there is no target cpu")
        capabilities = {target.capability for target in self.targets if not target.ptx}
        for name in self.codegen.gpu:
            if (wanted := chip_of(name).capability) not in capabilities:
                found.append(f"codegen.gpu={name} has no effect: there is no target cuda:sm_{wanted}")
        return found

    @classmethod
    def of(cls, **given: Unpack[CompileArguments]) -> CompileOptions:
        """Options from a user's values, by the names of arguments.py. Raises CompileError for one that is wrong or
        unknown."""
        values: dict[str, Any] = {
            name: argument.default for name, (_, argument) in arguments_of(CompileArguments).items()
        }
        values |= given
        quantize = [values.pop(name) for name in ("quantize", "quantize_skip", "calibrate", "max_error")]
        for name in ("cache_dir", "dump", "lock"):
            values[name] = None if values[name] is None else Path(values[name]).expanduser()
        return cls(
            targets=parse_targets(values.pop("target")),
            dtype=_dtype_name(values.pop("dtype")),
            specialize=parse_sizes(values.pop("specialize")),
            quantize=parse_quantization(quantize[0], quantize[1], quantize[2], quantize[3]),
            **parse_settings(values.pop("options") or ()),
            **values,
        )


def _dtype_name(dtype: object) -> str | None:
    if dtype is None:
        return None
    names = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float64": "f64"}
    text = str(dtype).removeprefix("torch.")
    return names.get(text, text)


# -- targets --------------------------------------------------------------------------------------------------------


def parse_targets(target: str | Sequence[str]) -> tuple[Target, ...]:
    """Targets by name: "cpu" (this machine's level), "cpu:x86-64-v3", "cuda:sm_90", or several with commas between;
    each once."""
    names = [name.strip() for name in (target.split(",") if isinstance(target, str) else target)]
    known = known_names()
    for name in filter(None, names):
        if name.partition(":")[0] in ("hip", "rocm", "metal", "xpu", "mps"):
            raise CompileError(
                f"cannot compile for target '{name}': mycc has no backend for it", hint=f"Targets: {', '.join(known)}."
            )
        if name not in known and (near := difflib.get_close_matches(name, known, 1, 0.4)):
            raise CompileError(f"unknown target '{name}'", hint=f"Did you mean {near[0]}? Targets: {', '.join(known)}.")
    return named_targets(",".join(names))


# -- sizes to specialise for -----------------------------------------------------------------------------------------


def check_task(task: str) -> None:
    """Raises CompileError for a task that does not exist; generation/tasks.py, which has the others, imports torch."""
    if task not in TASK_NAMES:
        near = difflib.get_close_matches(task, TASK_NAMES, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise CompileError(f"there is no task '{task}'", hint=f"{meant}Tasks: {', '.join(TASK_NAMES)}.")


def parse_sizes(texts: str | Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Values by name from texts such as "batch=1,8 seq=128", or from {"batch": (1, 8)}. Raises CompileError."""
    if isinstance(texts, Mapping):
        pairs = [(str(name), values) for name, values in texts.items()]
    else:
        words = [word for text in ([texts] if isinstance(texts, str) else texts) for word in text.split()]
        pairs = [_size_list(word) for word in words]
    found: dict[str, tuple[int, ...]] = {}
    for name, values in pairs:
        given = [values] if isinstance(values, int) else list(values)
        if not given or any(not isinstance(v, int) or isinstance(v, bool) or v < 0 for v in given):
            raise CompileError(f"cannot specialise {name} for {values!r}: sizes are whole numbers")
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *given)))
    return found


def _size_list(word: str) -> tuple[str, list[int]]:
    match = re.fullmatch(r"(\w+)=(\d+(?:,\d+)*)", word)
    if match is None:
        raise CompileError(f"cannot read '{word}'", hint="Sizes to specialise for look like batch=1,8 seq=128.")
    return match[1], [int(v) for v in match[2].split(",")]


# -- group.option=value ---------------------------------------------------------------------------------------------

_GROUPS: dict[str, tuple[str, type]] = {
    "graph": ("graph", GraphOptions),
    "schedule": ("schedule", ScheduleOptions),
    "codegen": ("codegen", CodegenOptions),
    "build": ("build", BuildOptions),
    "verify": ("numerics", VerifyOptions),
}


def parse_settings(settings: Mapping[str, object] | Iterable[str]) -> dict[str, Any]:
    """Option groups from `group.option=value` texts or a mapping, by the names of CompileOptions' fields."""
    changes: dict[str, dict[str, object]] = {}
    for name, value in _pairs(settings):
        group, option = _find(name)
        changes.setdefault(group, {})[option] = _convert(name, value, get_type_hints(_GROUPS[group][1])[option])
    return {_GROUPS[group][0]: _GROUPS[group][1](**values) for group, values in changes.items()}


def _pairs(settings: Mapping[str, object] | Iterable[str]) -> list[tuple[str, object]]:
    if isinstance(settings, Mapping):
        return list(settings.items())
    pairs: list[tuple[str, object]] = []
    for text in [settings] if isinstance(settings, str) else settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise CompileError(f"cannot read the option '{text}'", hint="It looks like schedule.fuse=false.")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _find(name: str) -> tuple[str, str]:
    known = [f"{group}.{f.name}" for group, (_, cls) in _GROUPS.items() for f in fields(cls)]
    if name in known:
        group, _, option = name.partition(".")
        return group, option
    near = difflib.get_close_matches(name, known, 1, 0.5)
    raise CompileError(
        f"unknown option '{name}'", hint=f"Did you mean {near[0]}?" if near else f"Options: {', '.join(known)}."
    )


def _convert(name: str, value: object, kind: Any) -> object:
    if get_origin(kind) is Literal:
        if str(value) not in get_args(kind):
            raise CompileError(f"option {name} is one of {', '.join(get_args(kind))}, not '{value}'")
        return str(value)
    if kind is bool:
        if isinstance(value, bool):
            return value
        for truth, words in ((True, ("true", "yes", "on", "1")), (False, ("false", "no", "off", "0"))):
            if str(value).lower() in words:
                return truth
        raise CompileError(f"option {name} is true or false, not '{value}'")
    if get_origin(kind) is tuple:
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, Iterable) or not all(isinstance(word, str) for word in names):
            raise CompileError(f"option {name} is a list of names with commas between, not {value!r}")
        return tuple(word.strip() for word in names if word.strip())
    try:
        return kind(value)
    except (TypeError, ValueError):
        what = {"int": "a whole number", "float": "a number"}.get(kind.__name__, kind.__name__)
        raise CompileError(f"option {name} is {what}, not '{value}'") from None
