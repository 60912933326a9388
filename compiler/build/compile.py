"""From the texts of generated sources to the bytes of model.so.

    sources + headers -> objects (in parallel, each from the cache if it is there) -> one linked and checked library

The same input gives the same bytes: units are linked in the order of their names, and no path, time or random number
gets into an object, because compilers run inside the working folder and see relative names only.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from ...runtime.errors import CompileError
from ..machine.local_cpu import available_cores
from ..machine.targets import Target
from . import link
from .cache import DEFAULT_LIMIT, Cache, encode_key, storage_error
from .images import KernelImage
from .includes import Headers
from .precompiled import HEADER, Precompiled, remove_header
from .processes import Processes
from .toolchain import Toolchain, compiler_environment, find_toolchain
from .workspace import keep_failed, workspace

__all__ = ["COMPILE_FLAGS", "BuildOptions", "BuildResult", "build", "compile_flags"]

COMPILE_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden",
    # Safe one by one: nobody reads errno or the floating point flags; NaN, infinities and signed zeros stay.
    "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
    # What is fused says so: compilers fuse in one form of an expression and not in another
    # (schedule/loops/fma_contraction.py).
    "-ffp-contract=off",
    "-fno-plt", "-fno-asynchronous-unwind-tables", "-Wno-psabi", "-pipe",
    # What distributions switch on by default and what calls into libc.
    "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fno-threadsafe-statics",
    "-ffunction-sections", "-fdata-sections", "-fno-ident",
)  # fmt: skip
#: the host program calls kernels one after another: what a compiler finds in a long one is not worth its seconds (793
#: calls: 4.5 s, so 1.9)
_PROGRAM, _LONG_PROGRAM = "program.cpp", 64 << 10
_LONG_PROGRAM_FLAGS = ("-O1", "-fno-inline")
SUPPORT = Path(__file__).with_name("support.cpp")
_SUPPORT_UNIT = "mycc_support"
#: seconds of a wait: an interrupt that comes between Python's look at signals and the wait itself is seen at its end
_INTERRUPTIBLE = 1.0
_SUPPORT_FLAGS = ("-fno-builtin", "-ffreestanding")
_FAMILY_FLAGS = {"gcc": (), "clang": (), "zig": ("-fno-sanitize=all",)}
_SUPPORT_FAMILY_FLAGS = {"gcc": ("-fno-tree-loop-distribute-patterns",), "clang": (), "zig": ()}
#: What a compiler says when it fails by a fault of its own, and what it is then asked to leave out, one after another.
#: GCC 12.2 fails so (compute_live_loop_exits) for some loops that store half a vector of AVX2.
_FAULTS = ("internal compiler error", "PLEASE submit a bug report")
_LESS: dict[str, tuple[tuple[str, ...], ...]] = {
    "gcc": (("-fno-tree-ch",), ("-O1",)),
    "clang": (("-O1",),),
    "zig": (("-O1",),),
}
_UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FIRST_INCLUDE = re.compile(r'^#include "([^"]*)"', re.MULTILINE)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
_ERROR_LINES = 8


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    jobs: compilers that run at once, None for one per available core; cache_dir: None for the default folder;
    cache_limit: bytes; version: mycc's own, part of every key; flags: added for every unit; unit_flags: added for the
    units named.
    """

    jobs: int | None = None
    cache_dir: Path | None = None
    cache_limit: int = DEFAULT_LIMIT
    version: str = ""
    flags: tuple[str, ...] = ()
    unit_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildResult:
    """What was built.

    library: the bytes of model.so; compiled, cached: translation units; seconds: of the whole build;
    compiler: "g++ 12.2.0"; log: a line per event (unit, time, warnings). For a GPU: images, all in one piece, and
    kernels, in the order of their numbers.
    """

    library: bytes
    compiled: int
    cached: int
    seconds: float
    compiler: str
    log: tuple[str, ...]
    images: bytes = b""
    kernels: tuple[KernelImage, ...] = ()


@dataclass(frozen=True)
class _Unit:
    """A translation unit: its text, its flags, the headers it includes (path -> text)."""

    name: str
    text: str
    flags: tuple[str, ...]
    headers: Mapping[str, str]

    @property
    def source(self) -> str:
        return self.name if self.name.endswith(".cpp") else f"{self.name}.cpp"

    @property
    def object(self) -> str:
        return f"{self.name}.o"


def compile_flags(target: Target, toolchain: Toolchain) -> tuple[str, ...]:
    """The flags of every translation unit for this target."""
    # zig has its own names for CPUs; its default for an architecture is the baseline.
    machine = () if toolchain.family == "zig" else target.flags
    return (*COMPILE_FLAGS, *machine, *_FAMILY_FLAGS[toolchain.family])


def build(
    sources: Mapping[str, str],
    headers: Mapping[str, str],
    target: Target,
    options: BuildOptions | None = None,
) -> BuildResult:
    """Compiles and links one target's library.

    sources: name -> C++ text of the translation units ("program" or "program.cpp"), one of which defines
    mycc_program_get().
    headers: path -> text of the generated headers, which come before the project's own in runtime/include.

    Raises:
        CompileError: no compiler; generated code that does not compile or links against more than libm; a full disk.
    """
    start = time.perf_counter()
    options = options or BuildOptions()
    cache = Cache(options.cache_dir, options.cache_limit)
    toolchain = find_toolchain(target.arch, cache)
    units = _units(sources, Headers(headers), target, toolchain, options)
    library_key = _library_key(units, target, toolchain, options)
    n = len(sources)

    library = cache.get(library_key)
    if library is not None:
        return BuildResult(library, 0, n, time.perf_counter() - start, toolchain.label, (f"all {n} units cached",))
    run = _Build(cache, toolchain, target, options)
    library = run.make(units, library_key)
    compiled = len(run.compiled - {_SUPPORT_UNIT})
    seconds = time.perf_counter() - start
    return BuildResult(library, compiled, n - compiled, seconds, toolchain.label, tuple(run.log))


def _units(
    sources: Mapping[str, str], headers: Headers, target: Target, toolchain: Toolchain, options: BuildOptions
) -> list[_Unit]:
    """All translation units by name, the support functions among them."""
    for name in sources:
        if not _UNIT_NAME.fullmatch(name) or name == _SUPPORT_UNIT:
            raise ValueError(f"a translation unit cannot be called {name!r}")
    flags = (*compile_flags(target, toolchain), *options.flags)
    units = [
        _Unit(name, text, (*flags, *_own_flags(name, text), *options.unit_flags.get(name, ())), headers.of(text))
        for name, text in sources.items()
    ]
    support_flags = (*flags, *_SUPPORT_FLAGS, *_SUPPORT_FAMILY_FLAGS[toolchain.family])
    units.append(_Unit(_SUPPORT_UNIT, SUPPORT.read_text(), support_flags, {}))
    return sorted(units, key=lambda unit: unit.name)


def _own_flags(name: str, text: str) -> tuple[str, ...]:
    """What a unit compiles with beside the flags of all."""
    return _LONG_PROGRAM_FLAGS if name == _PROGRAM and len(text) > _LONG_PROGRAM else ()


def _common_key(what: str, toolchain: Toolchain, options: BuildOptions) -> list[tuple[str, str]]:
    return [("what", what), ("mycc", options.version), ("compiler", toolchain.identity)]


def _object_key(unit: _Unit, toolchain: Toolchain, options: BuildOptions) -> bytes:
    parts = _common_key("object 1", toolchain, options)
    parts += [("command", shlex.join(_compile_command(unit, toolchain))), (f"source {unit.name}", unit.text)]
    parts += [(f"header {path}", text) for path, text in unit.headers.items()]
    return encode_key(parts)


def _library_key(units: Sequence[_Unit], target: Target, toolchain: Toolchain, options: BuildOptions) -> bytes:
    """Everything that the objects' keys are made of, each header once."""
    parts = _common_key("library 1", toolchain, options)
    parts += [("command", shlex.join(_link_command(units, toolchain, target))), ("exports", link.EXPORT_MAP)]
    for unit in units:
        parts += [(f"command {unit.name}", shlex.join(_compile_command(unit, toolchain)))]
        parts += [(f"source {unit.name}", unit.text), (f"headers {unit.name}", "\n".join(unit.headers))]
    headers = {path: text for unit in units for path, text in unit.headers.items()}
    parts += [(f"header {path}", headers[path]) for path in sorted(headers)]
    return encode_key(parts)


def _compile_command(unit: _Unit, toolchain: Toolchain) -> list[str]:
    # GCC makes some local symbols from a random number unless it is told one.
    seed = [f"-frandom-seed={unit.name}"] if toolchain.family == "gcc" else []
    return [*toolchain.command, *unit.flags, *seed, "-I.", "-c", unit.source, "-o", unit.object]


def _link_command(units: Sequence[_Unit], toolchain: Toolchain, target: Target) -> list[str]:
    return link.link_command(toolchain, target, [unit.object for unit in units], "exports.map", "model.so")


def _begins_with(text: str, header: str) -> bool:
    """Whether a header is the first thing that a unit includes."""
    first = _FIRST_INCLUDE.search(text)
    return first is not None and first.group(1) == header


def _is_custom(name: str) -> bool:
    """Whether a translation unit is of the user's own."""
    return name.startswith("custom_")


def _is_fault(output: str) -> bool:
    """Whether a compiler says that it failed by itself, not by what it was given."""
    return any(words in output for words in _FAULTS)


class _Failed(Exception):
    """A compiler or linker gave an exit code."""

    def __init__(self, message: str, command: list[str], code: int, output: str) -> None:
        super().__init__(message)
        self.message = message
        self.command = command
        self.code = code
        self.output = output


class _Build:
    """One build that the library cache could not serve."""

    def __init__(self, cache: Cache, toolchain: Toolchain, target: Target, options: BuildOptions) -> None:
        self.cache = cache
        self.toolchain = toolchain
        self.target = target
        self.options = options
        self.jobs = options.jobs or available_cores()
        self.compiled: set[str] = set()
        self.log: list[str] = [f"{target.isa}; {toolchain.label}; {self.jobs} jobs"]

    def make(self, units: Sequence[_Unit], library_key: bytes) -> bytes:
        with workspace(self.cache.folder) as folder:
            processes = Processes(folder, compiler_environment(folder))
            try:
                self._write(units, folder)
                self._objects(units, folder, processes)
                library = self._link(units, folder, processes)
            except _Failed as failed:
                raise self._explain(failed, folder) from None
            except OSError as error:
                raise storage_error(error, self.cache.folder) from error
        self.cache.put(library_key, library)
        self.cache.trim()
        return library

    def _write(self, units: Sequence[_Unit], folder: Path) -> None:
        """Lays out all that a compiler reads: what lies here can also be compiled by hand."""
        texts = {unit.source: unit.text for unit in units}
        for unit in units:
            texts |= unit.headers
        texts["exports.map"] = link.EXPORT_MAP
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _objects(self, units: Sequence[_Unit], folder: Path, processes: Processes) -> None:
        """Puts every unit's object into the folder; the longest units, which are likely the slowest, first."""
        missing: list[tuple[_Unit, bytes]] = []
        for unit in units:
            key = _object_key(unit, self.toolchain, self.options)
            if (stored := self.cache.get(key)) is None:
                missing.append((unit, key))
            else:
                (folder / unit.object).write_bytes(stored)
                self.log.append(f"{unit.name}: cached")
        missing.sort(key=lambda pair: -len(pair[0].text))
        to_make = self._precompiled([unit for unit, _ in missing], folder)
        with ThreadPoolExecutor(max(1, min(self.jobs, len(missing)))) as pool:
            try:
                compiled = [pool.submit(self._compile, unit, key, folder, processes) for unit, key in missing]
                compiled += [pool.submit(self._precompile, header, folder, processes) for header in to_make]
                for future in compiled:  # in order, so that of several failures always the same one is reported
                    while not wait([future], _INTERRUPTIBLE).done:
                        pass
                    self.log += future.result()
            except BaseException:
                processes.stop()
                raise

    def _precompiled(self, units: Sequence[_Unit], folder: Path) -> list[Precompiled]:
        """Lays the precompiled header out where units begin with it; gives what is to be made for the next builds."""
        users = [unit for unit in units if _begins_with(unit.text, HEADER)]
        if self.toolchain.family != "gcc" or not users:
            return []
        flags, texts = users[0].flags, users[0].headers
        own = {HEADER: texts[HEADER], **Headers(texts).of(texts[HEADER])}
        identity = _common_key("header 1", self.toolchain, self.options)
        header = Precompiled(self.cache, (*self.toolchain.command, *flags), identity, own)
        return [] if header.place(folder) or not header.is_worth_making() else [header]

    def _precompile(self, header: Precompiled, folder: Path, processes: Processes) -> list[str]:
        """A compiler that fails here says so in the log alone: units compile without it."""
        start = time.perf_counter()
        code, _ = processes.run(header.making)
        if code != 0:
            return [f"{HEADER}: the compiler could not precompile it"]
        header.keep(folder)
        return [f"{HEADER}: precompiled in {time.perf_counter() - start:.2f} s"]

    def _compile(self, unit: _Unit, key: bytes, folder: Path, processes: Processes) -> list[str]:
        start = time.perf_counter()
        command = _compile_command(unit, self.toolchain)
        code, output = processes.run(command)
        notes: list[str] = []
        if code > 0 and remove_header(folder):  # some GCCs stop where they cannot map the file to its address
            code, output = processes.run(command)
        for less in _LESS[self.toolchain.family]:
            if code == 0 or not _is_fault(output):
                break
            notes.append(f"{unit.name}: the compiler failed by a fault of its own; again with {shlex.join(less)}")
            code, output = processes.run([*command, *less])
        if code != 0:
            what = "the C++ kernel of a custom operator" if _is_custom(unit.name) else "generated code"
            raise _Failed(f"{unit.name}: {what} did not compile", command, code, output)
        self.cache.put(key, (folder / unit.object).read_bytes())
        self.compiled.add(unit.name)
        return [*notes, f"{unit.name}: compiled in {time.perf_counter() - start:.2f} s", *output.splitlines()]

    def _link(self, units: Sequence[_Unit], folder: Path, processes: Processes) -> bytes:
        start = time.perf_counter()
        command = _link_command(units, self.toolchain, self.target)
        code, output = processes.run(command)
        if foreign := link.undefined_symbols(output) if code != 0 else []:
            if custom := [unit.name for unit in units if _is_custom(unit.name)]:
                raise CompileError(
                    f"{', '.join(custom)}: a C++ kernel may call libm and nothing else, not {', '.join(foreign)}",
                    hint="See docs/custom-operators.md: memory comes from mycc::scratch, threads from parallel_for.",
                )
            raise self._kept(link.foreign_symbols(foreign), command, folder)
        if code != 0:
            raise _Failed("generated code did not link", command, code, output)
        library = (folder / "model.so").read_bytes()
        try:
            link.check_library(library)
        except CompileError as error:
            raise self._kept(error, command, folder) from None
        self.log += [f"linked in {time.perf_counter() - start:.2f} s, {len(library)} bytes", *output.splitlines()]
        return library

    def _explain(self, failed: _Failed, folder: Path) -> CompileError:
        """What a compiler's failure means to the user."""
        lines = [line for line in failed.output.splitlines() if line.strip()]
        if full := [line for line in lines if any(text in line for text in _DISK_FULL)]:
            return storage_error(OSError(full[0]), self.cache.folder)
        if failed.code < 0 or "Killed signal" in failed.output:
            return CompileError(
                f"the C++ compiler was killed; the memory may be too small for {self.jobs} of them at once",
                details=lines[:_ERROR_LINES],
                hint="Try --jobs 1.",
            )
        errors = [line for line in lines if "error" in line] or lines
        if _is_custom(failed.message):
            return CompileError(failed.message, details=errors[:_ERROR_LINES])
        return self._kept(CompileError(failed.message, details=errors[:_ERROR_LINES]), failed.command, folder)

    def _kept(self, error: CompileError, command: Sequence[str], folder: Path) -> CompileError:
        """The same error with the sources kept beside it: the fault is in the generated code."""
        script = f'cd "$(dirname "$0")" || exit 1\n{shlex.join(command)}\n'
        (folder / "reproduce.sh").write_text(script)
        name = hashlib.sha256(f"{error.message}{script}".encode()).hexdigest()[:12]
        kept = keep_failed(self.cache.folder, folder, name)
        own = shlex.join(self.options.flags)
        blame = f"Compile without your flags, {own}" if own else "This is a fault of mycc, not of the model"
        return CompileError(
            error.message,
            details=[*error.details, f"compiler: {self.toolchain.label}"],
            hint=f"{blame}. The generated source is kept in {kept}.",
        )
