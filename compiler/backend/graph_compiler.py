"""A graph of AOTAutograd as a function: compiled as a whole, or in parts around what eager torch runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import fx
from torch.fx.graph import _BoxedCodeGen

from ...runtime.errors import CompileError, InputError
from .compile import load_graph
from .graph import import_graph
from .notices import Fallback, fallback_of, refuse, tell
from .parts import Compile, is_write, levels, operators_of, outer_graph, split_in_two
from .random import RANDOM, draws_first, is_drawn_outside, random_operators
from .runner import Runner, make_runner
from .settings import Settings
from .values import device_of

__all__ = ["GraphCompiler"]


class GraphCompiler:
    """Compiles one graph; `fallbacks` says what eager torch runs of it, `natives` holds the packages of its parts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.fallbacks: list[Fallback] = []
        self.natives: list[Any] = []

    def compile(self, module: fx.GraphModule) -> Runner:
        """The graph as a function of a list of its arguments, which it empties.

        Raises:
            CompileError: an operator would run in eager torch, and the settings are strict.
        """
        module = draws_first(module)
        runner = self._around(module, random_operators(module))
        if self.fallbacks and self.settings.strict:
            raise refuse(self.fallbacks)
        tell(self.fallbacks)
        return runner

    def _around(self, module: fx.GraphModule, random: Sequence[fx.Node]) -> Runner:
        """The graph around its random operators and, where it is refused so, around those that mycc does not take."""
        eager = dict.fromkeys(random, RANDOM)
        try:
            runner = self._split(module, random, levels(module, random, random), self._whole) if random else None
            runner = runner or self._whole(module)
        except CompileError as error:
            self.natives.clear()
            refused = self._refused(module)
            if not refused.keys() - eager.keys() and not random:
                return self._halves(module, error)
            eager = {**refused, **eager}
            runner = self._split(module, list(eager), levels(module, eager, random), self._part)
        self.fallbacks += [fallback_of(node, why) for node, why in eager.items() if not is_drawn_outside(node)]
        return runner

    def _refused(self, module: fx.GraphModule) -> dict[fx.Node, str]:
        from .support import refused_operators  # the whole compiler; a graph that lies in the cache needs none of it

        return refused_operators(module, self.settings.on(device_of(module)))

    def _split(
        self, module: fx.GraphModule, eager: Collection[fx.Node], level: dict[fx.Node, int], compile_part: Compile
    ) -> Runner:
        whole = outer_graph(module, eager, level, compile_part)
        whole.graph.set_codegen(_BoxedCodeGen())  # it empties the list, and so frees arguments as early as it can
        whole.recompile()
        forward = whole.forward

        def run(args: list[Any]) -> Sequence[Any]:
            return forward(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _part(self, module: fx.GraphModule) -> Runner:
        """A part of operators that mycc takes one by one."""
        try:
            return self._whole(module)
        except CompileError as error:
            return self._halves(module, error)

    def _halves(self, module: fx.GraphModule, error: CompileError) -> Runner:
        """Both halves of a graph that is refused as a whole; of one operator, eager torch."""
        nodes = operators_of(module)
        if len(nodes) > 1:
            return self._split(module, (), split_in_two(module), self._part)
        self.fallbacks += [fallback_of(node, error.message.splitlines()[0]) for node in nodes]
        return boxed(module)

    def _whole(self, module: fx.GraphModule) -> Runner:
        imported = import_graph(module)
        native = None
        if imported.graph is not None:
            options = self.settings.on(imported.device)
            native = load_graph(imported.graph, options, self.settings.cache)
            self.natives.append(native)
        runner = make_runner(native, imported.interface)
        writes = imported.graph is not None and bool(imported.graph.in_place)
        return self._or_eager(runner, module) if writes else runner

    def _or_eager(self, runner: Runner, module: fx.GraphModule) -> Runner:
        """A graph that writes to arguments; in a call where one of these lies between others' elements, eager torch."""
        forward, first = module.forward, next(node for node in operators_of(module) if is_write(node))

        def run(args: list[Any]) -> Sequence[Any]:
            given = tuple(args)
            try:
                return runner(args)
            except InputError as error:
                tell([fallback_of(first, f"this graph's arguments cannot be written to in place: {error.message}")])
            return forward(*given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def boxed(module: fx.GraphModule) -> Runner:
    """A graph module as a function of a list of arguments, which it empties."""
    forward = module.forward

    def run(args: list[Any]) -> Sequence[Any]:
        given = tuple(args)
        args.clear()
        return forward(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
