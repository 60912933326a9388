"""torch's own list of operators (op_db), as calls to compile: entries, their sample inputs, what counts as equal."""

from __future__ import annotations

import copy
import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
        *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
    )
}
_LOOKED_AT = 120  # samples of an entry that the six are taken from

#: results are random: compared by shape, dtype and statistics
RANDOM = frozenset(
    """
    bernoulli cauchy exponential geometric log_normal multinomial normal rand_like randint randint_like randn
    randn_like uniform nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d svd_lowrank pca_lowrank
    """.split()
)
#: of these, all elements of a channel (the first two dimensions) share a number
OF_CHANNELS = frozenset(f"nn.functional.{name}" for name in ("dropout2d", "dropout3d", "feature_alpha_dropout"))
#: the seed that op_db's own random entries set
SEED = 42
#: attention that may drop weights: compared exactly, so that each call draws from the seed on
DROPPING = frozenset({"nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"})
#: results are uninitialised: compared by shape and dtype
EMPTY = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())


@dataclass(frozen=True)
class Entry:
    """One row of op_db: `name` is unique ("div.trunc_rounding"), `op` its OpInfo."""

    name: str
    op: Any

    @property
    def random(self) -> bool:
        return self.op.name in RANDOM

    @property
    def empty(self) -> bool:
        return self.op.name in EMPTY

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether torch has it for this dtype on the CPU."""
        return dtype in self.op.supported_dtypes("cpu")


class RandomEntry(Entry):
    """A row that draws random numbers, whatever its name says (attention with dropout)."""

    @property
    def random(self) -> bool:
        return True


@cache
def entries() -> dict[str, Entry]:
    """All entries by name, in op_db's order."""
    found: dict[str, Entry] = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        unique = name if name not in found else f"{name}.{op.aten_name}"
        found[unique] = Entry(unique, op)
    return found


class Call(torch.nn.Module):
    """One call of an operator as a module: its tensors are the inputs, all else is constant.

    spread: whether the results are memory with gaps, of which the operator writes every n-th element.
    plain: whether the results are compared as numbers, and not as those of a factorisation or a choice.
    """

    dynamic_shapes = None
    spread = False
    plain = False

    def __init__(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__()
        leaves, self._spec = pytree.tree_flatten((tuple(args), kwargs))
        self._op = op
        self._tensors = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        self._leaves = [None if i in self._tensors else leaf for i, leaf in enumerate(leaves)]
        self.inputs = tuple(leaves[i].detach() for i in self._tensors)

    @property
    def module(self) -> torch.nn.Module:
        return self

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self._leaves)
        for i, tensor in zip(self._tensors, tensors, strict=True):
            leaves[i] = tensor
        return self.apply(*pytree.tree_unflatten(leaves, self._spec))

    def apply(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._op(*args, **kwargs)

    @property
    def constants(self) -> list[Any]:
        """The arguments that are no tensors."""
        return [leaf for leaf in self._leaves if leaf is not None]

    def with_inputs(self, inputs: Sequence[torch.Tensor]) -> Call:
        """The same call of other tensors."""
        other = copy.copy(self)
        other.inputs = tuple(inputs)
        return other

    def fresh(self) -> Call:
        """For a call of eager: a module's buffers are not those of another call."""
        return self

    def wide(self) -> Call:
        """The same call for inputs of float64."""
        return self

    def on(self, device: str) -> Call:
        """The same call there: its tensors, and where it makes tensors."""
        other = self.fresh().with_inputs([x.to(device) for x in self.inputs])
        other._leaves = [device if str(leaf) == "cpu" else leaf for leaf in self._leaves]
        return other.to(device)


class Together(torch.nn.Module):
    """Several calls as one module, for torch.export takes longer than they do: a result per call."""

    dynamic_shapes = None

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = torch.nn.ModuleList(call.module for call in calls)
        self.inputs = tuple(x for call in calls for x in call.inputs)
        self._counts = [len(call.inputs) for call in calls]

    @property
    def module(self) -> torch.nn.Module:
        return self

    def forward(self, *tensors: torch.Tensor) -> Any:
        left, results = list(tensors), []
        for call, count in zip(self.calls, self._counts, strict=True):
            results.append(call(*left[:count]))
            del left[:count]
        return tuple(results)


def calls(entry: Entry, dtype: torch.dtype, count: int) -> list[Call]:
    """`count` calls, spread evenly over torch's own samples; fewer when torch has fewer. The same ones every time."""
    torch.manual_seed(zlib.crc32(f"{entry.name} {dtype}".encode()))
    samples = list(itertools.islice(entry.op.sample_inputs("cpu", dtype, requires_grad=False), _LOOKED_AT))
    if len(samples) > count:
        samples = [samples[round(i * (len(samples) - 1) / (count - 1))] for i in range(count)]
    return [Call(entry.op.op, (s.input, *s.args), dict(s.kwargs)) for s in samples]


def eager(call: Call, entry: Entry) -> list[Any]:
    """torch's results, flat and on the CPU: where there is a GPU, samples ask for it. Raises what torch raises."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        results = pytree.tree_leaves(call(*(x.clone() for x in call.inputs)))
    return [r.cpu() if isinstance(r, torch.Tensor) else r for r in results]


def disagreement(entry: Entry, call: Call, got: Sequence[Any], want: Sequence[Any]) -> str:
    """What is wrong with results, in words; empty when nothing is.

    A result that is not close to eager's is right when it is close to what eager computes in float64.
    """
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    if call.plain:
        problem = _first_problem(entry, got, want)
        wide = in_float64(call) if problem else None
        return _first_problem(entry, got, [_as(w, e) for w, e in zip(want, wide, strict=True)]) if wide else problem
    if entry.name in FACTORS:
        got, want = FACTORS[entry.name](got), FACTORS[entry.name](want)
    if entry.name == "argsort" and want[0].dim():
        return _ordered(call.inputs[0], *got, *want)
    if entry.name in CHOICES and len(want) >= 2 and not _first_problem(entry, got[:1], want[:1]):
        return _chosen(call.inputs[0], *got[:2], want[1]) or _first_problem(entry, got[2:], want[2:])
    problem = _first_problem(entry, got, want)
    if problem and (exact := exact_results(entry, call)) is not None:
        return _first_problem(entry, got, [_as(w, e) for w, e in zip(want, exact, strict=True)])
    if problem and (wide := in_float64(call)) is not None and len(wide) == len(got):
        exact = FACTORS[entry.name](wide) if entry.name in FACTORS else wide
        same = [_as(w, e) for w, e in zip(want, exact, strict=True)]
        return problem if _first_problem(entry, got, same) else ""
    return problem


#: functions that torch has less exactly than its own tolerances ask: its Ai is off by 2.8e-6 near -2, J0 by 3.7e-7,
#: J1 by 4.6e-7, Y0 by 2e-7 and Y1 by 8.5e-7 near 5, also in float64
EXACT: dict[str, Callable[[float], Any]] = {
    "special.airy_ai": mpmath.airyai,
    "special.bessel_j0": lambda x: mpmath.besselj(0, x),
    "special.bessel_j1": lambda x: mpmath.besselj(1, x),
    "special.bessel_y0": lambda x: mpmath.bessely(0, x) if x > 0 else -math.inf if x == 0 else math.nan,
    "special.bessel_y1": lambda x: mpmath.bessely(1, x) if x > 0 else -math.inf if x == 0 else math.nan,
}


def exact_results(entry: Entry, call: Call) -> list[torch.Tensor] | None:
    """The results in float64 of a function that torch has less exactly; None for others."""
    if entry.name not in EXACT:
        return None
    x = call.inputs[0]
    values = _exact(EXACT[entry.name], x if x.is_floating_point() else x.float())
    gaps = torch.ones_like(values)
    return [torch.stack([gaps, values, gaps], -1) if call.spread else values]


def _exact(function: Callable[[float], Any], x: torch.Tensor) -> torch.Tensor:
    values = [float(function(v)) if math.isfinite(v) else math.nan for v in x.double().flatten().tolist()]
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape)


def _as(want: Any, exact: Any) -> Any:
    return exact.to(want.dtype) if isinstance(want, torch.Tensor) else exact


def in_float64(call: Call, integers: bool = False) -> list[Any] | None:
    """The results for the same inputs in float64; None where torch has none. `integers`: torch takes integers among
    them as float32."""
    given = [x.float() if integers and x.dtype in _INTEGERS else x for x in call.inputs]
    if not any(x.dtype in WIDER for x in given):
        return None
    try:
        with torch.no_grad():
            return pytree.tree_leaves(call.wide()(*(x.to(WIDER.get(x.dtype, x.dtype), copy=True) for x in given)))
    except Exception:
        return None


#: what in_float64 computes in
WIDER = {
    **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64),
    torch.complex64: torch.complex128,
}
_INTEGERS = (torch.int64, torch.int32, torch.uint8)


def _first_problem(entry: Entry, got: Sequence[Any], want: Sequence[Any]) -> str:
    return next((problem for g, w in zip(got, want, strict=True) if (problem := _differs(entry, g, w))), "")


#: the place of a result among equal elements is free
CHOICES = frozenset("sort msort topk kthvalue mode median nanmedian".split())


def _chosen(x: torch.Tensor, values: torch.Tensor, places: torch.Tensor, want: torch.Tensor) -> str:
    """Whether the values lie at their places of x, along some dimension."""
    if (places.dtype, places.shape) != (want.dtype, want.shape):
        return f"places {places.dtype}{list(places.shape)} instead of {want.dtype}{list(want.shape)}"
    x = x.reshape(1) if x.dim() == 0 else x
    for d in range(x.dim()):
        v, p = (t if t.dim() == x.dim() else t.unsqueeze(d) for t in (values, places))
        fits = v.dim() == x.dim() and all(
            a == b for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if k != d
        )
        if fits and torch.equal(x.gather(d, p).nan_to_num(7.5), v.nan_to_num(7.5)):
            return ""
    return "the values do not lie at their places"


def _ordered(x: torch.Tensor, places: Any, want: torch.Tensor) -> str:
    """Whether the same elements of x lie at the places as at eager's, along some dimension."""
    places = torch.as_tensor(places)
    if (places.dtype, places.shape) != (want.dtype, want.shape):
        return f"places {places.dtype}{list(places.shape)} instead of {want.dtype}{list(want.shape)}"
    same = (torch.equal(x.gather(d, places).nan_to_num(7.5), x.gather(d, want).nan_to_num(7.5)) for d in range(x.dim()))
    return "" if any(same) else "other elements lie at the places"


def _svd(parts: Sequence[Any], adjoint: bool) -> list[Any]:
    """What is determined of a decomposition: the values, the product, and that the factors are orthonormal."""
    u, s, v = parts
    n = s.shape[-1]
    vh = v if adjoint else v.mH
    return [s, (u[..., :n] * s.unsqueeze(-2)) @ vh[..., :n, :], u.mH @ u, vh @ vh.mH]


def _eigh(parts: Sequence[Any]) -> list[Any]:
    values, vectors = parts
    return [values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors]


def _eig(parts: Sequence[Any]) -> list[Any]:
    """Sums of powers of the values, which have no order, and the product."""
    values, *vectors = parts
    wide = values.to(torch.complex128)
    scale = wide.abs().amax(-1, keepdim=True) if wide.numel() else wide.abs()
    sums = [((wide / scale) ** k).sum(-1).to(values.dtype) for k in range(1, values.shape[-1] + 1)]
    product = [(v * values.unsqueeze(-2)) @ torch.linalg.inv(v) for v in vectors]
    return [scale.to(values.dtype), *sums, *product, *(v.abs().square().sum(-2) for v in vectors)]


#: factorisations whose factors have signs, or more, of their own
FACTORS: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "svd": lambda parts: _svd(parts, adjoint=False),
    "linalg.svd": lambda parts: _svd(parts, adjoint=True) if len(parts) == 3 else list(parts),
    "linalg.eigh": _eigh,
    "linalg.eig": _eig,
    "linalg.eigvals": _eig,
}


def _differs(entry: Entry, got: Any, want: Any) -> str:
    if not isinstance(want, torch.Tensor):
        got = got.item() if hasattr(got, "item") else got
        return "" if got == want or (got != got and want != want) else f"{got!r} instead of {want!r}"
    got = as_tensor(got)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if entry.empty:
        return ""
    if entry.random:
        return _statistics(got, want, want.shape[:2].numel() if entry.op.name in OF_CHANNELS else want.numel())
    try:
        torch.testing.assert_close(got, want.contiguous(), equal_nan=True, **tolerance(want.dtype))
    except AssertionError as error:
        return str(error)
    except RuntimeError:  # it differs by complex numbers whose size overflows, which torch cannot print
        return "differs"
    return ""


def as_tensor(value: Any) -> torch.Tensor:
    """A result of a package: an array where the call has no tensor among its arguments."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":  # ml_dtypes' type, without DLPack
        return torch.from_numpy(value.view("int16")).view(torch.bfloat16)
    return torch.from_dlpack(value)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """1e-4 in float32 (complex64 is a pair of them), torch's defaults in other floats, exact in integers."""
    if dtype in (torch.float32, torch.complex64):
        return {"rtol": 1e-4, "atol": 1e-4}
    return {} if dtype.is_floating_point or dtype.is_complex else {"rtol": 0.0, "atol": 0.0}


def _statistics(got: torch.Tensor, want: torch.Tensor, draws: int) -> str:
    """Random values: none that is not finite, means within six standard errors of each other for so many draws."""
    a, b = got.double().flatten(), want.double().flatten()
    if not bool(torch.isfinite(a).all()):
        return "random values that are not finite"
    if draws < 20:
        return ""  # too few to say more
    spread = max(float(a.std()), float(b.std())) / draws**0.5
    gap = abs(float(a.mean() - b.mean()))
    return f"means {a.mean():.3g} and {b.mean():.3g}" if gap > 6 * spread + 1e-6 else ""
