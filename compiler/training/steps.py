"""The entry points of a package that trains, made from the captured graph of model and loss.

step(x, y, lr=...)       -> loss               changes parameters, moments and buffers
gradients(x, y)          -> loss, gradients    changes buffers
accumulate(x, y, weight) -> loss               adds to kept gradients, changes buffers
apply(gradients, lr=...)                       changes parameters and moments
update(lr=...)                                 the same from the kept gradients, which it clears
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...runtime.errors import CompileError
from ..capture.state import memory_key
from ..capture.trees import LEAF
from ..machine.targets import Family
from ..model.graph import ModelGraph
from ..model.source_lines import place_of
from .entry import Entry, Results, Values
from .joint import Forward, fake, gradients, mode_of
from .plan import Plan, Trained
from .recompute import Split, split_joint
from .update import Prepared, clipped, counter_name, finite, prepared, slot_name, updated

__all__ = ["Settings", "entry_graphs"]

CLIP_NORM, CLIP_VALUE, WEIGHT = "clip_norm", "clip_value", "weight"
SKIPPED = "optimizer.skipped_steps"


@dataclass(frozen=True)
class Settings:
    """What a step does beside the optimizer's formula.

    Attributes:
        clip_norm, clip_value: the largest norm of all gradients, and the largest element; None: they are not clipped.
        check_finite: whether a step with a loss or gradient that is not finite changes nothing.
        outputs: whether a step returns what the model returns beside the loss.
        entries: the entry points to make.
        memory_budget: the share of the activations that a step keeps for its backward, from 0 to 1; the rest is
            computed again.
    """

    clip_norm: float | None = None
    clip_value: float | None = None
    check_finite: bool = False
    outputs: bool = False
    entries: tuple[str, ...] = ("step", "evaluate", "gradients", "apply")
    memory_budget: float = 1.0


@dataclass(frozen=True)
class _State:
    """Tensors that a package keeps: by name their first values, and values to verify with."""

    values: Mapping[str, torch.Tensor]
    examples: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, plan: Plan, settings: Settings) -> _State:
        values: dict[str, torch.Tensor] = {}
        examples: dict[str, torch.Tensor] = {}
        like: dict[object, torch.Tensor] = {}  # one example for all of a form: they are large
        for trained in plan.trained:
            values |= {slot_name(trained, slot): value for slot, value in trained.kept.items()}
            shape, flags = trained.parameter.shape, plan.groups[trained.group].flags
            for slot in plan.row.slots(flags, shape):
                name = slot_name(trained, slot.name)
                form = values[name].shape, values[name].dtype, slot.square
                if form not in like:
                    like[form] = _like_moments(values[name], slot.square)
                examples[name] = like[form]
        for i, group in enumerate(plan.groups):
            for counter in plan.row.counters:
                first = torch.tensor(group.counters[counter.name], dtype=counter.dtype)
                values[counter_name(plan, i, counter.name)] = first
                examples[counter_name(plan, i, counter.name)] = torch.full_like(first, counter.usual)
        if settings.check_finite:
            values[SKIPPED] = torch.zeros([], dtype=torch.int64)
        return cls(values, examples)


#: elements after which examples come again: sines of all would be most of a large model's compile
_PERIOD = 65_521


def _like_moments(value: torch.Tensor, square: bool) -> torch.Tensor:
    """An example of what an optimizer keeps after some steps: averages of small gradients, or of their squares."""
    count = value.numel()
    wave = torch.sin(torch.arange(min(count, _PERIOD), dtype=torch.float64) * 12.9898 + 1)
    part = ((1 + wave / 2) * 1e-4 if square else wave * 1e-3).to(value.dtype)
    return part.repeat(-(-count // _PERIOD))[:count].reshape(value.shape)


def accumulators(plan: Plan) -> dict[str, torch.Tensor]:
    """Kept sums of gradients, zero at first."""
    return {f"gradient.{t.name}": torch.zeros_like(t.parameter.detach()) for t in plan.trained}


def entry_graphs(
    forward: ModelGraph, plan: Plan, settings: Settings, families: Collection[Family] = frozenset({"cpu"})
) -> list[ModelGraph]:
    """The entry points that differentiate or update, in the order of settings.entries.

    Args:
        forward: model and loss in training mode; its first output is the loss.
        families: of the targets.

    Raises:
        CompileError: the loss or a parameter has no gradient, or something in the graph cannot be differentiated.
    """
    _check_forward(forward)
    state = _State.of(plan, settings)
    sums = accumulators(plan) if "accumulate" in settings.entries else {}
    maker = _Maker(Forward.of(forward, set(families) == {"cuda"}), plan, settings, state, sums)
    return [getattr(maker, name)() for name in settings.entries if hasattr(_Maker, name)]


def _check_forward(forward: ModelGraph) -> None:
    if forward.regions:
        raise CompileError(
            "a model with branches or loops of its own (torch.cond, while_loop, scan) cannot be trained yet",
            hint="Write the loop in Python, where its number of steps is fixed.",
        )
    if forward.computed:
        raise CompileError(
            f"a model whose sizes depend on values cannot be trained yet: {forward.computed[0].where}",
            hint="Use a form of fixed size, for example a mask and torch.where().",
        )
    for change in forward.in_place:
        if change.initial is None:
            name = forward.inputs[change.input].name
            raise CompileError(f"the model writes to its argument '{name}', which a training step must not")


class _Maker:
    """Makes entry points from one captured graph."""

    def __init__(
        self, function: Forward, plan: Plan, settings: Settings, state: _State, sums: Mapping[str, torch.Tensor]
    ) -> None:
        self.function, self.plan, self.settings, self.state, self.sums = function, plan, settings, state, sums
        self.forward = forward = function.graph
        self.mode = mode_of(forward)
        self.parameters = self._parameters()
        self.trained = {node: trained.name for node, trained in zip(self.parameters, plan.trained, strict=True)}
        self.hyper = {name: plan.values(name) for name in plan.hyper}
        for name, value in ((CLIP_NORM, settings.clip_norm), (CLIP_VALUE, settings.clip_value)):
            if value is not None:
                self.hyper[name] = value
        taken = {spec.name for spec in forward.inputs[: forward.n_arguments]}
        for name in self.hyper:
            if name in taken:
                raise CompileError(
                    f"the model or its loss has an argument '{name}', which the step takes for the optimizer",
                    hint="Give that argument another name.",
                )
        self.split = self._split()

    def _parameters(self) -> list[fx.Node]:
        """The node of each parameter that is trained."""
        nodes: dict[object, fx.Node] = {}
        for node in self.function.sources:
            if node.op == "get_attr":
                nodes.setdefault(memory_key(self.forward.constants[str(node.target)]), node)
        found = []
        for trained in self.plan.trained:
            own = nodes.get(memory_key(trained.parameter.detach()))
            if own is None:
                raise _without_gradient(trained, None)
            found.append(own)
        return found

    # -- the entry points -------------------------------------------------------------------------------------------

    def step(self) -> ModelGraph:
        entry = Entry("step", self.mode, self.forward)
        given = entry.forward_sources(self.function, self.trained)
        hyper, kept = entry.numbers(self.hyper), entry.state(self.state.values, self.state.examples)

        def run(v: Values) -> Results:
            first = prepared(self.plan, v(kept), v(hyper))  # before what its numbers are fused with
            results, found, buffers = self._backward(v(given))
            return self._updated(v, results, found, buffers, v(hyper), v(kept), dict(v(given)), first)

        return entry.made(run, self._result_tree())

    def gradients(self) -> ModelGraph:
        entry = Entry("gradients", self.mode, self.forward)
        given = entry.forward_sources(self.function, self.trained)

        def run(v: Values) -> Results:
            results, found, buffers = self._backward(v(given))
            return Results([*results, *found], buffers)

        names = [[t.name, LEAF] for t in self.plan.trained]
        return entry.made(run, {"tuple": [self._result_tree(), {"dict": names}]})

    def accumulate(self) -> ModelGraph:
        entry = Entry("accumulate", self.mode, self.forward)
        given = entry.forward_sources(self.function, self.trained)
        weight, sums = entry.numbers({WEIGHT: 1.0}), entry.state(self.sums)

        def run(v: Values) -> Results:
            results, found, buffers = self._backward(v(given))
            factor = v(weight)[WEIGHT]
            new = {
                name: total + g.to(total.dtype) * factor.to(total.dtype)
                for (name, total), g in zip(v(sums).items(), found, strict=True)
            }
            return Results(results, buffers | new)

        return entry.made(run, self._result_tree())

    def apply(self) -> ModelGraph:
        entry = Entry("apply", self.mode, None)
        found = entry.arguments({t.name: t.parameter.detach() for t in self.plan.trained}, "gradients")
        return self._apply(entry, lambda v: list(v(found).values()), {})

    def update(self) -> ModelGraph:
        entry = Entry("update", self.mode, None)
        sums = entry.state(self.sums)
        return self._apply(entry, lambda v: list(v(sums).values()), {n: t.shape for n, t in self.sums.items()})

    def _apply(
        self, entry: Entry, found: Callable[[Values], list[Any]], cleared: Mapping[str, Sequence[int]]
    ) -> ModelGraph:
        hyper, kept = entry.numbers(self.hyper), entry.state(self.state.values, self.state.examples)
        parameters = entry.parameters(self.plan, self.forward, self.parameters)

        def run(v: Values) -> Results:
            own = v(parameters)
            values = {node: own[t.name] for node, t in zip(self.parameters, self.plan.trained, strict=True)}
            gradients = found(v)
            zeros = {name: torch.zeros_like(v.named(name)) for name in cleared}
            first = prepared(self.plan, v(kept), v(hyper))
            after = self._updated(v, [], gradients, {}, v(hyper), v(kept), values, first)
            step = next(value for name, value in after.changed.items() if name.endswith(".step"))
            return Results([step], after.changed | zeros)

        return entry.made(run, {"dict": [["step", LEAF]]})

    # -- parts --------------------------------------------------------------------------------------------------------

    def _result_tree(self) -> Any:
        tree: Any = self.forward.out_tree
        return tree if self.settings.outputs else tree["tuple"][0]

    def _backward(self, values: dict[fx.Node, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """Results of the model, gradients, and new values of its buffers by name."""
        if self.split is None:
            outputs, found = self._differentiated(values)
        else:
            primals = [values[node] for node in self.function.sources]
            outputs, found = self.split(primals)
        buffers = {c.name: outputs[c.output] for c in self.forward.in_place if c.output is not None}
        count = self.forward.n_results if self.settings.outputs else 1
        return outputs[:count], found, buffers

    def _differentiated(
        self, values: Mapping[fx.Node, Any], cotangent: Any = None
    ) -> tuple[list[Any], list[torch.Tensor]]:
        """All outputs of the captured graph, and the gradients of the parameters."""
        values = dict(values)
        wanted = []
        for node in self.parameters:
            values[node] = values[node].detach().requires_grad_(True)
            wanted.append(values[node])
        with torch.enable_grad():
            outputs = self.function(values)
            found = gradients(outputs[0], wanted, self.forward, cotangent)
        for trained, node, gradient in zip(self.plan.trained, self.parameters, found, strict=True):
            if gradient is None:
                raise _without_gradient(trained, node)
        return [y.detach() for y in outputs], [g.detach() for g in found if g is not None]

    @property
    def loss(self) -> torch.Tensor:
        """Its fake value in the captured graph."""
        node: Any = self.forward.module.graph.output_node().args[0][0]  # type: ignore[index]
        return fake(self.mode, node.meta["val"])

    def _split(self) -> Split | None:
        """Forward and backward under the budget of memory; None without one."""
        if self.settings.memory_budget == 1 or not {"step", "gradients", "accumulate"} & {*self.settings.entries}:
            return None
        primals = [fake(self.mode, node.meta["val"]) for node in self.function.sources]

        def joint(given: Sequence[Any], cotangent: Any) -> tuple[list[Any], list[Any]]:
            return self._differentiated(dict(zip(self.function.sources, given, strict=True)), cotangent)

        with self.mode:
            cotangent = torch.ones_like(self.loss)
        return split_joint(self.mode, joint, primals, cotangent, self.settings.memory_budget)

    def _updated(
        self,
        v: Values,
        results: list[Any],
        found: Sequence[Any],
        buffers: dict[str, Any],
        hyper: dict[str, Any],
        kept: dict[str, Any],
        values: Mapping[fx.Node, Any],
        first: Prepared,
    ) -> Results:
        """The optimizer's step behind gradients."""
        own = [values[node] for node in self.parameters]
        whole = None
        if self.settings.check_finite:
            whole = finite(results[0] if results else torch.zeros([]), found)
        computed = [*found, *buffers.values()]
        found = clipped(found, hyper.get(CLIP_VALUE), hyper.get(CLIP_NORM))
        after = updated(self.plan, own, found, kept, first)
        changed = buffers | after.kept
        changed |= {t.name: p for t, p in zip(self.plan.trained, after.parameters, strict=True)}
        if whole is not None:
            before = {t.name: p for t, p in zip(self.plan.trained, own, strict=True)} | kept
            before |= {n: v.named(n) for n in buffers}
            changed = {name: torch.where(whole, new, before[name]) for name, new in changed.items()}
            changed[SKIPPED] = kept[SKIPPED] + torch.logical_not(whole).to(torch.int64)
        return Results(results, changed, [*results, *computed] if results else [])


def _without_gradient(trained: Trained, node: fx.Node | None) -> CompileError:
    readers = [] if node is None else [place for user in node.users if (place := place_of(user))]
    why = "the loss does not depend on it" if node is not None else "the model does not use it"
    return CompileError(
        f"parameter '{trained.name}' gets no gradient: {why}",
        details=readers[:1],
        hint=f"Freeze it: freeze=['{trained.name}'], or --freeze '{trained.name}' on the command line.",
    )
