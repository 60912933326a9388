"""What torch calls in a graph's place: arguments to the package's inputs, its outputs to results, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import sympy
import torch

from .interface import Argument, Constant, Interface, Number, Output, Result, Size, Source, View, inverse

__all__ = ["Runner", "make_runner", "restrided"]

#: takes the arguments as a list, which it empties; gives the results
Runner = Callable[[list[Any]], Sequence[Any]]
_Input = Callable[[Sequence[Any]], Any]
_Made = Callable[[Sequence[Any], Sequence[Any]], Any]


def make_runner(native: Any, interface: Interface) -> Runner:
    """native: the loaded package; None where the graph computes nothing."""
    pick = _picker(interface.sources)
    special = [(i, _input(s)) for i, s in enumerate(interface.sources) if not _is_direct(s)]
    plain = [Output(i) for i in range(len(interface.results))] == list(interface.results)
    makers = [_result(result, interface.symbols) for result in interface.results]
    run = _nothing if native is None else native.run if interface.sources else _from_nothing(native.run)

    def direct(args: list[Any]) -> Sequence[Any]:
        results: Sequence[Any] = run(0, pick(args), None, None, None)
        args.clear()
        return results

    def general(args: list[Any]) -> Sequence[Any]:
        inputs = list(pick(args))
        for i, make in special:
            inputs[i] = make(args)
        outputs = run(0, inputs, None, None, None)
        results = [make(args, outputs) for make in makers]
        args.clear()
        return results

    runner = direct if plain and not special else general
    runner._boxed_call = True  # type: ignore[attr-defined]
    return runner


def _nothing(*_: Any) -> list[Any]:
    return []


def _from_nothing(run: Callable[..., Any]) -> Callable[..., Any]:
    """The run of a graph without inputs, whose outputs the package gives as numpy's arrays, or by DLPack."""

    def tensor(value: Any) -> torch.Tensor:
        if not hasattr(value, "__array_interface__"):
            return torch.from_dlpack(value)
        try:
            return torch.from_numpy(value)
        except TypeError:  # a dtype of ml_dtypes: bfloat16, float8_e4m3fn
            bits = torch.from_numpy(value.view(f"i{value.dtype.itemsize}"))
            return bits.view(getattr(torch, value.dtype.name))

    return lambda *given: [tensor(value) for value in run(*given)]


def _is_direct(source: Source) -> bool:
    return isinstance(source, Argument) and source.order is None


def _picker(sources: Sequence[Source]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The arguments that the inputs stand for, as they are."""
    places = [source.index for source in sources]
    if len(places) > 1:
        return itemgetter(*places)
    return lambda args: [args[i] for i in places]


def _input(source: Source) -> _Input:
    index = source.index
    if isinstance(source, Size):
        return lambda args: torch.empty((args[index], 0))
    order = source.order
    return lambda args: args[index].permute(order)


def _result(result: Result, symbols: Mapping[sympy.Symbol, tuple[int, int | None]]) -> _Made:
    match result:
        case Output(index, _, View() as view, True):
            strides = [_formula(n, symbols) for n in view.stride]
            return lambda args, outputs: restrided(outputs[index], [n((*args, *outputs)) for n in strides])
        case Output(index, order, View() as view):
            whole = _result(Output(index, order), symbols)
            numbers = (*view.size, *view.stride, view.offset)
            if all(isinstance(n, int) for n in numbers):
                size, stride, offset = view.size, view.stride, view.offset
                return lambda args, outputs: torch.as_strided(whole(args, outputs), size, stride, offset)
            place = _view(-1, view.size, view.stride, view.offset, symbols)
            return lambda args, outputs: place((*args, *outputs, whole(args, outputs)), ())
        case Output(index, order):
            if order is None:
                return lambda args, outputs: outputs[index]
            back = inverse(order)
            return lambda args, outputs: outputs[index].permute(back)
        case View(index, whole=True):
            return lambda args, outputs: args[index]
        case View(index, size, stride, offset):
            return _view(index, size, stride, offset, symbols)
        case Constant(value):
            return lambda args, outputs: value
        case Number(formula):
            number = _formula(formula, symbols)
            return lambda args, outputs: number((*args, *outputs))
    raise TypeError(result)


def restrided(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """A tensor of these values and strides."""
    return torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)


def _view(index: int, size: Any, stride: Any, offset: Any, symbols: Mapping[Any, Any]) -> _Made:
    if all(isinstance(n, int) for n in (*size, *stride, offset)):
        if not offset:
            return lambda args, outputs: torch.as_strided(args[index], size, stride)
        return lambda args, outputs: torch.as_strided(args[index], size, stride, args[index].storage_offset() + offset)
    sizes = [_formula(n, symbols) for n in size]
    strides = [_formula(n, symbols) for n in stride]
    first = _formula(offset, symbols)

    def view(args: Sequence[Any], outputs: Sequence[Any]) -> Any:
        own, given = args[index], (*args, *outputs)
        at = own.storage_offset() + first(given)
        return torch.as_strided(own, [n(given) for n in sizes], [n(given) for n in strides], at)

    return view


def _formula(formula: Any, symbols: Mapping[sympy.Symbol, tuple[int, int | None]]) -> _Input:
    """A number from the arguments."""
    if isinstance(formula, int) or formula.is_Integer:
        value = int(formula)
        return lambda args: value
    names = sorted(formula.free_symbols, key=str)
    places = [symbols[name] for name in names]
    get = [_symbol(*place) for place in places]
    if formula == names[0]:
        return get[0]
    function = _compiled(names, formula)
    return lambda args: function(*(value(args) for value in get))


def _symbol(index: int, dim: int | None) -> _Input:
    if dim is None:
        return itemgetter(index)
    return lambda args: args[index].shape[dim]


def _compiled(names: Sequence[sympy.Symbol], formula: sympy.Expr) -> Callable[..., Any]:
    """A formula of torch's over sizes as a Python function."""
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    def function(*values: Any) -> Any:
        return sympy_interp(PythonReferenceAnalysis, dict(zip(names, values, strict=True)), formula)

    return function
