"""The graph passes in their order, and the driver that runs them.

Each row says what a pass needs and what it establishes; `run_graph_passes` checks that every need was established
before, and that no pass in between may have undone it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch.fx

from ..model.graph import ModelGraph, graph_module
from ..model.operators.kept import KEPT
from ..pass_order import check_order
from .canonicalize.cse import common_subexpressions
from .canonicalize.dead_code import dead_code
from .canonicalize.inline_regions import inline_regions
from .canonicalize.known_values import known_values
from .canonicalize.normalize import normalize
from .canonicalize.rounded_clamps import merge_rounded_clamps
from .canonicalize.simplify import simplify
from .complex.rewrite import complex_parts
from .decompose.decompose import decompose
from .decompose.float8 import float8_as_bytes
from .fold.batch_norm import fold_batch_norm
from .fold.constants import fold_constants, fold_rounded_weights
from .fold.padding import fold_padding
from .made import Made
from .recognize.activations import recognize_activations
from .recognize.attention import recognize_attention
from .recognize.attention_operands import attention_operands
from .recognize.float8_linears import float8_linears
from .recognize.gathered_linears import gathered_linears
from .recognize.linear_products import linear_products
from .recognize.merge_linears import merge_linears
from .recognize.norms import recognize_norms
from .recognize.quantised_convs import quantised_convs
from .recognize.quantised_embeddings import quantised_embeddings
from .recognize.quantised_linears import quantised_linears
from .recognize.quantised_pools import quantised_pools
from .sizes import ranges_of
from .updates import mark_updates
from .work import Work


@dataclass(frozen=True)
class Context:
    """What passes may ask besides the graph: the captured module (bodies of regions), operators that stay whole."""

    module: torch.fx.GraphModule
    kept: Collection[str]


@dataclass(frozen=True)
class GraphPass:
    """A pass: its name, its function (counts of what it did), what it needs, establishes and may undo."""

    name: str
    run: Callable[[Work, Context], Mapping[str, int]]
    needs: frozenset[str] = frozenset()
    establishes: frozenset[str] = frozenset()
    undoes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PassReport:
    """What a pass did, for observers: counts by what was found, and the time in seconds."""

    name: str
    counts: Mapping[str, int]
    seconds: float


#: called after each pass with the graph as it then is: not to be changed, and later passes do change it
Observer = Callable[[PassReport, ModelGraph], None]


def _only(function: Callable[[Work], Mapping[str, int]]) -> Callable[[Work, Context], Mapping[str, int]]:
    return lambda work, _: function(work)


def _row(
    name: str, function: Callable[[Work], Mapping[str, int]], needs: str = "", establishes: str = "", undoes: str = ""
) -> GraphPass:
    return GraphPass(name, _only(function), *(frozenset(text.split()) for text in (needs, establishes, undoes)))


_INLINE = GraphPass("inline-regions", lambda work, c: inline_regions(work, c.module), establishes=frozenset({"FLAT"}))
_DECOMPOSE = GraphPass(
    "decompose",
    lambda work, c: decompose(work, c.kept),
    needs=frozenset({"FLAT", "NORMAL", "KNOWN"}),
    establishes=frozenset({"KEPT_ONLY"}),
    undoes=frozenset({"NORMAL", "SIMPLE", "UNIQUE"}),
)
_COMPLEX = GraphPass(
    "complex-parts",
    lambda work, c: complex_parts(work, c.kept),
    needs=frozenset({"KEPT_ONLY"}),
    establishes=frozenset({"REAL"}),
    undoes=frozenset({"NORMAL", "SIMPLE", "UNIQUE"}),
)

_FLOAT8 = _row(
    "float8-as-bytes", float8_as_bytes, needs="KEPT_ONLY", establishes="BYTES", undoes="NORMAL SIMPLE UNIQUE"
)

PASSES: tuple[GraphPass, ...] = (
    _INLINE,
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("normalize", normalize, needs="FLAT", establishes="NORMAL"),
    # masks first: decomposed diff and cumsum are much harder to see through
    _row("known-values", known_values, needs="NORMAL", establishes="KNOWN", undoes="LIVE SIMPLE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    # in front of the decompositions, which take apart what libraries say of integers
    _row("round-weights", fold_rounded_weights, needs="NORMAL LIVE", undoes="LIVE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("quantised-linears", quantised_linears, needs="NORMAL LIVE"),
    _row("float8-linears", float8_linears, needs="NORMAL LIVE"),
    _row("quantised-convs", quantised_convs, needs="NORMAL LIVE"),
    _row("quantised-embeddings", quantised_embeddings, needs="NORMAL LIVE"),
    _DECOMPOSE,
    _COMPLEX,
    _FLOAT8,
    _row("normalize", normalize, needs="FLAT", establishes="NORMAL"),
    # before folding, which would put the statistics' arithmetic into constants of their own
    _row("fold-batch-norm", fold_batch_norm, needs="NORMAL", establishes="NO_BATCH_NORM", undoes="LIVE"),
    _row("fold-constants", fold_constants, needs="NORMAL KEPT_ONLY", establishes="FOLDED", undoes="LIVE"),
    _row("simplify", simplify, needs="NORMAL", establishes="SIMPLE", undoes="LIVE UNIQUE"),
    # an activation that several readers round alike has one reader then, and may lose its bounds
    _row("common-subexpressions", common_subexpressions, establishes="UNIQUE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("rounded-clamps", merge_rounded_clamps, needs="NORMAL SIMPLE", undoes="LIVE UNIQUE"),
    # recognisers compare nodes by identity, and ask who else reads a node: equal ones must be one, dead ones gone
    _row("common-subexpressions", common_subexpressions, establishes="UNIQUE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("quantised-pools", quantised_pools, needs="NORMAL UNIQUE LIVE", undoes="LIVE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("fold-padding", fold_padding, needs="NORMAL LIVE"),
    _row("recognize-norms", recognize_norms, needs="NORMAL UNIQUE LIVE", establishes="NORMS"),
    _row("recognize-activations", recognize_activations, needs="NORMAL UNIQUE LIVE", establishes="ACTIVATIONS"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("recognize-attention", recognize_attention, needs="SIMPLE UNIQUE LIVE", establishes="ATTENTION"),
    _row("dead-code", dead_code, establishes="LIVE"),
    _row("attention-operands", attention_operands, needs="SIMPLE LIVE ATTENTION", undoes="LIVE"),
    _row("linear-products", linear_products, needs="NORMAL SIMPLE FOLDED", establishes="LINEAR", undoes="LIVE SIMPLE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    # in front of merging: both ends of an edge are products of the same rows
    _row("gathered-linears", gathered_linears, needs="LINEAR LIVE", undoes="LIVE SIMPLE UNIQUE"),
    _row("dead-code", dead_code, establishes="LIVE"),
    # behind the recognisers, which want single readers; weights in one form
    _row("merge-linears", merge_linears, needs="LINEAR LIVE NO_BATCH_NORM", undoes="LIVE SIMPLE UNIQUE"),
    _row("simplify", simplify, needs="NORMAL", establishes="SIMPLE", undoes="LIVE UNIQUE"),
    _row("common-subexpressions", common_subexpressions, establishes="UNIQUE"),
    _row("dead-code", dead_code, establishes="LIVE"),
)


def run_graph_passes(
    graph: ModelGraph,
    observer: Observer | None = None,
    kept: Collection[str] = KEPT,
    skip: Collection[str] = (),
    made: Made | None = None,
) -> ModelGraph:
    """All passes on a copy of the graph; the given one is not changed, tensors are shared.

    Args:
        graph: a captured entry point.
        observer: told after each pass what it did.
        kept: operators (with or without overload) that the lowering takes whole.
        skip: names of passes to leave out: only those that merely make the graph better.
        made: what has been made of the weights of other entry points; None: nothing.

    Raises:
        CompileError: an operator whose only decomposition fixes a dynamic size.
    """
    made = made or Made()
    regions = {
        name: _with_own_names(run_graph_passes(region, None, kept, skip, made), name, region.constants)
        for name, region in graph.regions.items()
    }
    graph = replace(graph, regions=regions)
    work = replace(_work(graph), made=made)
    context = Context(graph.module, kept)
    check_order(PASSES)
    for row in PASSES:
        start = time.perf_counter()
        try:
            counts = row.run(work, context) if row.name not in skip else {}
        except Exception as error:
            error.add_note(f"in graph pass {row.name} of '{graph.name}'")
            raise
        seconds = time.perf_counter() - start
        if observer is not None:
            observer(PassReport(row.name, counts, seconds), _result(graph, work))
    return _result(graph, work)


def _with_own_names(region: ModelGraph, prefix: str, captured: Collection[str]) -> ModelGraph:
    """The region with names of its own for constants that passes have made: those of others may be called alike."""
    names = {name: f"{prefix}_{name}" for name in region.constants if name not in captured}
    for node in region.module.graph.nodes:
        if node.op == "get_attr" and node.target in names:
            node.target = names[str(node.target)]
    constants = {names.get(name, name): tensor for name, tensor in region.constants.items()}
    origins = {names.get(name, name): origin for name, origin in region.origins.items()}
    for name, own in names.items():
        setattr(region.module, own, getattr(region.module, name))
    region.module.recompile()
    return replace(region, constants=constants, origins=origins)


def _work(graph: ModelGraph) -> Work:
    copy = torch.fx.Graph()
    env: dict[torch.fx.Node, torch.fx.Node] = {}
    output = copy.graph_copy(graph.module.graph, env)
    copy.output(output)
    mark_updates(graph, list(copy.nodes))
    ranges = ranges_of(graph.symbols)
    return Work(copy, dict(graph.constants), ranges, origins=dict(graph.origins), by_value=set(graph.by_value))


def _result(graph: ModelGraph, work: Work) -> ModelGraph:
    module = graph_module(_attributes(graph, work), work.graph, graph.module.__class__.__name__)
    return replace(
        graph,
        module=module,
        constants=dict(work.constants),
        origins=dict(work.origins),
        by_value=frozenset(work.by_value),
    )


def _attributes(graph: ModelGraph, work: Work) -> dict[str, object]:
    """What the graph's get_attr nodes name: constants, and bodies of regions that stayed."""
    found: dict[str, object] = {}
    for node in work.graph.nodes:
        if node.op == "get_attr":
            name = str(node.target)
            if name in graph.regions:
                found[name] = graph.regions[name].module
            else:
                found[name] = work.constants[name] if name in work.constants else getattr(graph.module, name)
    return found
