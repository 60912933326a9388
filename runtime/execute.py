"""`mycc run`: runs a package on inputs from files, or on inputs made from its certificate and signature."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .archive import Archive
from .arrays import as_array, as_tensor
from .certificate import parse
from .errors import InputError, RunError
from .files import check_regular, open_regular
from .formula import evaluate_shape
from .generator import Fill, fill_tensor
from .loader import EntryPoint, Model, load
from .text import counted

__all__ = ["RunResult", "generated_inputs", "parse_sizes", "read_inputs", "run_package"]

Inputs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


@dataclass(frozen=True)
class RunResult:
    """What a run took and gave.

    `device` is where it ran: "cpu", "cuda:0".
    `outputs` are numpy arrays by the names of the signature (bf16 widened to float32); `out` is the file they were
    written to, or None; `seconds` is the time of the one run.
    """

    entry: str
    target: str
    device: str
    threads: int
    generated: bool
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    seconds: float
    out: str | None

    def text(self) -> str:
        """Plain text: a line for each tensor with its range."""
        origin = "generated" if self.generated else "from files"
        where = counted(self.threads, "thread") if self.device == "cpu" else self.device
        lines = [f"{self.entry} on {self.target}, {where}: {1e3 * self.seconds:.2f} ms"]
        lines += [f"  in   {name}: {_summary(array)}  ({origin})" for name, array in self.inputs.items()]
        lines += [f"  out  {name}: {_summary(array)}" for name, array in self.outputs.items()]
        return "\n".join(lines + ([f"outputs written to {self.out}"] if self.out else []))


def run_package(
    path: str | os.PathLike[str],
    inputs: Inputs = None,
    *,
    sizes: Mapping[str, int] | None = None,
    entry: str | None = None,
    threads: int | None = None,
    target: str | None = None,
    device: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> RunResult:
    """Runs an entry point once.

    Args:
        inputs: one .npz whose arrays are called as the inputs, or .npy files in their order; None: generated.
        sizes: values of the size symbols of generated inputs (default: those of the certificate).
        target, device: as of mycc.load.
        out: .npz file to write the outputs to.
        seed: of the generated inputs.

    Raises:
        LoadError, InputError, RunError
    """
    model = load(path, threads, target, device=device)
    function = model.entry(entry) if entry is not None else model
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs or ())
    if paths and sizes:
        raise InputError("sizes are for generated inputs; those from files have their own")
    arrays = read_inputs(function, paths) if paths else generated_inputs(model, function, sizes, seed)
    ports = function.signature.inputs
    tensors = [as_tensor(array, port.dtype) for array, port in zip(arrays, ports, strict=True)]
    start = time.perf_counter()
    results = function.run_flat(tensors)
    seconds = time.perf_counter() - start
    outputs = {p.name: as_array(result, p.dtype) for p, result in zip(function.signature.outputs, results, strict=True)}
    if out is not None:
        _write_npz(os.fspath(out), outputs)
    given = {port.name: array for port, array in zip(ports, arrays, strict=True)}
    written = None if out is None else os.fspath(out)
    return RunResult(
        function.name, model.target, model.device, model.threads, not paths, given, outputs, seconds, written
    )


def parse_sizes(settings: Sequence[str]) -> dict[str, int]:
    """`["batch=4", "seq=128"]` as a mapping."""
    sizes = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not value.strip().isdigit():
            raise InputError(f"'{setting}' does not set a size", hint="Write it as NAME=SIZE: batch=4.")
        sizes[name.strip()] = int(value)
    return sizes


def generated_inputs(
    model: Model, function: EntryPoint, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> list[NDArray[Any]]:
    """Inputs that fit the signature, filled as the certificate fills them (bf16 as its bits in uint16)."""
    signature = function.signature
    case = _certificate_case(model, function.name)
    values = {symbol.name: max(symbol.min, min(2, symbol.max)) for symbol in signature.symbols}
    values.update(case.sizes if case else {})
    for name, size in (sizes or {}).items():
        if name not in values:
            known = ", ".join(values) or "none"
            raise InputError(f"{signature.name}() has no size '{name}'", hint=f"Its sizes are: {known}.")
        values[name] = size
    arrays = []
    for index, port in enumerate(signature.inputs):
        how = case.inputs[index].fill if case else Fill(index)
        fresh = how._replace(seed=how.seed + seed, edges=False)
        arrays.append(fill_tensor(port.dtype, evaluate_shape(port.shape, values), fresh))
    return arrays


def _certificate_case(model: Model, entry: str) -> Any:
    member = model.manifest["check"].get("certificate")
    if member is None or model.path is None:
        return None
    cases = parse(Archive(model.path).read(member)).cases
    return next((case for case in cases if case.entry == entry), None)


def read_inputs(function: EntryPoint, paths: Sequence[str | os.PathLike[str]]) -> list[NDArray[Any]]:
    """The inputs of an entry point from one .npz (by name) or from .npy files (in order).

    Raises:
        InputError: a file cannot be read, or inputs are missing or unknown.
    """
    names = [port.name for port in function.signature.inputs]
    if len(paths) == 1 and os.fspath(paths[0]).endswith(".npz"):
        arrays = _read(paths[0])
        missing = [name for name in names if name not in arrays]
        unknown = [name for name in arrays if name not in names]
        if missing or unknown:
            problems = [f"misses {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(unknown)
            hint = f"{function.name}() takes: {', '.join(names)}."
            raise InputError(f"{os.fspath(paths[0])} {' and '.join(problems)}", hint=hint)
        return [arrays[name] for name in names]
    if len(paths) != len(names):
        hint = f"Give one .npy file for each of: {', '.join(names)}; or one .npz."
        raise InputError(f"{function.name}() takes {len(names)} inputs, but {len(paths)} files were given", hint=hint)
    return [_read(path) for path in paths]


def _read(path: str | os.PathLike[str]) -> Any:
    try:
        with open(open_regular(path), "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except Exception as error:  # zip files, deflated data and headers fail in ways of their own
        reason = getattr(error, "strerror", None) or "it is not a numpy file of numbers"
        raise InputError(f"cannot read {os.fspath(path)}: {reason}", hint="Inputs are .npy or .npz files.") from None


def _write_npz(path: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """As numpy.savez, for any array names, and nothing half written under `path`."""
    import zipfile

    path = os.path.realpath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        check_regular(path)
        try:
            with open(part, "xb") as file, zipfile.ZipFile(file, "w") as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _summary(array: NDArray[Any]) -> str:
    text = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.size == 0:
        return f"{text} empty"
    if array.dtype.kind == "c":
        return f"{text} sizes {_summary(np.abs(array)).partition(']')[2].strip()}"
    if array.dtype.kind == "f":
        values = array.astype(np.float64)
        wrong = int(np.count_nonzero(~np.isfinite(values)))
        tail = f", {wrong} not finite" if wrong else ""
        return f"{text} min {values.min():.4g}, mean {values.mean():.4g}, max {values.max():.4g}{tail}"
    return f"{text} min {array.min()}, max {array.max()}"
