"""Runs launches of Triton kernels through Triton's interpreter, which has to be chosen before triton is imported: in a
process of its own. As a program it serves requests from stdin; TritonInterpreter is the client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import torch

OUT_OF_RANGE = "index out of range"


class IndexOutOfRange(Exception):
    """A launch has stored its number in the status word; `launch`: its place among those that were run."""

    @property
    def launch(self) -> int:
        return int(str(self).split()[-1]) - 1


class TritonInterpreter:
    """Launches on CPU memory: interpreter.run(launches, memory, sizes) -> the memory after them."""

    def __init__(self, seconds: float = 400) -> None:
        """seconds: how long a run may take before the process is given up."""
        self._seconds = seconds
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRITON_INTERPRET": "1"},
        )

    def run(self, launches: Sequence[Any], memory: Mapping[Any, Any], sizes: Mapping[str, int]) -> dict[Any, Any]:
        """memory: a flat tensor for each Buffer. Every counter that a launch leaves not zero is an error, and so is a
        status word that a launch sets (IndexOutOfRange)."""
        return self.run_each([(launch, sizes) for launch in launches], memory)

    def run_each(self, launches: Sequence[tuple[Any, Mapping[str, int]]], memory: Mapping[Any, Any]) -> dict[Any, Any]:
        """The same with sizes for each launch."""
        buffers = list(memory)
        steps = [_step(launch, i, buffers, sizes) for i, (launch, sizes) in enumerate(launches)]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._limit():
            _write(self._process.stdin, (steps, [memory[b] for b in buffers]))
            answer = _read(self._process.stdout)
        if answer is None:
            raise RuntimeError(f"the interpreter died or took too long, with code {self._process.wait()}")
        failure, tensors = answer
        if failure.startswith(OUT_OF_RANGE):
            raise IndexOutOfRange(failure)
        if failure:
            raise RuntimeError(failure)
        return dict(zip(buffers, tensors, strict=True))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    @contextlib.contextmanager
    def _limit(self) -> Iterator[None]:
        timer = threading.Timer(self._seconds, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _step(launch: Any, number: int, buffers: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """A launch in plain values."""
    args: list[tuple[str, Any, Any]] = []
    for arg, param in zip(launch.args, launch.kernel.params, strict=True):
        kind = type(arg).__name__
        if kind == "BufferArg":
            args.append((kind, buffers.index(arg.buffer.root), arg.offset.evaluate(sizes)))
        elif kind == "SizeArg":
            args.append((kind, arg.value.evaluate(sizes), 0))
        elif kind == "NumberArg":
            args.append((kind, int(arg.value) if isinstance(arg.value, bool) else arg.value, 0))
        elif kind in ("WorkArg", "ZerosArg"):
            args.append((kind, arg.bytes.evaluate(sizes), param.type))
        elif kind in ("StatusArg", "LaunchArg"):
            args.append((kind, number + 1, 0))
        else:
            raise ValueError(f"no value for {arg}")
    args += [("Constant", value, 0) for _, value in launch.kernel.constants]
    names = [*(p.name for p in launch.kernel.params), *(name for name, _ in launch.kernel.constants)]
    grid = tuple(g.evaluate(sizes) for g in launch.grid)
    kernel = launch.kernel
    return kernel.source.replace("KERNEL", kernel.symbol), kernel.symbol, grid, list(zip(names, args, strict=True))


def _serve() -> None:
    _patch_once()
    _teach_libdevice()
    _teach_products()
    _emulator().teach_inline_assembly()
    warnings.simplefilter("ignore")  # numpy tells of every NaN
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print is no answer
    while True:
        request = _read(sys.stdin.buffer)
        if request is None:
            return
        steps, tensors = request
        try:
            work = _work(steps)
            for step in steps:
                _launch((*step, work), tensors)
            _write(answers, ("", tensors))
        except Exception as error:
            import traceback

            own = str(error) if str(error).startswith(OUT_OF_RANGE) else ""
            _write(answers, (own or f"{error}\n{traceback.format_exc()}\n{step[0]}", []))


def _patch_once() -> None:
    """The interpreter puts its functions in place for every call of a function, which takes longer than the call. For
    each sum and product of integers it computes whether they overflow, and says nothing of it where debug is off. And
    it makes a table of all types for each of its lookups."""
    import types

    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None
    look_up = cache(interpreter._get_np_dtype)
    interpreter._get_np_dtype = lambda kind: look_up(tl.uint64 if kind.scalar.is_ptr() else kind.scalar)

    interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda _: types.SimpleNamespace(restore=lambda: None)


def _teach_products() -> None:
    """The interpreter holds bfloat16 as its bits, which its products would take for whole numbers, and which it takes
    whole numbers for."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return multiply(self, widened(a), widened(b), *rest)

    convert = InterpreterBuilder.cast_impl

    def cast_impl(self: Any, src: Any, kind: Any) -> Any:
        if kind.scalar == tl.bfloat16 and src.dtype.scalar.is_int():
            src = convert(self, src, tl.float32)
        return convert(self, src, kind)

    InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl = create_dot, cast_impl


def _emulator() -> Any:
    """The module beside this file, which as a program has no package."""
    path = Path(__file__).with_name("ptx_emulator.py")
    spec = importlib.util.spec_from_file_location("ptx_emulator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _teach_libdevice() -> None:
    """The interpreter has no libdevice: its functions are torch's."""
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    others = {
        "rint": torch.round, "mul_rn": torch.mul, "normcdfinv": torch.special.ndtri, "cyl_bessel_i0": torch.special.i0,
        "cyl_bessel_i1": torch.special.i1, "j0": torch.special.bessel_j0, "j1": torch.special.bessel_j1,
        "y0": torch.special.bessel_y0, "y1": torch.special.bessel_y1,
        "fast_sinf": torch.sin, "fast_cosf": torch.cos, "fast_tanf": torch.tan, "fast_logf": torch.log,
        "sinpi": lambda x: torch.sin(torch.pi * x), "cospi": lambda x: torch.cos(torch.pi * x),
    }  # fmt: skip

    def function(name: str) -> Any:
        ours = others.get(name) or getattr(torch, name, None) or getattr(torch.special, name)

        def call(*args: Any) -> Any:
            first = next(a for a in args if isinstance(a, tl.tensor))
            values = [torch.as_tensor(a.handle.data if isinstance(a, tl.tensor) else a) for a in args]
            result = ours(*values)
            blocks = any(isinstance(a, tl.tensor) and a.type.is_block() for a in args)
            kind = tl.block_type(first.dtype, list(result.shape)) if blocks else first.dtype
            return tl.tensor(TensorHandle(result.numpy(), first.handle.dtype), kind)

        return call

    names = "erf erfc tanh expm1 log log1p log10 pow trunc fmod tan asin acos atan atan2 sinh cosh asinh acosh atanh"
    for name in (*names.split(), "exp2", "lgamma", "copysign", "hypot", "nextafter", "erfinv", "erfcx", *others):
        setattr(libdevice, name, function(name))


#: element types of scratch memory, by their names in signatures
_WORK = {
    "*fp32": torch.float32,
    "*fp64": torch.float64,
    "*i32": torch.int32,
    "*i64": torch.int64,
    "*fp16": torch.float16,
    "*bf16": torch.bfloat16,
}


def _work(steps: Sequence[Any]) -> torch.Tensor:
    """The scratch memory that all launches share, as bytes: all NaN."""
    sizes = [value for *_, args in steps for _, (kind, value, _) in args if kind == "WorkArg"]
    return torch.full((max(sizes, default=0) // 8 + 1,), float("nan"), dtype=torch.float64).view(torch.uint8)


def _launch(step: Any, tensors: Sequence[Any]) -> None:
    source, symbol, grid, args, work = step
    values: dict[str, Any] = {}
    counters = []
    status = torch.zeros(1, dtype=torch.int32)
    for name, (kind, value, offset) in args:
        if kind == "BufferArg":
            values[name] = tensors[value][offset:]
        elif kind == "WorkArg":
            values[name] = work[:value].view(_WORK[offset])
        elif kind == "ZerosArg":
            counters.append(torch.zeros(value // 4, dtype=torch.int32))
            values[name] = counters[-1]
        elif kind == "StatusArg":
            values[name] = status
        else:
            values[name] = _constant(value)
    if all(grid):
        _kernel(source, symbol)[grid](**values)
    if any(c.any() for c in counters):
        raise AssertionError("a counter is not zero after the launch")
    if status.any():
        raise AssertionError(f"{OUT_OF_RANGE} in launch {0x7FFFFFFF - int(status)}")


def _constant(value: Any) -> Any:
    """("tl", "float32"): a type of triton.language."""
    import triton.language as tl

    return getattr(tl, value[1]) if isinstance(value, tuple) else value


@cache
def _kernel(source: str, symbol: str) -> Any:
    """The function of a module. Triton reads its text from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False, encoding="utf-8") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(symbol, file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    linecache.getlines(file.name, vars(module))  # for the interpreter, which reads it at the first launch
    Path(file.name).unlink()
    return getattr(module, symbol)


def _write(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> Any:
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("<q", head)[0])) if len(head) == 8 else None


if __name__ == "__main__":
    _serve()
