"""What `mycc bench` is asked for, checked: a package alone, or a model beside its peers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import InputError
from ...runtime.formats import recognise

__all__ = ["bench_packages", "bench_source", "check_file", "is_source", "numbers", "refuse"]


def is_source(text: str) -> bool:
    """Whether FILE names a model (model.py, model.py:factory, package.module:factory, program.pt2), not a package."""
    found = recognise(text)
    return (
        (found is not None and found.source)
        or text.endswith((".py", ".pt2"))
        or (":" in text and not Path(text).exists())
    )


def numbers(text: str | None, option: str) -> tuple[int, ...]:
    """`1,2` as numbers from 1; () for None. Raises InputError."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"{option} {text}: not a list of numbers from 1", hint=f"It looks like {option} 1,2.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def check_file(path: Path | None) -> None:
    """A file to be written at the end: refused now when its folder is missing. Raises InputError."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"cannot write '{path}': it is a directory")
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write '{path}': there is no directory '{path.absolute().parent}'")


def refuse(options: Mapping[str, Any], what: str, hint: str) -> None:
    """Raises InputError for options that were given and do not fit."""
    given = [name for name, value in options.items() if value not in (None, False, [], ())]
    if given:
        raise InputError(f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} for {what}", hint=hint)


def bench_packages(file: str, threads: str | None, **options: Any) -> list[dict[str, Any]]:
    """runtime.measure.bench_package for every number of threads."""
    from ...runtime.measure import bench_package

    return [bench_package(file, count, **options) for count in numbers(threads, "--threads") or (None,)]


def bench_source(
    source: str,
    against: str | None,
    threads: str | None,
    batch: str | None,
    *,
    show: Any,
    observers: Any,
    compile_options: Mapping[str, Any],
    **others: Any,
) -> Any:
    """The Comparison of a model with its peers. Raises InputError or CompileError."""
    from ..options import CompileOptions
    from .compare import BenchRequest, compare

    names = tuple(name.strip() for name in (against if against is not None else "eager").split(","))
    request = BenchRequest(
        source, tuple(name for name in names if name), numbers(threads, "--threads") or (1,),
        numbers(batch, "--batch"), **others,
    )  # fmt: skip
    return compare(request, CompileOptions.of(**compile_options), observers, show)
