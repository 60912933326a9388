"""Operators of the user's own: lowerings, C++ kernels and Triton kernels that are registered by name.

    @mycc.lowering("demo::soft_clip")          the loop IR, for every kind of target
    mycc.cpp_kernel("demo::blur", source)      a C++ function, for CPUs
    @mycc.triton_kernel("demo::blur")          launches of a Triton kernel, for GPUs

docs/custom-operators.md shows each with its example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

from ....runtime.errors import CompileError, Error
from ...ir.index import ONE, Index, as_index
from ...ir.routines import Blocks, CppSource, Custom, TritonSource
from ...ir.verify import broken_laws
from ...model.operators.functional import behind_twin, tensors_of, twin_key, written_arguments
from ...model.operators.kept import CUSTOM
from ...model.source_lines import is_user_file
from .builder import Builder, cast, compare, number
from .context import Context
from .in_place import copied_to_write, target_of
from .registry import REGISTRY, LoweringFunction
from .tensor import Tensor, blocks_of, is_dense, layout_of

__all__ = ["TritonLaunch", "cpp_kernel", "lowering", "triton_kernel"]

Family = Literal["cpu", "cuda", "any"]
_NAME = re.compile(r"(?P<space>\w+)::(?P<op>\w+)(?:\.(?P<overload>\w+))?")
_registered: dict[str, dict[Family, LoweringFunction]] = {}


@dataclass(frozen=True)
class TritonLaunch:
    """One launch of a Triton kernel: what a function registered with triton_kernel returns.

    Attributes:
        kernel: the @triton.jit function.
        grid: programs along x, y and z: numbers or sizes of the model, one to three of them.
        args: for the parameters of the kernel that are no constants, in order: tensors and whole numbers or sizes.
        constants: the tl.constexpr parameters by name, which stand behind the others.
    """

    kernel: Any
    grid: Sequence[int | Index]
    args: Sequence[Tensor | int | Index]
    constants: Mapping[str, int | bool | str]
    num_warps: int = 4
    num_stages: int = 3


def lowering(name: str) -> Callable[[LoweringFunction], LoweringFunction]:
    """Registers a function (ctx, *arguments) -> Tensor, or a tuple of them, for the operator `name` ("ns::op").

    ctx is the Context: `ctx.map(value)` makes the result from a function of its indices, `ctx.builder` the rest.
    Tensor arguments are Tensors of the lowering, all others as the model gave them. A later registration replaces an
    earlier one.
    """
    _key(name)

    def add(function: LoweringFunction) -> LoweringFunction:
        _register(name, "any", function)
        return function

    return add


def cpp_kernel(name: str, source: str | Path, function: str | None = None, *, strided: bool = False) -> None:
    """Compiles a C++ function into CPU packages for the operator `name` ("ns::op").

    Args:
        source: C++ text, or the path of a file, that defines
            extern "C" void function(const mycc_host *host, const mycc_tensor *outputs, const mycc_tensor *inputs,
                                     const mycc_number *numbers);   // mycc/custom.h
            Tensors come in the order of the operator's schema, so do the other arguments as numbers.
        function: its name; None: that of the operator.
        strided: inputs may be views with any strides; else they are dense and row-major.

    Raises:
        CompileError: the source does not define the function.
    """
    try:
        text = source.read_text() if isinstance(source, Path) else source
    except OSError as error:
        raise CompileError(f"cannot read the C++ source of {name}: {error.strerror}: '{source}'") from None
    symbol = function or _key(name).split(".")[1]
    if not re.search(rf"\b{re.escape(symbol)}\s*\(", text):
        raise CompileError(
            f'the C++ source of {name} does not define {symbol}(); it has to be an extern "C" function',
            hint="See mycc/custom.h for its parameters, and give its name with function= when it is another.",
        )
    kernel = CppSource(symbol, text)

    def lower(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        return _cpp_call(ctx, kernel, strided, _given(ctx, args, kwargs))

    _register(name, "cpu", lower)


def triton_kernel(name: str) -> Callable[[Callable[..., TritonLaunch]], Callable[..., TritonLaunch]]:
    """Registers a function (ctx, outputs, *arguments) -> TritonLaunch for the operator `name` in packages for GPUs.

    outputs: the tensors to write, dense and row-major: the results, then the arguments that the operator writes to,
    which are the same tensors among the arguments. All other tensors are dense and row-major too.
    """
    _key(name)

    def add(function: Callable[..., TritonLaunch]) -> Callable[..., TritonLaunch]:
        def lower(ctx: Context, *args: Any, **kwargs: Any) -> Any:
            given = _given(ctx, args, kwargs)
            own = [a if not isinstance(a, Tensor) or given.writes(a) else ctx.builder.dense(a) for a in given.args]
            return _triton_call(ctx, function(ctx, given.outputs, *own, **given.kwargs), given)

        _register(name, "cuda", lower)
        return function

    return add


def _key(name: str) -> str:
    """torch's own spelling of an overload: "ns.op.default"."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise CompileError(f"'{name}' is no operator's name", hint='It looks like "ns::op".')
    return f"{match['space']}.{match['op']}.{match['overload'] or 'default'}"


def _register(name: str, family: Family, function: LoweringFunction) -> None:
    key = _key(name)
    table = _registered.setdefault(key, {})
    table[family] = function

    def lower(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        chosen = table.get(ctx.builder.family) or table.get("any")
        if chosen is None:
            how = "@mycc.triton_kernel" if ctx.builder.family == "cuda" else "mycc.cpp_kernel"
            raise CompileError(
                f"{name} has no kernel for a target of this kind ({ctx.builder.family})",
                hint=f'Register one with {how}("{name}", ...), or a lowering for all kinds with '
                f'@mycc.lowering("{name}") (docs/custom-operators.md).',
            )
        before = len(ctx.builder.nodes)
        result = _called(name, chosen, ctx, args, kwargs)
        _check_results(name, ctx, result)
        if isinstance(result, Tensor) and isinstance(ctx.node.meta["val"], (tuple, list)):
            result = (result,)
        for node in ctx.builder.nodes[before:]:
            for problem in broken_laws(node):
                raise CompileError(f"the lowering of {name} is no loop IR: {problem}")
        return result

    for own in (key, twin_key(key)):
        CUSTOM.add(own)
        REGISTRY.put(own, lower)


def _called(name: str, function: LoweringFunction, ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function's result; what it raises is an error of the one who registered it."""
    try:
        return function(ctx, *args, **kwargs)
    except Error:
        raise
    except Exception as error:
        frames = [f for f in extract_tb(error.__traceback__) if is_user_file(f.filename)]
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}  {frames[-1].line})" if frames else ""
        raise CompileError(f"the lowering of {name} raised {type(error).__name__}: {error}{where}") from error


def _check_results(name: str, ctx: Context, result: Any) -> None:
    """A CompileError where the results are not what the operator's fake implementation says."""
    values = ctx.node.meta["val"]
    several = isinstance(values, (tuple, list))
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    count = len(values) if several else 1
    if len(results) != count or not all(isinstance(t, Tensor) for t in results):
        given = ", ".join(type(t).__name__ for t in results)
        twin = behind_twin(ctx.node.target) is not None
        what = " (its results, then the new values of what it writes to)" if twin else ""
        raise CompileError(f"the lowering of {name} has to return {count} Tensor{'s' * (count > 1)}{what}, not {given}")
    for i, t in enumerate(results):
        wanted = ctx.result_shape(i if several else None)
        if t.shape != wanted:
            number = f"result {i}" if several else "a result"
            raise CompileError(
                f"the lowering of {name} gives {number} of shape [{', '.join(map(str, t.shape))}], "
                f"the operator's fake implementation says [{', '.join(map(str, wanted))}]"
            )


# nodes ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Given:
    """What a kernel works on.

    outputs: dense tensors to write: the results, then the arguments that the operator writes to, which hold their
    values. args, kwargs: of the call, these outputs among them. before: the memory below what is written over.
    """

    outputs: list[Tensor]
    args: list[Any]
    kwargs: dict[str, Any]
    before: tuple[Blocks, ...] = ()

    def writes(self, t: Tensor) -> bool:
        return any(t is output for output in self.outputs)


def _given(ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Given:
    values = ctx.node.meta["val"]
    operator = behind_twin(ctx.node.target)
    written = [] if operator is None else written_arguments(operator, args, kwargs)
    several = isinstance(values, (tuple, list))
    numbers = range(len(values) - len(tensors_of(written))) if several else [None]
    outputs = [ctx.builder.temp(ctx.result_shape(i), ctx.result_dtype(i)) for i in numbers]
    before: list[Blocks] = []

    def copied(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [copied(v) for v in value]
        if value is None:
            return None
        there = target_of(ctx, value)
        if there is not None and is_dense(there):
            kept, tensor = blocks_of(value), there
        else:
            kept, tensor = copied_to_write(ctx.builder, value)
        before.append(kept)
        outputs.append(tensor)
        return tensor

    own = {name: copied(value) for name, value in written}
    names = [] if operator is None else [a.name for a in operator._schema.arguments]
    positional = [own.get(name, value) for name, value in zip_longest(names[: len(args)], args)]
    return _Given(outputs, positional, {k: own.get(k, v) for k, v in kwargs.items()}, tuple(before))


def _finished(ctx: Context, outputs: Sequence[Tensor]) -> Any:
    return tuple(outputs) if isinstance(ctx.node.meta["val"], (tuple, list)) else outputs[0]


def _cpp_call(ctx: Context, kernel: CppSource, strided: bool, given: _Given) -> Any:
    builder = ctx.builder
    tensors: list[Tensor] = []
    numbers: list[int | float | Index] = []
    for arg in _flat([*given.args, *given.kwargs.values()]):
        if isinstance(arg, Tensor) and given.writes(arg):
            continue
        if isinstance(arg, Tensor):
            tensors.append(_in_memory(builder, arg, strided))
        elif isinstance(arg, (bool, int, float, Index)):
            numbers.append(arg)
        elif arg is not None:
            raise ctx.refuse(f"a C++ kernel takes tensors and numbers, not a {type(arg).__name__}")
    outputs = given.outputs
    layouts = tuple(layout_of(t) for t in (*outputs, *tensors))
    builder.add(
        Custom(
            (),
            (),
            builder.origin,
            kernel.function,
            ONE,
            (*map(blocks_of, tensors), *given.before),
            tuple(map(blocks_of, outputs)),
            (),
            kernel,
            layouts,
            tuple(numbers),
        )
    )
    return _finished(ctx, outputs)


def _in_memory(builder: Builder, t: Tensor, strided: bool) -> Tensor:
    """An input as a C++ kernel takes it. Bools of the caller are copied: C++ may read them as `bool`, whose byte has to
    be 0 or 1."""
    placed = builder.realize(t) if strided else builder.dense(t)
    assert placed.strided is not None
    given = t.dtype == "bool" and placed.strided.buffer.kind in ("input", "inout", "state", "const")
    if not given:
        return placed
    return builder.map(t.shape, "bool", lambda i: compare("ne", cast(placed.at(i), "i32"), number(0, "i32")))


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return flat


def _triton_call(ctx: Context, launch: TritonLaunch, call: _Given) -> Any:
    outputs = call.outputs
    function = getattr(launch.kernel, "fn", launch.kernel)
    names = list(getattr(launch.kernel, "arg_names", ()))
    given = len(launch.args) + len(launch.constants)
    if not names or not callable(function):
        raise ctx.refuse("the kernel of a TritonLaunch has to be a @triton.jit function")
    if given != len(names) or set(names[len(launch.args) :]) != set(launch.constants):
        raise ctx.refuse(
            f"{function.__name__} has the parameters {', '.join(names)}: args has to give the first of them and "
            "constants the others by name"
        )
    tensors = [a for a in launch.args if isinstance(a, Tensor)]
    written = [t.strided.buffer for t in outputs if t.strided is not None]
    inputs = [t for t in tensors if t.strided is not None and t.strided.buffer not in written]
    order = [*outputs, *inputs]
    arguments: list[tuple[str, int | Index]] = []
    for a in launch.args:
        if isinstance(a, Tensor):
            arguments.append(("tensor", _position(order, a)))
        else:
            arguments.append(("size", as_index(a)))
    grid = tuple(as_index(g) for g in (*launch.grid, 1, 1)[:3])
    source = TritonSource(
        function.__name__, _triton_text(launch.kernel), tuple(names), tuple(launch.constants.items()),
        tuple(arguments), grid, launch.num_warps, launch.num_stages,
    )  # fmt: skip
    ctx.builder.add(
        Custom(
            (),
            (),
            ctx.builder.origin,
            function.__name__,
            ONE,
            (*map(blocks_of, inputs), *call.before),
            tuple(map(blocks_of, outputs)),
            (),
            source,
            tuple(map(layout_of, order)),
            (),
        )
    )
    return _finished(ctx, outputs)


def _position(order: Sequence[Tensor], t: Tensor) -> int:
    return next(i for i, other in enumerate(order) if other is t or other.strided == t.strided)


def _triton_text(kernel: Any) -> str:
    """The text of a kernel as a module of its own: it may use triton, tl, and nothing else from outside."""
    source = str(getattr(kernel, "src", None) or getattr(kernel, "_src", ""))
    return source[source.index("def ") :]
