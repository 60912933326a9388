"""The accuracy certificate of a package: what its outputs have to be on inputs that anyone can make again.

For one or two sets of sizes it holds how each input is filled (generator.py) and samples of each output's float64
reference, with the relative error that is tolerated. `mycc verify` runs the package on those inputs and compares. It is
a safetensors file of at most 256 kB: the samples are tensors, everything else is JSON in the metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import LoadError
from .generator import Fill, fill_tensor
from .strict_json import decode, encode
from .tensorfile import TensorEntry, encode_header, parse_header

if TYPE_CHECKING:
    from .loader import Model

__all__ = [
    "MAX_BYTES", "SAMPLES", "VERIFY_SEED",
    "CaseReference", "CaseReport", "Certificate", "CertificateCase", "InputCheck",
    "OutputCheck", "OutputReport", "Report", "as_dict", "check", "check_inputs", "make_certificate", "parse",
    "relative_error", "sample_positions", "serialize",
]  # fmt: skip

MAX_BYTES = 256 * 1024
SAMPLES = 4096
VERIFY_SEED = 0  # of the random numbers of a call that is checked
_FORMAT = "mycc-certificate-1"
_HINT_OLD = "The mycc that wrote the package had a fault: compile the model again."


@dataclass(frozen=True)
class InputCheck:
    """An input: its dtype (manifest's name), sizes, and how it is filled."""

    dtype: str
    shape: tuple[int, ...]
    fill: Fill


@dataclass(frozen=True)
class OutputCheck:
    """An output: its sizes, the reference at `sample_positions(elements, len(samples))`, and what is tolerated.

    `samples` is float64, or int64 for integers and booleans, which have to be equal. `tolerance` bounds
    ||y - r|| / ||r|| over the samples.
    """

    shape: tuple[int, ...]
    samples: NDArray[Any]
    tolerance: float


@dataclass(frozen=True)
class CertificateCase:
    """One entry point at one set of sizes (symbol -> value)."""

    entry: str
    sizes: dict[str, int]
    inputs: tuple[InputCheck, ...]
    outputs: tuple[OutputCheck, ...]


@dataclass(frozen=True)
class Certificate:
    cases: tuple[CertificateCase, ...]


@dataclass(frozen=True)
class CaseReference:
    """What the compiler knows of a case: whole reference outputs (float64 or integers) and a tolerance for each."""

    entry: str
    sizes: Mapping[str, int]
    inputs: tuple[InputCheck, ...]
    outputs: Sequence[NDArray[Any]]
    tolerances: Sequence[float]


@dataclass(frozen=True)
class OutputReport:
    """An output's relative error over the samples beside what is tolerated; `problem` says what is wrong."""

    name: str
    samples: int
    error: float
    tolerance: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class CaseReport:
    entry: str
    sizes: dict[str, int]
    outputs: tuple[OutputReport, ...]

    @property
    def ok(self) -> bool:
        return all(output.ok for output in self.outputs)


@dataclass(frozen=True)
class Report:
    cases: tuple[CaseReport, ...]

    @property
    def ok(self) -> bool:
        return all(case.ok for case in self.cases)


def sample_positions(elements: int, count: int = SAMPLES) -> NDArray[np.int64]:
    """Flat positions of `count` different elements (all when there are fewer), in rising order, spread evenly.

    Multiples of a stride modulo `elements`; the stride is coprime to `elements` and near its golden section, so the
    positions do not fall on the same columns of a matrix again and again.
    """
    if elements <= count:
        return np.arange(elements, dtype=np.int64)
    stride = int(elements * 0.6180339887498949)
    while math.gcd(stride, elements) != 1:
        stride += 1
    return np.sort(np.arange(count, dtype=np.int64) * stride % elements)


def make_certificate(references: Sequence[CaseReference]) -> Certificate:
    """Samples the references, 4096 elements per output.

    A package whose outputs are so many that this exceeds 256 kB drops the second case of each entry point, then takes
    fewer samples of every output, the same number of each.
    """
    chosen, count = list(references), SAMPLES
    if _sample_bytes(chosen, count) > MAX_BYTES * 7 // 8:
        first_of_entry = {case.entry: case for case in reversed(chosen)}
        chosen = list(reversed(first_of_entry.values()))
    certificate = _sampled(chosen, count)
    while len(serialize(certificate)) > MAX_BYTES and count > 1:
        count = count * 3 // 4
        certificate = _sampled(chosen, count)
    return certificate


def _sample_bytes(references: Sequence[CaseReference], count: int) -> int:
    return sum(8 * min(count, output.size) for case in references for output in case.outputs)


def _sampled(references: Sequence[CaseReference], count: int) -> Certificate:
    return Certificate(tuple(_sampled_case(case, count) for case in references))


def _sampled_case(case: CaseReference, count: int) -> CertificateCase:
    outputs = []
    for reference, tolerance in zip(case.outputs, case.tolerances, strict=True):
        samples = _as_samples(reference.reshape(-1)[sample_positions(reference.size, count)])
        outputs.append(OutputCheck(tuple(reference.shape), samples, float(tolerance)))
    return CertificateCase(case.entry, dict(case.sizes), tuple(case.inputs), tuple(outputs))


def _as_samples(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64 if values.dtype.kind in "bui" else np.float64)


def serialize(certificate: Certificate) -> bytes:
    """certificate.safetensors."""
    # readers of the first version know the rows of `cases` alone, plain ones, numbered from 0
    rows: dict[str, list[dict[str, Any]]] = {"cases": [], "special": []}
    entries, blocks, position = [], [], 0
    for i, (place, case) in enumerate(sorted(enumerate(certificate.cases), key=lambda pair: not _is_plain(pair[1]))):
        outputs = []
        for j, output in enumerate(case.outputs):
            data = output.samples.tobytes()
            dtype = "I64" if output.samples.dtype.kind == "i" else "F64"
            begin, position = position, position + len(data)
            entries.append(TensorEntry(f"case{i}.output{j}", dtype, output.samples.shape, begin, position))
            blocks.append(data)
            outputs.append({"shape": output.shape, "tolerance": output.tolerance})
        inputs = [{"dtype": c.dtype, "shape": c.shape, **_fill_row(c.fill)} for c in case.inputs]
        row = {"entry": case.entry, "sizes": case.sizes, "inputs": inputs, "outputs": outputs, "place": place}
        rows["cases" if _is_plain(case) else "special"].append(row)
    metadata = {"format": _FORMAT, **{key: encode(value, separators=(",", ":")) for key, value in rows.items()}}
    return encode_header(entries, metadata) + b"".join(blocks)


def parse(data: bytes | memoryview) -> Certificate:
    """The certificate in certificate.safetensors.

    Raises:
        LoadError: not a certificate of a known version.
    """
    view = memoryview(data)
    try:
        entries, metadata, start = parse_header(view)
        if metadata.get("format") != _FORMAT:
            raise LoadError(f"the package's certificate has the unknown format {metadata.get('format')!r}")
        return _parsed(view, entries, metadata, start)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise LoadError(f"the package's certificate cannot be read: {error}") from None


def _parsed(view: memoryview, entries: Sequence[TensorEntry], metadata: Mapping[str, str], start: int) -> Certificate:
    samples = {}
    for entry in entries:
        dtype = "<i8" if entry.dtype == "I64" else "<f8"
        samples[entry.name] = np.frombuffer(view[start + entry.begin : start + entry.end], dtype)
    try:
        rows = decode(metadata["cases"]) + decode(metadata.get("special", "[]"))
    except ValueError as error:
        raise LoadError(f"the package's certificate cannot be read: {error}", hint=_HINT_OLD) from None
    cases = [(row.get("place", i), _parsed_case(i, row, samples)) for i, row in enumerate(rows)]
    return Certificate(tuple(case for _, case in sorted(cases, key=lambda pair: pair[0])))


def _parsed_case(index: int, row: dict[str, Any], samples: Mapping[str, NDArray[Any]]) -> CertificateCase:
    inputs = tuple(InputCheck(c["dtype"], tuple(c["shape"]), _parsed_fill(c)) for c in row["inputs"])
    outputs = tuple(
        OutputCheck(tuple(output["shape"]), samples[f"case{index}.output{j}"], output["tolerance"])
        for j, output in enumerate(row["outputs"])
    )
    return CertificateCase(row["entry"], row["sizes"], inputs, outputs)


def _is_plain(case: CertificateCase) -> bool:
    return all(check.fill.plain for check in case.inputs)


def _fill_row(fill: Fill) -> dict[str, Any]:
    """The fields of a Fill; those that are no part of a plain one only where they say something."""
    defaults = Fill(0)._asdict()
    row = fill._asdict()
    return {key: row[key] for key in row if key in ("seed", "spread", "limits") or row[key] != defaults[key]}


def _parsed_fill(row: Mapping[str, Any]) -> Fill:
    known = {key: row[key] for key in Fill._fields if key in row}
    return Fill(**{**known, **{key: _pair(row.get(key)) for key in ("spread", "limits", "bounds")}})


def _pair(values: list[Any] | None) -> tuple[Any, Any] | None:
    return None if values is None else (values[0], values[1])


def check_inputs(certificate: Certificate, case: int) -> list[NDArray[Any]]:
    """The inputs of a case, made again from their seeds (bf16 as its bits in uint16)."""
    return [fill_tensor(check.dtype, check.shape, check.fill) for check in certificate.cases[case].inputs]


def relative_error(found: NDArray[Any], reference: NDArray[Any]) -> float:
    """||y - r|| / ||r|| in float64 (||y|| where r is zero); infinite where NaN or infinities do not agree."""
    found, reference = found.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(reference)
    if not np.array_equal(found[~finite], reference[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
        return math.inf
    if finite.all():
        difference, norm = found - reference, np.linalg.norm(reference)
    else:
        difference, norm = found[finite] - reference[finite], np.linalg.norm(reference[finite])
    return float(np.linalg.norm(difference) / (norm or 1.0))


def check(model: Model, certificate: Certificate) -> Report:
    """Runs the package on the certificate's inputs and compares the samples."""
    return Report(tuple(_check_case(model, certificate, index) for index in range(len(certificate.cases))))


def _check_case(model: Model, certificate: Certificate, index: int) -> CaseReport:
    from .arrays import as_array, as_tensor

    case = certificate.cases[index]
    entry = model.entry(case.entry)
    try:
        arrays = check_inputs(certificate, index)
        fits = len(arrays) == len(entry.signature.inputs) + len(entry.own_state)
        fits = fits and len(case.outputs) == len(entry.all_outputs(model.manifest))
    except (KeyError, MemoryError, OverflowError, TypeError, ValueError) as error:
        raise LoadError(f"the package's certificate does not fit it: {error}") from None
    if not fits:
        raise LoadError("the package's certificate does not fit it")
    tensors = [as_tensor(a, c.dtype) for a, c in zip(arrays, case.inputs, strict=True)]
    outputs = entry.run_whole(tensors, seed=VERIFY_SEED)
    ports = entry.all_outputs(model.manifest)
    reports = tuple(
        _compare(port.name, as_array(output, port.dtype), expected)
        for port, output, expected in zip(ports, outputs, case.outputs, strict=True)
    )
    return CaseReport(case.entry, case.sizes, reports)


def _compare(name: str, output: NDArray[Any], expected: OutputCheck) -> OutputReport:
    if output.dtype.kind == "c":  # of complex numbers, both parts are samples
        output = np.stack([output.real, output.imag], -1)
    count = expected.samples.size
    if output.shape != expected.shape:
        return OutputReport(name, count, math.inf, expected.tolerance, f"shape {output.shape}, not {expected.shape}")
    found = output.reshape(-1)[sample_positions(output.size, count)]
    if expected.samples.dtype.kind == "i":
        wrong = int(np.count_nonzero(found.astype(np.int64) != expected.samples))
        return OutputReport(name, count, float(wrong > 0), 0.0, f"{wrong} of {count} integers differ" if wrong else "")
    error = relative_error(found, expected.samples)
    within = error <= expected.tolerance
    problem = "" if within else f"error {error:.2e} is above {expected.tolerance:.2e}"
    return OutputReport(name, count, error, expected.tolerance, problem)


def as_dict(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return {"ok": report.ok, **asdict(report)}
