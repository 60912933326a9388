"""The machines a package can be built for, and how the user names them."""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.errors import CompileError
from . import linux

__all__ = ["TARGETS", "Target", "host_target", "parse_targets"]


@dataclass(frozen=True)
class Target:
    """An instruction set level to compile for.

    name: as the user and the manifest write it; arch: as `uname -m` says it; isa: folder of the package under lib/;
    flags: of GCC and Clang; lanes: float32 elements of a vector.
    """

    name: str
    arch: str
    isa: str
    flags: tuple[str, ...]
    lanes: int


def _x86(level: str, lanes: int, *flags: str) -> Target:
    return Target(f"cpu:{level}", "x86_64", level, (f"-march={level}", *flags), lanes)


# From the least to the most demanding within an architecture.
TARGETS: tuple[Target, ...] = (
    _x86("x86-64-v2", 4),
    _x86("x86-64-v3", 8),
    # GCC keeps to 256 bits on generic AVX-512 machines unless told otherwise.
    _x86("x86-64-v4", 16, "-mprefer-vector-width=512"),
    # Outlined atomics would call into libc to learn what the CPU has.
    Target("cpu:aarch64", "aarch64", "aarch64", ("-march=armv8-a", "-mno-outline-atomics"), 4),
)

# x86-64 psABI, table 3.1 (micro-architecture levels), in the words of /proc/cpuinfo: what each level adds.
_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("cpu:x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})),
    ("cpu:x86-64-v3", frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})),
    ("cpu:x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)


def parse_targets(text: str) -> tuple[Target, ...]:
    """The targets that a comma-separated list names, in its order, each once.

    "cpu" is the level of the CPU at hand, under its full name; "cpu:x86-64-v3" and the like name a level.

    Raises:
        CompileError: an unknown name, an empty list, or a CPU below every level.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise CompileError("no target is named", hint=_known())
    found = [host_target() if name == "cpu" else _by_name(name) for name in names]
    return tuple(dict.fromkeys(found))


def host_target(arch: str | None = None, flags: frozenset[str] | None = None) -> Target:
    """The best target that a CPU with these features runs; the CPU at hand by default.

    Raises:
        CompileError: there is none.
    """
    arch = linux.machine() if arch is None else arch
    flags = linux.cpu_flags() if flags is None else flags
    if arch == "aarch64":
        return _by_name("cpu:aarch64")
    if arch != "x86_64":
        raise CompileError(f"this machine's architecture, {arch}, has no target", hint=_known())
    best, needed = None, frozenset[str]()
    for name, added in _LEVELS:
        needed |= added
        if not needed <= flags:
            break
        best = name
    if best is None:
        missing = " ".join(sorted(_LEVELS[0][1] - flags))
        raise CompileError(
            f"this CPU is below x86-64-v2, the least that mycc compiles for: it lacks {missing}",
            hint="Name a target to build for another machine. " + _known(),
        )
    return _by_name(best)


def runs_on(name: str, host: Target) -> bool:
    """Whether code for the target `name` runs on a machine whose best target is `host`."""
    order = [level for level, _ in _LEVELS]
    if name not in order or host.name not in order:
        return name == host.name
    return order.index(name) <= order.index(host.name)


def _by_name(name: str) -> Target:
    for target in TARGETS:
        if target.name == name:
            return target
    raise CompileError(f"unknown target {name!r}", hint=_known())


def _known() -> str:
    return "Known targets: cpu (the level of this machine), " + ", ".join(target.name for target in TARGETS) + "."
