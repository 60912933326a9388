"""Triton kernels to images, ahead of time: in parallel worker processes, each kernel from the cache if it is there.

No GPU is needed. Every option of Triton is given, as its defaults change between versions, and its own environment
variables are kept from the workers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.errors import CompileError
from ..machine.local_cpu import available_cores
from ..machine.targets import Target
from .cache import Cache, encode_key, storage_error
from .compile import BuildOptions
from .images import KernelImage
from .processes import kill_group
from .workspace import keep_failed, workspace

if TYPE_CHECKING:
    from ..codegen.cuda.kernel import TritonKernel

__all__ = ["CompiledKernels", "compile_for_targets", "compile_kernels", "kernel_options", "signature_of"]

WORKER = Path(__file__).with_name("triton_worker.py")
#: PTX that is compiled where it runs: a version that drivers from CUDA 12.0 on read
PORTABLE_PTX = 80
_ERROR_LINES = 12
#: warps of a program up to which they are doubled where registers do not suffice
MOST_WARPS = 16


@dataclass(frozen=True)
class CompiledKernels:
    """The images of a target's kernels, in the order given; compiled, cached: how many; log: a line for each."""

    images: tuple[KernelImage, ...]
    compiled: int
    cached: int
    seconds: float
    log: tuple[str, ...]


def compile_kernels(
    kernels: Sequence[TritonKernel], target: Target, options: BuildOptions, optional: AbstractSet[str] = frozenset()
) -> CompiledKernels:
    """Compiles the kernels for a target of the family cuda. optional: symbols of those that may fail and are left out.

    Raises:
        CompileError: Triton is not installed, or does not compile a kernel (a fault of mycc); a full disk.
    """
    return compile_for_targets([(kernels, target)], options, optional)[0]


def compile_for_targets(
    work: Sequence[tuple[Sequence[TritonKernel], Target]],
    options: BuildOptions,
    optional: AbstractSet[str] = frozenset(),
) -> list[CompiledKernels]:
    """`compile_kernels` for several targets at once: their kernels share the worker processes."""
    start = time.perf_counter()
    version = triton_version()
    cache = Cache(options.cache_dir, options.cache_limit)
    jobs = [_Job(kernel, target) for kernels, target in work for kernel in kernels]
    keys = {job.name: _key(job.kernel, job.target, version, options) for job in jobs}
    found: dict[str, KernelImage] = {}
    log: dict[str, list[str]] = {target.name: [] for _, target in work}
    for job in jobs:
        stored = cache.get(keys[job.name])
        if stored is not None:
            found[job.name] = _decode(job.kernel.symbol, stored)
            log[job.target.name].append(f"{job.kernel.symbol}: cached")
    cached = frozenset(found)
    missing = [job for job in jobs if job.name not in found]
    if missing:
        with workspace(cache.folder) as folder:
            try:
                for job, image, line in _Workers(folder, options, optional).run(missing):
                    found[job.name] = image
                    cache.put(keys[job.name], _encode(image))
                    log[job.target.name].append(line)
            except OSError as error:
                raise storage_error(error, cache.folder) from error
            except _Failed as failed:
                raise _explain(failed, folder, cache.folder) from None
        cache.trim()
    seconds = (time.perf_counter() - start) / max(len(work), 1)
    results = []
    for kernels, target in work:
        names = [_Job(kernel, target).name for kernel in kernels]
        images = tuple(found[name] for name in names if name in found)
        known = sum(name in cached for name in names)
        results.append(CompiledKernels(images, len(names) - known, known, seconds, tuple(log[target.name])))
    return results


@dataclass(frozen=True)
class _Job:
    """A kernel to compile for a target."""

    kernel: TritonKernel
    target: Target

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.kernel.symbol}.{self.target.name.partition(':')[2]}"


def triton_version() -> str:
    """Raises CompileError when there is no Triton."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        raise CompileError(
            "compiling for a GPU needs Triton, which is not installed", hint="Install it with: pip install triton"
        ) from None


def kernel_options(kernel: TritonKernel, target: Target) -> dict[str, Any]:
    """All options of Triton for a kernel, by their names in CUDAOptions."""
    return {
        "num_warps": kernel.num_warps,
        "num_ctas": kernel.num_ctas,
        "num_stages": kernel.num_stages,
        "maxnreg": kernel.maxnreg,
        "ptx_version": PORTABLE_PTX if target.ptx else None,
        "ptx_options": None,
        "ir_override": None,
        "enable_fp_fusion": kernel.fuses,
        "enable_reflect_ftz": kernel.flush,  # else functions of libdevice keep subnormal numbers, as torch's do
        "launch_cooperative_grid": False,
        "launch_pdl": kernel.pdl and target.capability >= 90,
        "default_dot_input_precision": "ieee",
        "max_num_imprecise_acc_default": 0,
        "extern_libs": None,
        "debug": False,
        "sanitize_overflow": False,
        "instrumentation_mode": "",
    }


def signature_of(kernel: TritonKernel) -> dict[str, str]:
    """Types of the parameters by name, constants last."""
    return {p.name: p.type for p in kernel.params} | {name: "constexpr" for name, _ in kernel.constants}


def _task(kernel: TritonKernel, target: Target) -> dict[str, Any]:
    """What the worker is told, but for the paths."""
    return {
        "symbol": kernel.symbol,
        "signature": signature_of(kernel),
        "constants": dict(kernel.constants),
        "divisors": {p.name: p.divisor for p in kernel.params if p.divisor % 16 == 0},
        "options": kernel_options(kernel, target),
        "capability": target.capability,
        "ptx": target.ptx,
    }


def _key(kernel: TritonKernel, target: Target, triton: str, options: BuildOptions) -> bytes:
    parts = [("what", "triton kernel 2"), ("mycc", options.version), ("triton", triton)]
    parts += [
        ("worker", _worker_text()),
        ("widens", str(kernel.widens)),
        ("task", json.dumps(_task(kernel, target), sort_keys=True)),
        ("source", kernel.source),
    ]
    return encode_key(parts)


@functools.cache
def _worker_text() -> str:
    return WORKER.read_text()


def _encode(image: KernelImage) -> bytes:
    facts = json.dumps(dict(image.facts), sort_keys=True).encode()
    return len(facts).to_bytes(8, "little") + facts + image.image


def _decode(symbol: str, stored: bytes) -> KernelImage:
    size = int.from_bytes(stored[:8], "little")
    return KernelImage(symbol, stored[8 + size :], json.loads(stored[8 : 8 + size]))


class _Failed(Exception):
    """A worker could not compile a kernel."""

    def __init__(self, job: _Job, text: str) -> None:
        super().__init__(text)
        self.kernel = job.kernel
        self.text = text


class _Workers:
    """Worker processes over one folder; a thread each hands out the kernels, the longest first."""

    def __init__(self, folder: Path, options: BuildOptions, optional: AbstractSet[str]) -> None:
        self.folder, self.optional = folder, optional
        self.jobs = options.jobs or available_cores()
        self.waiting: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[_Job, KernelImage, str] | BaseException] = queue.SimpleQueue()
        self.errors = folder / "errors.txt"  # what the processes say on standard error
        self.processes: list[subprocess.Popen[str]] = []
        self.stopped = False
        self.starting = threading.Lock()  # of `processes` and `stopped`

    def run(self, jobs: Sequence[_Job]) -> list[tuple[_Job, KernelImage, str]]:
        """The images with a line for the log each, as they come. Raises _Failed."""
        for job in sorted(jobs, key=lambda job: (-_effort(job.kernel), job.name)):
            self.waiting.put(job)
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(min(self.jobs, len(jobs)))]
        try:
            for thread in threads:
                thread.start()
            results = []
            for _ in jobs:
                result = self.done.get()
                if isinstance(result, _Failed) and result.kernel.symbol in self.optional:
                    continue
                if isinstance(result, BaseException):
                    raise result
                results.append(result)
            return results
        finally:
            self._stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _stop(self) -> None:
        """Ends all processes; none starts behind this."""
        with self.starting:
            self.stopped = True
        for process in self.processes:
            kill_group(process)
        for process in self.processes:
            process.wait()

    def _start(self) -> subprocess.Popen[str] | None:
        """A process; None: all has been stopped."""
        command = [sys.executable, "-S", "-E", "-c", _BOOT, json.dumps(sys.path), str(WORKER)]
        pipe = subprocess.PIPE
        # Errors go to a file: compilers print whole modules, and a pipe that nobody reads yet would stop them for ever.
        with self.starting, self.errors.open("a") as errors:
            if self.stopped:
                return None
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(self.folder),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                text=True,
                process_group=0,  # what it runs holds the pipe of its answers open: all of them end together
            )
            self.processes.append(process)
        return process

    def _serve(self) -> None:
        """Until no kernel waits, or one that has to compile did not."""
        process: subprocess.Popen[str] | None = None
        while True:
            try:
                job = self.waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if process is None or process.poll() is not None:
                    process = self._start()
                if process is None:
                    return
                self.done.put((job, *self._compile(process, job)))
            except BaseException as error:  # handed over to the thread that waits
                self.done.put(error)
                if job.kernel.symbol not in self.optional or process is None:
                    return
                kill_group(process)
                process.wait()

    def _compile(self, process: subprocess.Popen[str], job: _Job) -> tuple[KernelImage, str]:
        """The image and a line for the log. A kernel that spills gets twice the warps, when it does not spill then."""
        image, line = self._compiled(process, job)
        warps = 2 * job.kernel.num_warps
        if image.facts["spills"] and job.kernel.widens and warps <= MOST_WARPS:
            with contextlib.suppress(_Failed):
                wider, of_wider = self._compiled(process, replace(job, kernel=replace(job.kernel, num_warps=warps)))
                if not wider.facts["spills"]:
                    return wider, f"{of_wider} with {warps} warps, as it spills with {job.kernel.num_warps}"
        return image, line

    def _compiled(self, process: subprocess.Popen[str], job: _Job) -> tuple[KernelImage, str]:
        start, kernel = time.perf_counter(), job.kernel
        module, out = self.folder / f"{job.name}.py", self.folder / f"{job.name}.image"
        module.write_text(kernel.source)
        task = {**_task(kernel, job.target), "module": str(module), "out": str(out)}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            process.wait()
            raise _Failed(job, f"the process of Triton ended: {self.errors.read_text(errors='replace')[-2000:]}")
        facts = json.loads(line)
        if "error" in facts:
            raise _Failed(job, facts["error"])
        spills = f", {facts['spills']} bytes of spills" if facts["spills"] else ""
        text = (
            f"{kernel.symbol}: compiled in {time.perf_counter() - start:.2f} s, {facts['registers']} registers{spills}"
        )
        return KernelImage(kernel.symbol, out.read_bytes(), facts), text


_BOOT = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
)


def _environment(folder: Path) -> dict[str, str]:
    """The user's environment without what Triton would read in it; its caches go into the folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "LLVM_", "MLIR_", "PYTHON"))}
    return kept | {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_HOME": str(folder / "triton"),
        "TRITON_DISABLE_LINE_INFO": "1",  # no paths of this machine in images
        "TRITON_DUMP_PTXAS_LOG": "1",
        "TMPDIR": str(folder),
    }


def _effort(kernel: TritonKernel) -> int:
    """Matrix kernels take longest."""
    return len(kernel.source) + (20000 if "tl.dot" in kernel.source else 0)


def _explain(failed: _Failed, folder: Path, root: Path) -> CompileError:
    lines = [line for line in failed.text.splitlines() if line.strip()]
    (folder / "error.txt").write_text(failed.text)
    kept = keep_failed(root, folder, failed.kernel.symbol)
    return CompileError(
        f"{failed.kernel.symbol}: a generated kernel did not compile",
        details=lines[:_ERROR_LINES],
        hint=f"This is a fault of mycc, not of the model. The generated source is kept in {kept}.",
    )
