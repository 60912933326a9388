"""Programs of the sources beside torch's samples: reference inputs, in-place and out= variants, modules.

reference    `reference_inputs` of an entry of op_db: broadcasts, strided memory, Python scalars, mixed dtypes
variants     the entry's in-place variant and its out= form, on views with gaps
eval, train  modules of torch's module_db in both modes: their results, and their buffers after the call
"""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from .catalog import FACTORS, SEED, WIDER, Call, Entry, entries

_LOOKED_AT = 300  # reference inputs of an entry that the programs are taken from
_LARGEST = 4096  # elements of a program's inputs together
_ROOM = 3  # every n-th element of a base is the view that a variant writes to
Op = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """One call, and the source that it is counted under."""

    source: str
    call: Call


def op_programs(entry: Entry, dtype: torch.dtype, references: int, variants: int) -> list[Program]:
    """Up to so many programs of an entry: of its reference inputs, and of each variant. The same ones every time."""
    torch.manual_seed(zlib.crc32(f"{entry.name} {dtype} edges".encode()))
    try:
        given = entry.op.reference_inputs("cpu", dtype, requires_grad=False)
        samples = [s for s in itertools.islice(given, _LOOKED_AT) if _elements(s) <= _LARGEST]
    except Exception:  # torch's own generator fails for the dtype
        return []
    chosen = _varied(samples, references)
    found = [Program("reference", Call(entry.op.op, (s.input, *s.args), dict(s.kwargs))) for s in chosen]
    if entry.name in FACTORS:  # compared by what the factors determine together
        return found
    inplace = entry.op.inplace_variant
    forms = [lambda s: _in_place(inplace, s, spread=True), lambda s: _in_place(inplace, s, spread=False)]
    found += _first_ones(samples, forms[:variants], inplace is not None)
    forms = [lambda s: _out(entry.op.op, s, spread=True), lambda s: _out(entry.op.op, s, spread=False)]
    return found + _first_ones(samples, forms[:variants], entry.op.supports_out)


def _elements(sample: Any) -> int:
    return sum(x.numel() for x in _tensors(sample))


def _leaves(sample: Any) -> list[Any]:
    return pytree.tree_leaves((sample.input, sample.args, sample.kwargs))


def _tensors(sample: Any) -> list[torch.Tensor]:
    return [x for x in _leaves(sample) if isinstance(x, torch.Tensor)]


def _varied(samples: Sequence[Any], count: int) -> list[Any]:
    """Samples that differ in form, those first that add most to what the others have."""
    left, chosen, seen = list(samples), [], set()
    while left and len(chosen) < count:
        best = max(left, key=lambda s: (len(_features(s) - seen), 20 <= _elements(s) <= 1000))
        seen |= _features(best)
        chosen.append(best)
        left.remove(best)
    return chosen


def _features(sample: Any) -> set[tuple[Any, ...]]:
    """What is particular about a sample's arguments."""
    found: set[tuple[Any, ...]] = {(key, repr(value)[:40]) for key, value in sample.kwargs.items()}
    for i, leaf in enumerate(_leaves(sample)):
        if isinstance(leaf, torch.Tensor):
            strided = leaf.layout == torch.strided and leaf.numel() > 1 and not leaf.is_contiguous()
            found |= {(i, "rank", leaf.dim()), (i, leaf.dtype), (i, "strided", strided), (i, "empty", not leaf.numel())}
        else:
            found.add((i, type(leaf).__name__))
    return found | {("shapes", len({x.shape for x in _tensors(sample)}) > 1)}


def _first_ones(samples: Sequence[Any], forms: Sequence[Callable[[Any], Call]], offered: bool) -> list[Program]:
    """A program of each form: of the first samples that eager takes, another one for each."""
    found: list[Program] = []
    left = sorted(samples, key=lambda s: not 2 <= _elements(s) <= 1000) if offered else []
    for form in forms:
        for i, sample in enumerate(left):
            try:
                call = form(sample)
                torch.manual_seed(SEED)
                with torch.no_grad():
                    call(*(x.clone() for x in call.inputs))
            except Exception:
                continue
            found.append(Program("variants", call))
            left = left[i + 1 :] + left[: i + 1]
            break
    return found


def _base(like: torch.Tensor, spread: bool, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ones, and a view of them with the form of `like`: of every n-th element, or of all."""
    if not spread:
        whole = torch.ones(like.shape, dtype=like.dtype, device=device)
        return whole, whole
    base = torch.ones(*like.shape, _ROOM, dtype=like.dtype, device=device)
    return base, base.select(-1, 1)


def apart(results: Sequence[Any]) -> list[Any]:
    """The views that a variant wrote to, then the memory between their elements."""
    return [r.select(-1, 1) for r in results] + [r[..., ::2] for r in results]


def _in_place(op: Op, sample: Any, spread: bool) -> Call:
    """The operator in place on a copy of its input; the memory that holds the copy is the result."""

    def run(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        base, view = _base(x, spread, x.device)
        view.copy_(x)
        op(view, *args, **kwargs)
        return base

    return Call(run, (sample.input, *sample.args), dict(sample.kwargs))


def _out(op: Op, sample: Any, spread: bool) -> Call:
    """The operator with out=; the memory that it wrote to is the result."""
    with torch.no_grad():
        torch.manual_seed(SEED)
        results, spec = pytree.tree_flatten(op(sample.input, *sample.args, **sample.kwargs))
    wanted = [r.to("meta") for r in results]
    cpu = torch.device("cpu")
    own = next((x.dtype for x in _tensors(sample)), None)

    def run(*args: Any, **kwargs: Any) -> Any:
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        device = next((x.device for x in given), cpu)
        widened = given and given[0].dtype != own  # in_float64: results are as wide
        there = [w.to(WIDER.get(w.dtype, w.dtype)) if widened else w for w in wanted]
        bases, views = zip(*(_base(w, spread, device) for w in there), strict=True)
        out = pytree.tree_unflatten(views, spec)
        op(*args, out=out if isinstance(out, torch.Tensor) else tuple(out), **kwargs)
        return bases

    call = Call(run, (sample.input, *sample.args), dict(sample.kwargs))
    call.spread = spread
    _check_strides(call, results, spread)
    return call


def _check_strides(call: Call, results: Sequence[torch.Tensor], spread: bool) -> None:
    """Raises ValueError where eager itself writes past the strides of out (avg_pool3d)."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        bases = call(*call.inputs)
    for base, result in zip(bases, results, strict=True):
        written = base.select(-1, 1) if spread else base
        if not torch.equal(written.nan_to_num(7.5), result.nan_to_num(7.5)):
            raise ValueError("eager does not mind the strides of out")


class ModuleCall(Call):
    """A call of a module: its results, and its buffers after the call."""

    def __init__(self, module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(None, args, kwargs)
        self.called = module

    def apply(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = self.called(*args, **kwargs)
        return result, [b.clone() for b in self.called.buffers()]

    def fresh(self) -> ModuleCall:
        return copy.deepcopy(self)

    def wide(self) -> ModuleCall:
        there = self.fresh()
        parameters = [*there.called.parameters(), *there.called.buffers()]
        wide = torch.complex128 if any(p.is_complex() for p in parameters) else torch.float64
        return there.to(wide)


@cache
def modules() -> dict[str, Entry]:
    """The modules of module_db by name."""
    return {m.name: Entry(m.name, _module_facts(m)) for m in module_db}


def _module_facts(info: Any) -> Any:
    """What an entry is asked for: its name and dtypes."""
    return SimpleNamespace(name=info.name, info=info, supported_dtypes=lambda _: set(info.dtypes))


def module_programs(entry: Entry, dtype: torch.dtype, count: int) -> list[Program]:
    """Up to so many programs of a module in each mode."""
    return [Program(mode, call) for mode in ("eval", "train") for call in _module_calls(entry, dtype, count, mode)]


def _module_calls(entry: Entry, dtype: torch.dtype, count: int, mode: str) -> Iterator[ModuleCall]:
    torch.manual_seed(zlib.crc32(f"{entry.name} {dtype} {mode}".encode()))
    info = entry.op.info
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=mode == "train")
    samples = [i for i in inputs if i.forward_input is not None]
    if len(samples) > count:
        samples = [samples[round(i * (len(samples) - 1) / (count - 1))] for i in range(count)]
    for sample in samples:
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        module = info.module_cls(*args, **kwargs).to(dtype).train(mode == "train")
        given = sample.forward_input
        if info.is_lazy:
            module(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs))
        module.requires_grad_(False)
        yield ModuleCall(module, given.args, dict(given.kwargs))


def entries_of(kind: str) -> dict[str, Entry]:
    """All entries of a kind of results: "modules", "gradients", or what op_db has."""
    if kind == "gradients":
        return {name: entry for name, entry in entries().items() if has_gradients(entry)}
    return modules() if kind == "modules" else entries()


def has_gradients(entry: Entry) -> bool:
    """Whether torch says that the entry has derivatives in float32."""
    return bool(entry.op.supports_autograd) and torch.float32 in entry.op.supported_backward_dtypes("cpu")
