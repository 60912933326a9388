"""`mycc.explain`: one name for packages, loaded models, models that are compiled first, and compiled callables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from ...runtime.errors import InputError
from ...runtime.loader import Model
from .compare import beside
from .explanation import Explanation
from .report import report

__all__ = ["explain", "explain_package"]

_KINDS = "a package's path, what mycc.load gave, or a model with its example arguments"


@overload
def explain(
    subject: str | os.PathLike[str] | Model,
    *,
    measure: bool = False,
    against: str | os.PathLike[str] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    sizes: Mapping[str, int] | None = None,
) -> Explanation: ...


@overload
def explain(subject: Any, *args: Any, **options: Any) -> Any: ...


def explain(
    subject: Any,
    *args: Any,
    measure: bool = False,
    against: str | os.PathLike[str] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    sizes: Mapping[str, int] | None = None,
    **options: Any,
) -> Any:
    """Says what became of a model: graph, kernels with their lines, fusions and refusals, memory, times.

    Args:
        subject: a package's path; a loaded package; a model (nn.Module or function), which is compiled first into a
            file that is thrown away; or a callable that torch.compile made with backend="mycc".
        args: of a model or callable: its example arguments, as for a call.
        measure: time each kernel here, beside the machine's roof.
        against: another package, to be shown beside.
        sources: folders in which the model's source files are looked for, beside the package's own and the current one.
        sizes: values of dynamic sizes at which the report counts operations and bytes.
        options: of mycc.compile, for a model: target, dtype, dynamic_shapes, ...

    Returns:
        An Explanation: `data`, `html()`, `save(path)`, `open()`, `trace()`, `dot()`; in a notebook it shows itself.
        For a callable of torch.compile, what explain_compilation gives.

    Raises:
        InputError: the subject is none of these.
        LoadError: not a whole package of a known version.
        CompileError: the model cannot be compiled.
    """
    about: dict[str, Any] = {"measure": measure, "against": against, "sources": sources, "sizes": sizes}
    if isinstance(subject, Model):
        if subject.path is None:
            raise InputError(
                "a package that was loaded from bytes has no file to explain", hint="Load it from its path."
            )
        subject = subject.path
    if isinstance(subject, str | os.PathLike):
        if args or options:
            raise InputError("a package is explained as it is: it takes no arguments and no options of a compile")
        return explain_package(Path(subject), **about)
    if _by_torch_compile(subject):
        from ..backend import explain_compilation

        return explain_compilation(subject, *args, **options)
    if not callable(subject):
        raise InputError(f"mycc.explain takes {_KINDS}, not a {type(subject).__name__}")
    with tempfile.TemporaryDirectory(prefix="mycc-explain-") as folder:
        from ..api import compile as compile_model

        name = options.pop("name", None) or _identifier(type(subject).__name__)
        path = compile_model(subject, args, out=Path(folder) / f"{name}.pkg", name=name, **options)
        about["sources"] = [*sources, *_folder_of(subject)]
        return explain_package(path, **about)


def _folder_of(model: Any) -> list[str]:
    """The folder of the file that defines a model's class, or a function."""
    import inspect

    try:
        file = inspect.getsourcefile(model if inspect.isfunction(model) else type(model))
    except TypeError:  # defined in no file
        return []
    return [os.path.dirname(os.path.abspath(file))] if file else []


def _by_torch_compile(subject: Any) -> bool:
    return hasattr(subject, "_torchdynamo_orig_callable") or type(subject).__name__ == "OptimizedModule"


def _identifier(kind: str) -> str:
    return "model" if kind == "function" else kind


def explain_package(
    path: Path,
    measure: bool = False,
    against: str | os.PathLike[str] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    sizes: Mapping[str, int] | None = None,
    **where: Any,
) -> Explanation:
    """The explanation of a package. where: threads, entry, target and device of the measurement."""
    folders = [Path(folder) for folder in sources]

    def of(package: Path) -> dict[str, Any]:
        from ...runtime.measure import bench_package

        measured = bench_package(package, sizes=sizes, kernels=True, **where) if measure else None
        return report(package, folders, measured, sizes)

    data = of(path)
    if against is not None:
        data["against"] = beside(data, of(Path(against)))
    return Explanation(data)
