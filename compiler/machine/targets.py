"""The machines a package can be built for, and how the user names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...runtime.errors import CompileError
from . import local_cpu
from .cpu import CPUS

__all__ = ["CUDA_TARGETS", "TARGETS", "Family", "Target", "host_target", "parse_targets"]

Family = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Target:
    """A machine to compile for: an instruction set level of a CPU, or a GPU.

    name: as the user and the manifest write it; arch: of the host program, as `uname -m` says it; isa: folder of the
    package under lib/; flags: of GCC and Clang for the host program; lanes: float32 elements of a vector; level: of its
    register tiles, which levels that add instructions for integers have from the one below ("": its own isa).
    family: "cpu" or "cuda". Of a GPU: capability (90 is compute capability 9.0), sms (multiprocessors of the largest
    chip of that capability), ptx: code that the driver compiles where it runs, for chips that have none of their own.
    """

    name: str
    arch: str
    isa: str
    flags: tuple[str, ...]
    lanes: int
    family: Family = "cpu"
    capability: int = 0
    sms: int = 0
    ptx: bool = False
    level: str = ""

    @property
    def tiles(self) -> str:
        """The name of its set of register tiles."""
        return self.level or self.isa


# GCC moves 8 bytes through MMX registers where it has few others, and leaves the x87 stack full behind them: norms and
# eigenvalues of whoever calls next, as numpy's, become NaN.
_NO_MMX = "-mno-mmx"


def _x86(level: str, *flags: str, adds: str = "") -> Target:
    isa, flags = f"{level}+{adds}" if adds else level, (f"-march={level}", "-mprfchw", _NO_MMX, *flags)
    return Target(f"cpu:{isa}", "x86_64", isa, flags, CPUS[level].lanes, level=level if adds else "")


# Outlined atomics would call into libc to learn what the CPU has. Scheduling before registers are allocated makes GCC
# spill sums of the matrix tiles.
_AARCH64 = ("-mno-outline-atomics", "-fno-schedule-insns")


def _arm(architecture: str, adds: str = "") -> Target:
    isa, flags = f"aarch64+{adds}" if adds else "aarch64", (f"-march={architecture}", *_AARCH64)
    return Target(f"cpu:{isa}", "aarch64", isa, flags, CPUS["aarch64"].lanes, level="aarch64" if adds else "")


# GCC keeps to 256 bits on generic AVX-512 machines unless told otherwise.
_WIDE = "-mprefer-vector-width=512"

_VNNI = ("-mavx512vnni",)

# From the least to the most demanding within an architecture.
TARGETS: tuple[Target, ...] = (
    _x86("x86-64-v2"),
    _x86("x86-64-v3"),
    _x86("x86-64-v3", "-mavxvnni", adds="vnni"),
    _x86("x86-64-v4", _WIDE),
    _x86("x86-64-v4", _WIDE, *_VNNI, adds="vnni"),
    _x86("x86-64-v4", _WIDE, *_VNNI, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16", adds="amx"),
    _arm("armv8-a"),
    _arm("armv8.2-a+dotprod", adds="dotprod"),
)

#: the host program of a GPU target runs on every CPU of the builder's architecture
_PLAIN = {"x86_64": ("-march=x86-64-v2", _NO_MMX), "aarch64": ("-march=armv8-a", "-mno-outline-atomics")}


def _cuda(name: str, capability: int, sms: int, ptx: bool = False) -> Target:
    arch = local_cpu.machine()
    return Target(f"cuda:{name}", arch, f"cuda-{name}", _PLAIN.get(arch, ()), 1, "cuda", capability, sms, ptx)


CUDA_TARGETS: tuple[Target, ...] = (
    _cuda("sm_80", 80, 108),  # A100
    _cuda("sm_90", 90, 132),  # H100 and H200, SXM
    _cuda("sm_100", 100, 148),  # B200
    _cuda("ptx", 80, 108, ptx=True),
)

# x86-64 psABI, table 3.1 (micro-architecture levels), in the words of /proc/cpuinfo.
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AMX = frozenset({"avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"})
#: what each level needs, from the least to the best of an architecture
_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("cpu:x86-64-v2", _V2),
    ("cpu:x86-64-v3", _V3),
    ("cpu:x86-64-v3+vnni", _V3 | {"avx_vnni"}),
    ("cpu:x86-64-v4", _V4),
    ("cpu:x86-64-v4+vnni", _V4 | {"avx512_vnni"}),
    ("cpu:x86-64-v4+amx", _V4 | _AMX),
    ("cpu:aarch64", frozenset()),
    ("cpu:aarch64+dotprod", frozenset({"atomics", "asimddp"})),
)


def parse_targets(text: str) -> tuple[Target, ...]:
    """The targets that a comma-separated list names, in its order, each once.

    "cpu" is the level of the CPU at hand, under its full name; "cpu:x86-64-v3" and the like name a level. "cuda" is the
    GPU at hand, "cuda:sm_90" and the like name one, "cuda:ptx" is code for chips of compute capability 8.0 and later.

    Raises:
        CompileError: an unknown name, an empty list, a CPU below every level, or no GPU where "cuda" is asked for.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise CompileError("no target is named", hint=_known())
    devices = {"cpu": host_target, "cuda": device_target}
    found = [devices[name]() if name in devices else _by_name(name) for name in names]
    return tuple(dict.fromkeys(found))


def device_target() -> Target:
    """The target of this machine's first GPU.

    Raises:
        CompileError: there is no driver or no device, or no target for it.
    """
    from .local_gpu import compute_capability

    capability = compute_capability()
    for target in CUDA_TARGETS:
        if target.capability == capability and not target.ptx:
            return target
    if capability > 80:
        return _by_name("cuda:ptx")
    version = f"{capability // 10}.{capability % 10}"
    raise CompileError(f"this GPU has compute capability {version}; mycc compiles for 8.0 and later", hint=_known())


def host_target(arch: str | None = None, flags: frozenset[str] | None = None) -> Target:
    """The best target that a CPU with these features runs; the CPU at hand by default.

    Raises:
        CompileError: there is none.
    """
    arch = local_cpu.machine() if arch is None else arch
    flags = local_cpu.cpu_flags() if flags is None else flags
    if arch not in ("x86_64", "aarch64"):
        raise CompileError(f"this machine's architecture, {arch}, has no target", hint=_known())
    own = [_by_name(name) for name, needed in _LEVELS if needed <= flags]
    best = next((target.name for target in reversed(own) if target.arch == arch), None)
    if best is None:
        missing = " ".join(sorted(_V2 - flags))
        raise CompileError(
            f"this CPU is below x86-64-v2, the least that mycc compiles for: it lacks {missing}",
            hint="Name a target to build for another machine. " + _known(),
        )
    return _by_name(best)


def runs_on(name: str, host: Target) -> bool:
    """Whether code for the target `name` runs on every machine whose best target is `host`."""
    needed = dict(_LEVELS)
    if name not in needed or host.name not in needed or _by_name(name).arch != host.arch:
        return name == host.name
    return needed[name] <= needed[host.name]


def runs_on_this_machine(facts: Mapping[str, Any]) -> bool:
    """Whether one of the targets of a package (runtime.inspect.inspect_package) runs on this machine."""
    return any(runs_here(target) for row in facts["targets"] for target in parse_targets(row["target"]))


def runs_here(target: Target) -> bool:
    """Whether code for a target runs on this machine."""
    if target.family == "cpu":
        needed = dict(_LEVELS)[target.name]
        return target.arch == local_cpu.machine() and needed <= local_cpu.cpu_flags()
    from .local_gpu import compute_capability

    try:
        capability = compute_capability()
    except CompileError:
        return False
    if target.ptx or target.capability < 90:  # sm_8x code runs on 8.y, y >= x
        return capability >= target.capability if target.ptx else capability // 10 == target.capability // 10
    return capability == target.capability


def target_folder(name: str) -> str:
    """The folder of a target's members: "x86-64-v3" for "cpu:x86-64-v3", "cuda-sm_90" for "cuda:sm_90"."""
    family, _, own = name.partition(":")
    return own if family == "cpu" else f"{family}-{own}"


def _by_name(name: str) -> Target:
    for target in (*TARGETS, *CUDA_TARGETS):
        if target.name == name:
            return target
    raise CompileError(f"unknown target {name!r}", hint=_known())


def known_names() -> list[str]:
    """Every name that `parse_targets` takes."""
    return ["cpu", *(t.name for t in TARGETS), "cuda", *(t.name for t in CUDA_TARGETS)]


def _known() -> str:
    cpu, cuda = (", ".join(target.name for target in targets) for targets in (TARGETS, CUDA_TARGETS))
    return f"Known targets: cpu (the level of this machine), {cpu}; cuda (this machine's GPU), {cuda}."
