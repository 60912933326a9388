"""Where the model comes from: the forms of SOURCE on the command line.

    model.py                  a module-level `model` or `get_model()`
    model.py:factory          factory() gives a module, or (module, example inputs)
    package.module:factory    the same in an importable module
    program.pt2               a program saved by torch.export.save

Example inputs come from `example_inputs` or `get_example_inputs()` beside the model: a tuple of args, or
(args, kwargs).
A file to train has an `optimizer` or `get_optimizer()`, a `loss(output, *targets)` unless the model returns its own,
and `example_targets` for it.
An optional `dynamic_shapes` says which sizes change, in torch.export's own form.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from ...runtime.errors import CompileError, Error
from ...runtime.formats import recognise, refusal
from ...runtime.text import parameters_text
from ..model.source_lines import frames_of_exception, is_torch_file, user_frame

__all__ = ["Source", "describe", "load_source"]

_SOURCES = "A source is a Python file (model.py, model.py:factory), package.module:factory, or a program saved as .pt2."
_MODEL_NAMES = "`model` or `get_model()`"
_INPUT_NAMES = "`example_inputs` or `get_example_inputs()`"


@dataclass(frozen=True)
class Source:
    """A model with its example inputs, as a SOURCE gave them; `name` is a good name for its package.

    training: what the file has for training: "loss", "optimizer" and "targets". has_inputs: whether it has examples.
    """

    name: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    training: Mapping[str, Any] = field(default_factory=dict)
    has_inputs: bool = True


def describe(source: Source) -> str:
    """`BertModel, 109.5 M parameters`"""
    parameters = getattr(source.model, "parameters", None)
    kind = getattr(source.model, "__name__", type(source.model).__name__)
    if not callable(parameters):
        return kind
    count = sum({id(p): p.numel() for p in parameters()}.values())
    return f"{kind}, {parameters_text(count)}"


def load_source(text: str, needs_inputs: bool = True) -> Source:
    """Loads the model that a SOURCE names, running the user's file as `python model.py` would. Raises CompileError.

    needs_inputs: False: a file without example inputs is no error.
    """
    path, colon, factory = text.rpartition(":")
    if not colon:
        path, factory = text, ""
    if path.endswith(".pt2") or text.endswith(".pt2"):
        return _load_program(Path(text))
    if (refused := refusal(text, source=True)) is not None:
        raise CompileError(refused[0], hint=refused[1])
    if (found := recognise(text)) is not None and found.program:
        return _load_program(Path(text))
    with _command_line_of(path):
        return _load_code(text, path, factory, needs_inputs)


def _load_code(text: str, path: str, factory: str, needs_inputs: bool) -> Source:
    if factory and not factory.isidentifier():
        raise CompileError(f"'{factory}' in '{text}' is not the name of a function")
    if Path(path).is_dir() and not (factory and path.isidentifier()):
        raise CompileError(
            f"the folder '{text}' has no config.json, so it is no model",
            hint="Name the file in it that has the model: model.py, or model.py:factory.",
        )
    if path.endswith(".py") or "/" in path or Path(path).is_file():
        return _from_module(_run_file(Path(path)), Path(path).name, Path(path).stem, factory, needs_inputs)
    if factory and all(part.isidentifier() for part in path.split(".")):
        return _from_module(_import(path), path, path.rpartition(".")[2], factory, needs_inputs)
    raise CompileError(
        f"cannot read the source '{text}'",
        hint=_SOURCES,
    )


@contextmanager
def _command_line_of(path: str) -> Iterator[None]:
    """The model's code sees a command line of its own, as under `python model.py`, not that of mycc."""
    before = sys.argv
    sys.argv = [path]
    try:
        yield
    finally:
        sys.argv = before


# -- running the user's code ------------------------------------------------------------------------------------------


def _run_file(path: Path) -> ModuleType:
    if not path.exists():
        raise CompileError(f"there is no file '{path}'")
    if not path.is_file():
        raise CompileError(f"'{path}' is not a file")
    try:
        text = path.read_bytes()
        if b"\0" in text:
            raise CompileError(f"'{path}' is not a Python file: it has null bytes", hint=_SOURCES)
        code = compile(text, str(path.resolve()), "exec")
    except SyntaxError as error:
        where = f"{path.name}:{error.lineno}  {(error.text or '').strip()}".rstrip()
        details = [where] if error.lineno is not None else []  # a file of bytes has no lines
        raise CompileError(f"'{path}' is not valid Python: {error.msg}", details=details) from None
    except ValueError as error:  # a wrong encoding
        raise CompileError(f"'{path}' is not a Python file: {error}") from None
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror}") from None
    folder = str(path.resolve().parent)
    if sys.path[:1] != [folder]:  # as `python model.py` does, so that it finds the modules beside it
        sys.path.insert(0, folder)
    name = re.sub(r"\W", "_", path.stem)
    while name in sys.modules:  # never hide an installed module of this name
        name += "_"
    file = str(path.resolve())
    spec = importlib.util.spec_from_file_location(
        name, file, loader=SourceFileLoader(name, file)
    )  # whatever its suffix
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        sys.modules.pop(name, None)
        raise _user_error(error, f"'{path}' raised while it was run") from error
    return module


def _import(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CompileError(f"there is no module '{error.name}'", hint=f"Looked for '{name}' on sys.path.") from None
        raise _user_error(error, f"module '{name}' raised while it was imported") from error
    except BaseException as error:
        raise _user_error(error, f"module '{name}' raised while it was imported") from error


def _user_error(error: BaseException, what: str) -> BaseException:
    """The CompileError for an exception of the user's code; Ctrl-C stays what it is."""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit, Error)):
        return error
    if isinstance(error, SystemExit):
        return CompileError(f"{what}: it ended the program (exit code {error.code})")
    if isinstance(error, SyntaxError) and error.filename:
        where = [f"{Path(error.filename).name}:{error.lineno}  {(error.text or '').strip()}"]
    else:
        frames = [f for f in frames_of_exception(error) if not is_torch_file(f.file)]
        frame = user_frame([f for f in frames if "importlib" not in f.file])
        where = [f"{Path(frame.file).name}:{frame.line}  {frame.text}"] if frame else []
    reason = str(error).strip().splitlines()
    short = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__
    return CompileError(f"{what}: {short[:400]}", details=where)


def _call(function: Any, what: str) -> Any:
    if not callable(function):
        raise CompileError(f"{what} is a {type(function).__name__}, not a function")
    try:
        with torch.no_grad():
            return function()
    except BaseException as error:
        raise _user_error(error, f"{what} raised") from error


# -- what a module holds ----------------------------------------------------------------------------------------------


def _from_module(module: ModuleType, file: str, name: str, factory: str, needs_inputs: bool) -> Source:
    inputs: Any = None
    if factory:
        if not hasattr(module, factory):
            raise CompileError(f"{file} has no '{factory}'", hint=_offers(module))
        named = getattr(module, factory)
        # a module is the model itself, a function is asked for it
        model = named if isinstance(named, torch.nn.Module) else _call(named, f"{factory}() of {file}")
        if isinstance(model, tuple):
            if len(model) not in (2, 3):
                raise CompileError(f"{factory}() of {file} gives {len(model)} values, not a module or (module, inputs)")
            model, inputs = (model[0], model[1]) if len(model) == 2 else (model[0], (model[1], model[2]))
        name = factory if factory not in ("build", "create", "factory", "make", "get_model", "model") else name
        what = f"{factory} of {file}" if model is named else f"{factory}() of {file}"
    elif hasattr(module, "model"):
        model, what = module.model, f"`model` of {file}"
    elif hasattr(module, "get_model"):
        model, what = _call(module.get_model, f"get_model() of {file}"), f"get_model() of {file}"
    else:
        raise CompileError(f"{file} has no model: looked for {_MODEL_NAMES}", hint=_offers(module))
    _check_model(model, what)
    optional = isinstance(model, ExportedProgram)
    found = _inputs(module, file, inputs, optional or not needs_inputs)
    args, kwargs = found or ((), {})
    shapes, training = getattr(module, "dynamic_shapes", None), _training(module, file)
    return Source(name, model, args, kwargs, shapes, training, has_inputs=optional or found is not None)


def _training(module: ModuleType, file: str) -> dict[str, Any]:
    found = {}
    for key, name in (("loss", "loss"), ("optimizer", "optimizer"), ("targets", "example_targets")):
        if hasattr(module, name):
            found[key] = getattr(module, name)
    if "optimizer" not in found and hasattr(module, "get_optimizer"):
        found["optimizer"] = _call(module.get_optimizer, f"get_optimizer() of {file}")
    targets = found.get("targets", ())
    found["targets"] = (targets,) if isinstance(targets, torch.Tensor) else tuple(targets)
    return found


def _offers(module: ModuleType) -> str | None:
    """What the file has that could be meant."""

    def could_be(value: Any) -> bool:
        defined_here = getattr(value, "__module__", "") == module.__name__
        return isinstance(value, torch.nn.Module) or (callable(value) and defined_here)

    own = [name for name, value in vars(module).items() if not name.startswith("_") and could_be(value)]
    return f"It has: {', '.join(own)}. Name one with file.py:NAME, or call it `model`." if own else None


def _check_model(model: Any, what: str) -> None:
    if isinstance(model, type):
        raise CompileError(f"{what} is the class {model.__name__}, not an instance of it")
    if not isinstance(model, (torch.nn.Module, ExportedProgram)) and not callable(model):
        raise CompileError(f"{what} is a {type(model).__name__}, not an nn.Module")


def _inputs(
    module: ModuleType, file: str, inputs: Any, optional: bool
) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
    """The example inputs; None: there are none, and they are optional."""
    what = "the example inputs"
    if inputs is None:
        if hasattr(module, "example_inputs"):
            inputs, what = module.example_inputs, "`example_inputs`"
            if callable(inputs) and not isinstance(inputs, torch.nn.Module):
                inputs = _call(inputs, f"example_inputs() of {file}")
        elif hasattr(module, "get_example_inputs"):
            inputs, what = _call(module.get_example_inputs, f"get_example_inputs() of {file}"), "get_example_inputs()"
        elif optional:
            return None
        else:
            raise CompileError(
                f"{file} has no example inputs: looked for {_INPUT_NAMES}",
                hint="They are a tuple of args, or (args, kwargs); torch.export needs them to trace the model.\n"
                "For an image: example_inputs = (torch.randn(1, 3, 224, 224),)\n"
                "On the command line: --input x=f32[1,3,224,224], by the names of forward().",
            )
    return _split_inputs(inputs, f"{what} of {file}")


def _split_inputs(inputs: Any, what: str) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), _kwargs(inputs, what)
    if not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise CompileError(f"{what} is a {type(inputs).__name__}, not a tuple of args or (args, kwargs)")
    if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], Mapping):
        return tuple(inputs[0]), _kwargs(inputs[1], what)
    return tuple(inputs), {}


def _kwargs(values: Mapping[Any, Any], what: str) -> Mapping[str, Any]:
    wrong = [key for key in values if not isinstance(key, str)]
    if wrong:
        raise CompileError(f"{what}: keyword arguments have names, not {wrong[0]!r}")
    return dict(values)


#: members of a .pt2 that torch.export.load unpickles or runs
_OBJECTS = ("data/aotinductor/", "data/constants/custom_obj_", "data/constants/opaque_obj_")


def _refuse_objects(path: Path) -> None:
    """Raises CompileError for a program that holds compiled code or pickled objects."""
    try:
        members = torch._C.PyTorchFileReader(str(path)).get_all_records()
    except RuntimeError:
        return  # no archive of this kind: torch.export.load says what is wrong
    if any(member.startswith(_OBJECTS) for member in members):
        raise _objects(path)


def _objects(path: Path) -> CompileError:
    return CompileError(
        f"'{path}' holds pickled objects or compiled code besides its tensors, which would run while it is read",
        hint="If you trust the file: program = torch.export.load(...) in Python, then mycc.compile(program, ...).",
    )


@contextmanager
def _tensors_alone() -> Iterator[None]:
    """torch.load() reads tensors and plain values, and unpickles no other objects; torch.export.load() falls back to
    that by itself."""
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


_FORCE, _FORCE_NOT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def _load_program(path: Path) -> Source:
    if not path.is_file():
        raise CompileError(f"there is no file '{path}'")
    try:
        _refuse_objects(path)
        with _tensors_alone(), open(path, "rb") as file:  # a path has to end in .pt2, a file need not
            program = torch.export.load(file)
    except CompileError:
        raise
    except pickle.UnpicklingError:
        raise _objects(path) from None
    except Exception as error:
        if isinstance(error.__context__, pickle.UnpicklingError):
            raise _objects(path) from None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CompileError(
            f"'{path}' is not a program saved by torch.export.save that this torch can read: {reason[:300]}"
        ) from None
    if program.example_inputs is None:
        raise CompileError(f"the program in '{path}' was saved without its example inputs")
    args, kwargs = program.example_inputs
    return Source(re.sub(r"\W", "_", path.stem), program, tuple(args), dict(kwargs))
