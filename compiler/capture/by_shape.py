"""Functions of torch that look at the values of their tensors while they run, in forms that need the shapes alone.

torch.export cannot trace the ones that torch has: they check values in Python or C++, or choose by them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from ..model.operators.resize_smooth import TAPS, resized_size, resized_smoothly
from . import checked
from .masks import masked_scatter, masked_scatter_
from .out_arguments import WITH_OUT, copied
from .pools import average_of_a_line, maximum_of_a_line
from .recurrent import of_all_lengths
from .result_types import bincount, unique, unique_consecutive
from .running_statistics import batch_norm
from .sparse import product_by_shape, sum_by_shape
from .tensor_indices import get_item, set_item, sum_of

__all__ = ["ByShape", "bound"]

aten = torch.ops.aten
Function = Callable[..., Any]
_FORMS: dict[Any, Function] = {}
_PRODUCTS = ("matmul", "__matmul__", "mm", "mv")


class ByShape(TorchFunctionMode):
    """While it lasts, calls of these functions run the forms below."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in WITH_OUT and named.get("out") is not None:
            rest = {key: value for key, value in named.items() if key != "out"}
            if copied(func, self.__torch_function__(func, types, args, rest), named["out"]):
                return named["out"]
        if (form := _FORMS.get(func)) is not None and (call := bound(form, args, named)) is not None:
            return form(*call.args, **call.kwargs)
        return func(*args, **named)


#: torch's names for the first argument, and names of others that have several
_FIRST = ("input", "self", "x", "a", "x1", "sparse", "mat")
_NAMES = {
    "axis": "dim",
    "keepdims": "keepdim",
    **dict.fromkeys(("x2", "mat2", "vec", "dense"), "other"),
    **dict.fromkeys(("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections"),
}


def bound(form: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments | None:
    """The arguments of a call, by torch's names, as those of a form; None: the form does not take this overload."""
    signature = _signature(form)
    first = next(iter(signature.parameters))
    named = {}
    for key, value in kwargs.items():
        if not args and key in _FIRST:
            key = first
        elif _NAMES.get(key) in signature.parameters:
            key = _NAMES[key]
        named[key] = value
    try:
        return signature.bind(*args, **named)
    except TypeError:
        return None


_signature = functools.cache(inspect.signature)


def _form_of(*functions: Any) -> Callable[[Function], Function]:
    def add(form: Function) -> Function:
        _FORMS.update(dict.fromkeys(functions, form))
        return form

    return add


# comparisons ---------------------------------------------------------------------------------------------------------
@_form_of(torch.equal, Tensor.equal)
def _equal(x: Tensor, other: Tensor) -> Any:
    return (x == other).all().item() if x.shape == other.shape else False


@_form_of(torch.allclose, Tensor.allclose)
def _allclose(x: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return torch.isclose(x, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


# normalisations ------------------------------------------------------------------------------------------------------
_form_of(F.batch_norm)(batch_norm)


# selections ----------------------------------------------------------------------------------------------------------
_form_of(torch.unique, Tensor.unique)(unique)
_form_of(torch.unique_consecutive, Tensor.unique_consecutive)(unique_consecutive)
_form_of(torch.bincount, Tensor.bincount)(bincount)


@_form_of(torch.combinations)
def _combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    if r == 0 or not isinstance(x.shape[0], int):
        return torch.combinations(x, r, with_replacement)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(x.shape[0]), r))
    if not chosen:
        return x.new_empty([0, r])
    return x[torch.tensor(chosen)]


@_form_of(torch.narrow, Tensor.narrow)
def _narrow(x: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A start that is a tensor: places are looked up, one out of range is an error of the run."""
    if not isinstance(start, Tensor):
        return x.narrow(dim, start, length)
    first = torch.where(start < 0, start + x.shape[dim], start).reshape([])
    return x.index_select(dim, first + torch.arange(length, device=x.device))


_form_of(torch.masked_scatter, Tensor.masked_scatter)(masked_scatter)
_form_of(Tensor.masked_scatter_)(masked_scatter_)
for _add in (torch.add, Tensor.add):
    _form_of(_add)(functools.partial(sum_of, _add))
_form_of(Tensor.__getitem__)(get_item)
_form_of(Tensor.__setitem__)(set_item)


@_form_of(torch.tensor_split, Tensor.tensor_split)
def _tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """At places that are a tensor: slices between numbers that the run finds."""
    if not isinstance(indices_or_sections, Tensor) or indices_or_sections.dim() != 1:
        return torch.tensor_split(x, indices_or_sections, dim)
    places = [None, *(place.item() for place in indices_or_sections.unbind()), None]
    return tuple(aten.slice.Tensor(x, dim, a, b) for a, b in itertools.pairwise(places))


@_form_of(torch.chunk, Tensor.chunk)
def _chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    """Of a dynamic size that is always a multiple of `chunks`: torch asks how many pieces the example's size gives."""
    size = x.shape[dim] if x.dim() and isinstance(chunks, int) and chunks > 0 else 0
    if isinstance(size, int) or not statically_known_true(size % chunks == 0) or not statically_known_true(size > 0):
        return torch.chunk(x, chunks, dim)
    return torch.split(x, [size // chunks] * chunks, dim)


@_form_of(torch.repeat_interleave, Tensor.repeat_interleave)
def _repeat_interleave(
    x: Any = None, repeats: Any = None, dim: int | None = None, *, output_size: Any = None
) -> Tensor:
    """A dynamic size of the result that is given with a number of repeats, which torch makes a number of."""
    if not isinstance(output_size, torch.SymInt) or not isinstance(repeats, (int, torch.SymInt)):
        given: list[Any] = [part for part in (x, repeats, dim) if part is not None]
        return torch.repeat_interleave(*given, output_size=output_size)
    count = x.numel() if dim is None else x.shape[dim]
    torch._check(output_size == count * repeats, lambda: "repeat_interleave: output_size is not the result's")
    return torch.repeat_interleave(x, repeats, dim)


def _of_vmap(x: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(x)


@_form_of(F.one_hot)
def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """With torch's checks, which an export of torch 2.11 leaves out. Without a number of classes: as many as the run
    finds."""
    wrong = num_classes == 0 or num_classes < -1 or (num_classes == -1 and tensor.numel() == 0)
    if wrong or _of_vmap(tensor):  # assertions have no batching rule
        return F.one_hot(tensor, num_classes)
    count: Any = num_classes
    if num_classes == -1:
        torch._assert_async((tensor >= 0).all(), "one_hot: Class values must be non-negative.")
        count = (tensor.max().clamp(min=0) + 1).item()  # of the largest int64: negative, which the run refuses
        torch._check(count >= 1)
    else:
        inside = ((tensor >= 0) & (tensor < num_classes)).all()
        torch._assert_async(inside, f"one_hot: Class values must be non-negative and smaller than {num_classes}.")
    return (tensor.unsqueeze(-1) == torch.arange(count, device=tensor.device)).to(torch.int64)


@_form_of(F.ctc_loss)
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """torch sizes what it keeps for the gradient by the longest target; the loss alone needs no such size."""
    single = log_probs.dim() == 2
    probs = log_probs.unsqueeze(1) if single else log_probs
    counts, steps = (torch.as_tensor(n, device=probs.device).to(torch.int64) for n in (target_lengths, input_lengths))
    counts, steps = counts.reshape([-1]), steps.reshape([-1])
    labels = targets.reshape([1, -1]) if single else targets
    packed = labels.dim() == 1
    first = counts.cumsum(0) - counts if packed else torch.arange(labels.shape[0]) * labels.shape[1]
    lengths = torch.stack([steps, counts], 1)
    loss = torch.ops.mycc.ctc_loss(probs, labels.reshape([-1]).to(torch.int64), first, lengths, blank)
    if zero_infinity:
        loss = torch.where(loss == math.inf, torch.zeros_like(loss), loss)
    if reduction == "mean":
        return (loss / counts.clamp(min=1).to(loss.dtype)).mean()
    return loss.sum() if reduction == "sum" else loss[0] if single else loss


# sparse matrices -----------------------------------------------------------------------------------------------------
for _times in (torch.matmul, torch.mm, torch.mv, torch.sparse.mm, *(getattr(Tensor, n) for n in _PRODUCTS)):
    _form_of(_times)(functools.partial(product_by_shape, _times))
for _plus in (torch.addmm, Tensor.addmm, torch.sparse.addmm):
    _form_of(_plus)(functools.partial(sum_by_shape, _plus))


# numbers as tensors --------------------------------------------------------------------------------------------------
@_form_of(torch.as_tensor)
def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """A number that is computed from dynamic sizes, of which torch takes the example's value for a constant."""
    if not isinstance(data, (torch.SymInt, torch.SymFloat)):
        return torch.as_tensor(data, dtype=dtype, device=device)
    own = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
    return torch.scalar_tensor(data, dtype=dtype or own, device=device)  # type: ignore[arg-type]


# rows of numbers -----------------------------------------------------------------------------------------------------
@_form_of(torch.linspace)
def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """A dynamic number of steps, which torch takes for a constant."""
    kind = dtype or torch.get_default_dtype()
    plain = not isinstance(start, (Tensor, complex)) and not isinstance(end, (Tensor, complex))
    if not isinstance(steps, torch.SymInt) or not kind.is_floating_point or not plain or kwargs.get("out") is not None:
        return torch.linspace(start, end, steps, dtype=dtype, **kwargs)
    total: Any = steps
    first, last, count = (torch.scalar_tensor(n, dtype=kind) for n in (start, end, total))
    i = torch.arange(total, dtype=kind)
    step = (last - first) / (count - 1).clamp(min=1)
    return torch.where(i < (count / 2).ceil(), first + step * i, last - step * (count - 1 - i))


@_form_of(torch.logspace)
def _logspace(
    start: Any, end: Any, steps: Any, base: Any = 10.0, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Tensor:
    whole = dtype is not None and not dtype.is_floating_point
    if not isinstance(steps, torch.SymInt) or whole or kwargs.get("out") is not None:
        return torch.logspace(start, end, steps, base, dtype=dtype, **kwargs)
    return torch.pow(base, _linspace(start, end, steps, dtype=dtype))


def _mean(function: Function, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Of complex numbers: torch divides by the number of elements as by a complex one, which fixes a dynamic size."""
    given = any(kwargs.get(key) is not None for key in ("dtype", "out"))
    if not x.is_complex() or args[1:2] == (None,) or given:
        return function(x, *args, **kwargs)
    return torch.complex(x.real.mean(*args, **kwargs), x.imag.mean(*args, **kwargs))


for _average in (torch.mean, Tensor.mean):
    _form_of(_average)(functools.partial(_mean, _average))


# lists of tensors ----------------------------------------------------------------------------------------------------
def _with_scalars(function: Function, combine: Function) -> None:
    """x + scalar * combine(a, b) of each tensor of a list: scalars in a tensor are read as numbers by torch."""

    def each(xs: Sequence[Tensor], a: Sequence[Tensor], b: Sequence[Tensor], scalars: Tensor) -> list[Tensor]:
        return [
            (x + combine(p, q) * scalar).to(torch.result_type(x, combine(p, q)))
            for x, p, q, scalar in zip(xs, a, b, scalars.unbind(), strict=True)
        ]

    @_form_of(function)
    def form(self: Any, tensor1: Any, tensor2: Any, *args: Any, **kwargs: Any) -> Any:
        scalars = kwargs.get("scalars", args[0] if args else None)
        if not isinstance(scalars, Tensor):
            return function(self, tensor1, tensor2, *args, **kwargs)
        return each(self, tensor1, tensor2, scalars)

    @_form_of(getattr(torch, f"{function.__name__}_"))
    def in_place(self: Any, tensor1: Any, tensor2: Any, *args: Any, **kwargs: Any) -> None:
        scalars = kwargs.get("scalars", args[0] if args else None)
        if not isinstance(scalars, Tensor):
            getattr(torch, f"{function.__name__}_")(self, tensor1, tensor2, *args, **kwargs)
            return
        for i, x in enumerate(self):
            x.copy_(each([x], [tensor1[i]], [tensor2[i]], scalars[i : i + 1])[0])


_with_scalars(torch._foreach_addcmul, torch.mul)
_with_scalars(torch._foreach_addcdiv, torch.div)


# statistics ----------------------------------------------------------------------------------------------------------
@_form_of(torch.cov, Tensor.cov)
def _cov(x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Of a matrix, the covariances of its rows; negative weights and a sum of 0 are errors of the run."""
    rows = x if x.dim() == 2 else x.reshape([1, -1])
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            torch._assert_async((given >= 0).all(), f"cov(): {name} cannot be negative")
    count: Any = rows.shape[1]
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        mean = rows.sum(1) / count
        norm: Any = torch.sym_max(count - correction, 0)
    else:
        total = weights.sum()
        torch._assert_async(total != 0, "cov(): weights sum to zero, can't be normalized")
        mean = (rows * weights).sum(1) / total
        norm = total - correction
        if aweights is not None and correction != 0:
            norm = total - correction * (weights * aweights).sum() / total
        norm = torch.where(norm <= 0, torch.zeros_like(norm), norm)
    rows = rows - mean.unsqueeze(1)
    weighted = rows if weights is None else rows * weights
    return (torch.mm(rows, weighted.t().conj()) / norm).squeeze()


@_form_of(torch.corrcoef, Tensor.corrcoef)
def _corrcoef(x: Tensor) -> Tensor:
    c = _cov(x)
    if c.dim() == 0:
        return c / c
    diagonal = c.diagonal()
    deviation = torch.sqrt(diagonal.real if c.is_complex() else diagonal)
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if c.is_complex():
        return torch.complex(c.real.clip(-1, 1), c.imag.clip(-1, 1))
    return c.clip(-1, 1)


# pools ---------------------------------------------------------------------------------------------------------------
for _maximum in (torch.max_pool1d, torch.max_pool1d_with_indices, F.max_pool1d, F.max_pool1d_with_indices):
    _form_of(_maximum)(functools.partial(maximum_of_a_line, _maximum))
_form_of(torch.avg_pool1d)(average_of_a_line)


# recurrent layers ----------------------------------------------------------------------------------------------------
for _layer in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
    _form_of(_layer)(functools.partial(of_all_lengths, _layer))


# resizing ------------------------------------------------------------------------------------------------------------
@_form_of(F.interpolate)
def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Of dynamic sizes: pools of one dimension take numbers only, and with aligned corners torch asks whether the
    result is larger than 1."""
    count = input.dim() - 2
    given = scale_factor if size is None else size
    each = list(given) if isinstance(given, (list, tuple)) else [given] * count
    dynamic = not all(isinstance(n, int) for n in input.shape[2:]) and len(each) == count
    if dynamic and mode == "area" and count == 1:
        named = {"scale_factor": (1.0, each[0])} if size is None else {"size": (1, each[0])}
        return F.interpolate(input.unsqueeze(-2), mode=mode, **named).squeeze(-2)
    taps = TAPS.get((mode, count)) if size is None and input.is_floating_point() and not antialias else None
    if dynamic and align_corners and taps:
        sizes = [resized_size(n, s) for n, s in zip(input.shape[2:], each, strict=True)]
        return resized_smoothly(input, taps, sizes, True, each)
    return F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


# what values are refused ---------------------------------------------------------------------------------------------
_form_of(torch.linalg.inv, torch.inverse, Tensor.inverse)(checked.inverse)
_form_of(torch.linalg.solve)(checked.solution)
_form_of(torch.histc, Tensor.histc)(checked.histogram)
_form_of(torch.linalg.cholesky, torch.cholesky, Tensor.cholesky)(checked.cholesky)
for _quantile in (torch.quantile, torch.nanquantile):
    _form_of(_quantile, getattr(Tensor, _quantile.__name__))(checked.quantiles(_quantile))


# losses --------------------------------------------------------------------------------------------------------------
@_form_of(F.gaussian_nll_loss)
def _gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Negative elements of `var` are an error of the run."""
    if not isinstance(var, Tensor):
        return F.gaussian_nll_loss(input, target, var, full, eps, reduction)
    torch._assert_async(~(var < 0).any(), "gaussian_nll_loss: var has negative entry/entries")
    if input.shape != var.shape and input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@_form_of(*(getattr(F, name) for name in ["linear_cross_entropy"] if hasattr(F, name)))  # from torch 2.12 on
def _linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> Tensor:
    """Options say how the work is cut into pieces, which is the compiler's affair."""
    return F.linear_cross_entropy(*args, **kwargs)


# products ------------------------------------------------------------------------------------------------------------
@_form_of(torch.einsum)
def _einsum(equation: Any, *operands: Any) -> Tensor:
    """In the order that opt_einsum finds for the example's sizes: it would make numbers of dynamic ones."""
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    sizes = [size for t in tensors if isinstance(t, Tensor) for size in t.shape]
    settings = torch.backends.opt_einsum
    if len(tensors) < 3 or not isinstance(equation, str) or all(isinstance(size, int) for size in sizes):
        return torch.einsum(equation, *operands)
    path = None
    if settings.is_available() and settings.enabled and all(_hint(size) is not None for size in sizes):
        shapes = [tuple(map(_hint, t.shape)) for t in tensors]
        search = settings.get_opt_einsum().contract_path
        steps = search(equation, *shapes, shapes=True, optimize=settings.strategy or "auto")[0]
        path = [place for step in steps for place in step]
    return torch._VF.einsum(equation, tensors, path=path)  # type: ignore[attr-defined]


def _hint(size: Any) -> int | None:
    """A size of the examples; None where only the run finds it."""
    return size if isinstance(size, int) else size.node.hint


# linear algebra ------------------------------------------------------------------------------------------------------
@_form_of(torch.linalg.lstsq)
def _lstsq(a: Tensor, b: Tensor, *, rcond: float | None = None, driver: str | None = None) -> Any:
    """By singular values, which gives every driver's solution, the shortest one where there are several. Residuals of a
    matrix that has not full rank are NaN, where torch has none."""
    m, n = a.shape[-2:]
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    cut = rcond if rcond is not None else torch.finfo(s.dtype).eps * max(m, n)
    kept = s > cut * s.amax(-1, keepdim=True)
    inverse = torch.where(kept, 1 / s, torch.zeros_like(s))
    x = vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ right))
    driver = driver or "gelsy"
    rank = kept.sum(-1) if driver != "gels" else torch.empty([0], dtype=torch.int64)
    residuals = s.new_empty([0])
    if m > n and driver != "gelsy":
        squares = (a @ x - right).abs().square().sum(-2)
        residuals = torch.where(kept.all(-1, keepdim=True), squares, torch.nan)
    values = s if driver in ("gelsd", "gelss") else s.new_empty([0])
    return torch.return_types.linalg_lstsq((x.squeeze(-1) if vector else x, residuals, rank, values))  # type: ignore[attr-defined]
