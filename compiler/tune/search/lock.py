"""Lock files: choices with their measured times, in a JSON file that a person can read and another machine can repeat.

{
 "mycc_lock": 1,
 "mycc": "0.1.0",
 "machine": {"cpu": "...", "cores": 2},
 "threads": 2,
 "run_us": {"cost_model": 5210.0, "chosen": 4980.5},
 "targets": {
  "cpu:x86-64-v3": {
   "gemm f32 m=128 n=3072 k=768": {
    "choice": {"depth": 256},
    "tried": [
     {"choice": {}, "us": 331.0},
     {"choice": {"depth": 256}, "us": 310.2},
     ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....runtime.errors import CompileError
from ....runtime.files import check_regular
from ....runtime.strict_json import decode, encode
from ....runtime.text import counted
from ..choices.choices import SHARED, Choice, Choices
from ..choices.space import unknown_part
from .gpu_space import tile_of

__all__ = ["FORMAT", "Lock", "LockedKernel", "Trial", "fit", "read_lock", "write_lock"]

FORMAT = 1

#: first words of keys as they were -> as they are; locks with the old ones are read until version 0.4
RENAMED_KEYS = {"gemm-free": "gemm-unpacked", "gemm-pairs": "gemm-glu"}


@dataclass(frozen=True)
class Trial:
    """A candidate and the time of all kernels of its key in a run, in microseconds; None: it could not be measured."""

    choice: Choice
    us: float | None

    def as_dict(self) -> dict[str, Any]:
        return {"choice": self.choice.as_dict(), "us": None if self.us is None else round(self.us, 3)}


@dataclass(frozen=True)
class LockedKernel:
    """What was chosen for the kernels of a key, and what was tried; the first trial is the cost model's."""

    choice: Choice
    tried: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Lock:
    """A tuned model: target (or SHARED) -> key -> kernel. warnings: of a file that was read, a sentence each."""

    version: str
    targets: Mapping[str, Mapping[str, LockedKernel]]
    machine: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    run_us: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def choices(self, algorithms: Sequence[str] | None = None) -> Choices:
        """All that it chooses; with `algorithms` only what is known, and of algorithms what is among them."""
        return Choices({
            target: {
                key: row.choice
                for key, row in rows.items()
                if algorithms is None or not _refused(target, key, row.choice, algorithms)
            }
            for target, rows in self.targets.items()
        })  # fmt: skip


def write_lock(lock: Lock, path: Path) -> None:
    """Raises CompileError when the file cannot be written."""
    _check_file(path, "write")
    try:
        path.write_text(format_lock(lock), encoding="utf-8")
    except OSError as error:
        raise CompileError(f"cannot write the lock file '{path}': {error.strerror}") from None


def _check_file(path: Path, use: str) -> None:
    """A FIFO would wait for the other side."""
    try:
        check_regular(path)
    except OSError as error:
        raise CompileError(f"cannot {use} the lock file '{path}': {error.strerror}") from None


def format_lock(lock: Lock) -> str:
    """The lock as JSON, a line for each kernel's choice and for each trial."""
    head = {
        "mycc_lock": FORMAT, "mycc": lock.version, "machine": dict(lock.machine), "threads": lock.threads,
        "run_us": {name: round(us, 3) for name, us in lock.run_us.items()},
    }  # fmt: skip
    lines = [f" {encode(name)}: {encode(value)}," for name, value in head.items()]
    targets = ",\n".join(
        f"  {encode(target)}: {{\n{_format_kernels(rows)}\n  }}" for target, rows in sorted(lock.targets.items())
    )
    return "\n".join(("{", *lines, ' "targets": {', targets, " }", "}")) + "\n"


def _format_kernels(rows: Mapping[str, LockedKernel]) -> str:
    kernels = []
    for key, row in sorted(rows.items()):
        trials = ",\n".join(f"     {encode(trial.as_dict())}" for trial in row.tried)
        tried = f"[\n{trials}\n    ]" if trials else "[]"
        choice = encode(row.choice.as_dict())
        kernels.append(f'   {encode(key)}: {{\n    "choice": {choice},\n    "tried": {tried}\n   }}')
    return ",\n".join(kernels)


def _renamed(key: str) -> str:
    first, space, rest = key.partition(" ")
    return RENAMED_KEYS.get(first, first) + space + rest


def _old_names(path: Path, targets: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """A warning where keys of the file have their old names."""
    old = sorted({key.partition(" ")[0] for rows in targets.values() for key in rows} & RENAMED_KEYS.keys())
    if not old:
        return ()
    names = ", ".join(f"'{name}' is now '{RENAMED_KEYS[name]}'" for name in old)
    return (f"'{path}' has names of an earlier mycc: {names}; write it again with --tune",)


def read_lock(path: Path) -> Lock:
    """The lock in a file. Raises CompileError: there is none, or it is no lock that this version reads."""
    _check_file(path, "read")
    try:
        value = decode(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CompileError(f"cannot read the lock file '{path}': {error.strerror}") from None
    except ValueError as error:
        raise CompileError(f"'{path}' is not a lock file: {error}", hint=_HINT) from None
    if not isinstance(value, dict) or "mycc_lock" not in value:
        raise CompileError(f"'{path}' is not a lock file", hint=_HINT)
    if value["mycc_lock"] != FORMAT:
        raise CompileError(
            f"'{path}' is a lock file of format {value['mycc_lock']}; this mycc reads {FORMAT}", hint=_HINT
        )
    try:
        targets = {
            target: {_renamed(key): _kernel(row) for key, row in rows.items()}
            for target, rows in value["targets"].items()
        }
        facts = dict(value["machine"]), int(value["threads"]), dict(value["run_us"])
        return Lock(str(value["mycc"]), targets, *facts, _old_names(path, value["targets"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CompileError(f"the lock file '{path}' is damaged: {type(error).__name__} {error}", hint=_HINT) from None


_HINT = "mycc compile --tune writes one beside the package."


def _kernel(row: Mapping[str, Any]) -> LockedKernel:
    return LockedKernel(_choice(row["choice"]), tuple(Trial(_choice(t["choice"]), t["us"]) for t in row["tried"]))


def _choice(values: Mapping[str, Any]) -> Choice:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(f"{name} is {value!r}, not a whole number or a word")
    return Choice.of(values)


def fit(
    lock: Lock, path: Path, version: str, targets: Sequence[str], keys: Sequence[str], algorithms: Sequence[str]
) -> tuple[Choices, list[str]]:
    """The choices of a lock for a compile with these targets and kernel keys, and what does not fit, a sentence each.

    algorithms: those of convolutions that the options allow.

    Raises CompileError: nothing of it fits, so it is another model's or another target's.
    """
    known = [target for target in lock.targets if target in (*targets, SHARED)]
    own = [target for target in known if target != SHARED]
    if not own:
        has = ", ".join(target for target in lock.targets if target != SHARED) or "none"
        raise CompileError(f"the lock file '{path}' has no choices for {', '.join(targets)}; it is for {has}")
    wanted, locked = set(keys), {key for target in own for key in lock.targets[target]}
    if wanted and not wanted & locked:
        raise CompileError(
            f"the lock file '{path}' is for another model: none of its {len(locked)} kernels is in this one", hint=_HINT
        )
    problems = []
    if lock.version != version:
        problems.append(f"the lock file '{path}' was written by mycc {lock.version}; this is {version}")
    if absent := sorted(wanted - locked):
        are = "is" if len(absent) == 1 else "are"
        what = f"{len(absent)} of the model's kernels {are} not in the lock file '{path}'"
        problems.append(f"{what}; the cost model chooses for: {_some(absent)}")
    if unknown := sorted(locked - wanted):
        kernels, are = counted(len(unknown), "kernel"), "is" if len(unknown) == 1 else "are"
        what = f"{kernels} of the lock file '{path}' {are} not in this model"
        problems.append(f"{what}: {_some(unknown)}")
    kept: dict[str, dict[str, Choice]] = {target: {} for target in known}
    for target in known:
        for key, row in lock.targets[target].items():
            if wrong := _refused(target, key, row.choice, algorithms):
                problems.append(f"the lock file '{path}' chooses {wrong} for {key}: unknown, or the options forbid it")
            elif key in wanted:
                kept[target][key] = row.choice
    return Choices(kept), list(dict.fromkeys(problems))


def _refused(target: str, key: str, choice: Choice, algorithms: Sequence[str]) -> str | None:
    """The part of a choice that is unknown, or that the options do not allow."""
    if target.startswith("cuda"):
        try:
            tile_of(key, choice)
        except ValueError:
            return str(choice)
        return None
    algorithm = choice.get("algorithm", "")
    return unknown_part(key, choice) or (f"algorithm {algorithm}" if algorithm not in ("", *algorithms) else None)


def _some(keys: Sequence[str]) -> str:
    shown = "; ".join(keys[:3])
    return f"{shown}; ..." if len(keys) > 3 else shown
