"""Sizes of packages, and what their libraries ask of a system."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .common import Figure, Settings, at_most, holds

OTHER_MB, WEIGHTS = 1.5, 1.02
WINOGRAD = 1.3  # weights of Winograd's convolutions are stored transformed
LIBC = {"libc.so.6", "libm.so.6"}


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        yield from _model(settings, model)


def _model(settings: Settings, model: str) -> list[Figure]:
    from mycc.compiler.build.elf import read_dynamic_symbols
    from mycc.runtime.archive import Archive
    from mycc.runtime.inspect import inspect_package

    path = settings.package(model)
    facts, archive = inspect_package(path), Archive(path)
    (row,) = facts["targets"]
    program = read_dynamic_symbols(bytes(archive.read(row["library"])))
    loader = read_dynamic_symbols(bytes(archive.read(row["loader"])))
    foreign = [f"{symbol} of {library or '?'}" for symbol, library in program.imports if library != "libm.so.6"]
    needed = [name for name in loader.libraries if name not in LIBC and not name.startswith("ld-linux")]
    ratio = facts["weights"]["size"] / settings.facts(model)["parameter_bytes"]
    kernels = [kernel["name"] for entry in facts["entry_points"] for kernel in entry["kernels"]]
    winograd = any(re.search(r"_f\d3(s2|taps)?$", name) for name in kernels)
    return [
        at_most("size", f"{model}, all but the weights", facts["other"] / 1e6, OTHER_MB, "MB"),
        at_most("size", f"{model}, weights / unique parameter bytes", ratio, WINOGRAD if winograd else WEIGHTS),
        holds("size", f"{model}, model.so needs libm's symbols only", not foreign, "libm", note=", ".join(foreign[:5])),
        holds("size", f"{model}, libmycc.so needs libc, libm, ld.so only", not needed, "libc libm ld.so",
              note=", ".join(needed)),
        Figure("size", f"{model}, oldest glibc", float(facts["glibc"]), note=row["target"]),
    ]  # fmt: skip
