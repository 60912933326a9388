"""Values that calls change in place: buffers of the model (its state) and tensors of the caller.

The graph stays functional. A buffer that the model writes becomes an input behind the caller's, and its new value an
output behind the model's results; a changed argument gets an output of its own:

    n = get_attr("n")                      n = placeholder
    m = add_(n, 1)             ->          m = add(n, 1)
    return x + m                           return x + m, m                 in_place: input n, output m
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

import torch
from torch import fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...runtime.errors import CompileError
from ..model.graph import InPlace, ModelGraph, TensorSpec
from ..model.source_lines import place_of
from .functional import DROPOUTS

__all__ = ["Changed", "memory_key", "share_state", "state_of", "training_notes", "with_changes"]

_EVAL = "if that is not meant, call model.eval() before compiling"


@dataclass(frozen=True)
class Changed:
    """A tensor from outside of the graph that a call changes.

    before, after: the nodes of its value. name: of the buffer, or of the input. initial: of a buffer; None: an input.
    """

    before: fx.Node
    after: fx.Node
    name: str
    initial: torch.Tensor | None = None


def memory_key(tensor: torch.Tensor) -> object:
    """Equal for tensors of the same values in the same memory: address, shape, strides, dtype, and whether torch reads
    it conjugated or negated (`f.conj()`, `f.conj().imag`). Empty tensors have no memory to share. A subclass that holds
    other tensors, as those of quantised weights do, has no address of its own: its parts have."""
    if tensor.numel() == 0:
        return id(tensor)
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return type(tensor), *(memory_key(getattr(tensor, name)) for name in names)
    read_as = tensor.is_conj(), tensor.is_neg()
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, *read_as


def with_changes(graph: ModelGraph, changes: Sequence[Changed]) -> ModelGraph:
    """The graph whose last outputs are the new values of `changes`, with buffers among them as inputs."""
    first = len(graph.outputs) - len(changes)
    for change in changes:
        _check_same_form(change)
    held = [(c.before, c.name, c.initial) for c in changes if c.initial is not None]
    given, positions = _placeholders(graph), iter(range(len(graph.inputs), len(graph.inputs) + len(held)))
    rows = []
    for i, change in enumerate(changes):
        if change.initial is None:
            rows.append(InPlace(given.index(change.before), first + i, "", None))
        else:
            rows.append(InPlace(next(positions), first + i, change.name, change.initial))
    graph = _as_inputs(graph, held)
    graph.module.recompile()
    return replace(graph, in_place=(*graph.in_place, *rows))


def _check_same_form(change: Changed) -> None:
    """A new value has the form of the old one: torch's functionalisation mixes results of some out= forms up."""
    before, after = (n.meta.get("val") for n in (change.before, change.after))
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.dim() != after.dim():
        raise CompileError(
            f"torch gives '{change.name}', which the model writes to, a value of another shape",
            hint="Call the form of the operator that returns its results, without out=.",
            details=[place_of(change.after)],
        )


def share_state(graphs: Sequence[ModelGraph]) -> list[ModelGraph]:
    """The entry points of a package with one state: what one of them changes, the others read from there too. Tensors
    that torch reads conjugated or negated get memory of their own, as values.

    Raises:
        CompileError: a buffer shares its memory with another tensor of the model, in another shape.
    """
    slots: dict[object, InPlace] = {}
    for graph in graphs:
        for change in graph.in_place:
            if change.initial is not None:
                key = memory_key(change.initial)
                if key not in slots:
                    slots[key] = replace(change, slot=len(slots))
    _check_apart([(change.name, change.initial) for change in slots.values() if change.initial is not None], slots)
    names = _unique([change.name for change in slots.values()])
    for (key, change), name in zip(list(slots.items()), names, strict=True):
        slots[key] = replace(change, name=name)
    return [_as_values(_shared(graph, slots) if slots else graph) for graph in graphs]


def _as_values(graph: ModelGraph) -> ModelGraph:
    constants = {target: _value(tensor) for target, tensor in graph.constants.items()}
    changes = [c if c.initial is None else replace(c, initial=_value(c.initial)) for c in graph.in_place]
    return replace(graph, constants=constants, in_place=tuple(changes), examples=tuple(map(_value, graph.examples)))


def _value(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without torch's marks that its memory is to be read conjugated or negated."""
    return tensor.resolve_conj().resolve_neg()


def state_of(graphs: Iterable[ModelGraph]) -> list[InPlace]:
    """The tensors of the state that entry points share, by slot."""
    found = {change.slot: change for graph in graphs for change in graph.in_place if change.initial is not None}
    return [found[slot] for slot in sorted(found)]


def training_notes(graphs: Iterable[ModelGraph]) -> list[str]:
    """What the user may not have meant: norms and dropout in training mode."""
    graphs = list(graphs)
    drops = next((place_of(n) for g in graphs for n in g.module.graph.nodes if n.target in DROPOUTS), None)
    notes = [] if drops is None else [f"the model is in training mode: it drops values at random ({drops}); {_EVAL}"]
    changed = [c.name for c in state_of(graphs) if c.output is not None]
    norms = ", ".join(f"'{n.removesuffix('.running_mean')}'" for n in changed if n.endswith("running_mean"))
    if norms:
        text = f"{norms} uses the statistics of each batch and changes its running ones; {_EVAL}"
        notes.append(f"the model is in training mode: {text}")
    return notes


def _shared(graph: ModelGraph, slots: dict[object, InPlace]) -> ModelGraph:
    _check_apart([(n, t) for n, t in graph.constants.items() if memory_key(t) not in slots], slots)
    reads: dict[str, fx.Node] = {}
    for node in graph.module.graph.nodes:
        if node.op == "get_attr":
            reads.setdefault(str(node.target), node)
    known_by = {target: slots.get(memory_key(tensor)) for target, tensor in graph.constants.items()}
    held = [(reads[t], known.name, graph.constants[t]) for t, known in known_by.items() if known is not None]
    own = (InPlace(len(graph.inputs) + i, None, name, tensor) for i, (_, name, tensor) in enumerate(held))
    graph = _as_inputs(replace(graph, in_place=(*graph.in_place, *own)), held)
    rows = []
    for change in graph.in_place:
        if change.initial is not None:
            known = slots[memory_key(change.initial)]
            change = replace(change, name=known.name, slot=known.slot)
        rows.append(change)
    graph.module.recompile()
    return replace(graph, in_place=tuple(sorted(rows, key=lambda change: (change.initial is not None, change.input))))


def _check_apart(tensors: Iterable[tuple[str, torch.Tensor]], slots: Mapping[object, InPlace]) -> None:
    """Raises CompileError where a tensor shares memory with another one of the state."""
    state = [(*_span(c.initial), c) for c in slots.values() if c.initial is not None and c.initial.numel()]
    state.sort(key=itemgetter(0))
    reach = list(accumulate((end for _, end, _ in state), max))  # of all up to each
    for target, tensor in tensors:
        if not tensor.numel():
            continue
        first, behind = _span(tensor)
        for i in reversed(range(bisect_left(state, behind, key=itemgetter(0)))):
            if reach[i] <= first:
                break
            _, end, change = state[i]
            if end > first and change.initial is not tensor:
                raise CompileError(
                    f"the model changes its buffer '{change.name}', which shares memory with '{target}'",
                    hint="Give each of them memory of its own: register one as a clone().",
                )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor, and the one behind its last."""
    last = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + last * tensor.element_size()


def _unique(names: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        unique, n = name, 1
        while unique in found:
            unique, n = f"{name}_{n}", n + 1
        found[unique] = None
    return list(found)


def _placeholders(graph: ModelGraph) -> list[fx.Node]:
    return [n for n in graph.module.graph.nodes if n.op == "placeholder"]


def _as_inputs(graph: ModelGraph, held: Sequence[tuple[fx.Node, str, torch.Tensor]]) -> ModelGraph:
    """Constants as the last inputs, each with its name; the other get_attr nodes of the same constants too."""
    nodes = graph.module.graph
    same: dict[str, list[fx.Node]] = {}
    for node in nodes.nodes:
        if node.op == "get_attr":
            same.setdefault(str(node.target), []).append(node)
    last = next(iter(reversed(_placeholders(graph))), None)
    for node, _, _ in held:
        target = str(node.target)
        with nodes.inserting_after(last) if last is not None else nodes.inserting_before(next(iter(nodes.nodes))):
            last = nodes.placeholder(target)
        last.meta = dict(node.meta)
        for read in same.pop(target, ()):
            read.replace_all_uses_with(last)
            nodes.erase_node(read)
    taken = {str(node.target) for node, _, _ in held}
    specs = (TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for _, name, tensor in held)
    return replace(
        graph,
        constants={key: value for key, value in graph.constants.items() if key not in taken},
        inputs=(*graph.inputs, *specs),
        examples=(*graph.examples, *(tensor.detach() for _, _, tensor in held)),
    )
