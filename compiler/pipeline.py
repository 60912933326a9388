"""The pipeline: from a request to a package, one stage after the other.

    capture -> graph -> lower -> schedule -> codegen -> build -> package -> verify

Data flows one way; a stage takes values and returns a value. Timing, progress and dumps are observers. What only some
requests need (GPUs, training, quantisation) is imported where it is used: imports are a tenth of a small compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .build.compile import BuildOptions, BuildResult, build
from .capture.export import capture_request
from .capture.precision import in_dtype
from .capture.specialise import variant_requests
from .capture.state import share_state, state_of, training_notes
from .codegen.generate import Generated, generate
from .codegen.host.program import Sources
from .garbage import give_back, rare_collections
from .graph.made import Made
from .graph.passes import run_graph_passes
from .graph.widened import widened_weights
from .lower import lower, shared_layouts
from .lower.core.builder import WinogradChoice
from .lower.core.driver import Lowered
from .lower.core.eager_roundings import with_eager_roundings
from .machine.targets import Family, Target
from .model.graph import ModelGraph
from .model.operators.kept import kept_for
from .observe import Observer, running_stage, warn_all
from .options import CompileOptions
from .package.assemble import Assembled, assemble, package_contract, unverified_notes
from .package.writer import PackageSummary
from .quantize.report import QuantizationReport, manifest_row
from .quantize.report import summarise as summarise_quantization
from .request import CompileRequest
from .schedule import Schedule, schedule
from .schedule.passes import check_names
from .schedule.planning import OPTIONAL
from .summaries import summarise
from .tune.choices.choices import NO_CHOICES, Choices
from .tune.search.lock import Lock, read_lock
from .tune.search.stage import Tuned, choose
from .weights.collect import Weights, collect_weights


@dataclass(frozen=True)
class CompileResult:
    """What a compile made."""

    path: Path
    summary: PackageSummary
    kernels: int
    targets: tuple[str, ...]
    error: float | None  # of the package against float64; None when it was not verified
    eager: float | None
    warnings: tuple[str, ...]
    quantization: tuple[QuantizationReport, ...] = ()


@rare_collections()
def run(request: CompileRequest, observers: Sequence[Observer] = ()) -> CompileResult:
    """Compiles the request's entry points into one package. Raises CompileError; then nothing is left behind."""
    options = request.options
    check_names(options.schedule.off, OPTIONAL)
    lock = None if options.lock is None else read_lock(options.lock)  # not found missing after the export
    unverified = unverified_notes(options)
    warn_all(observers, unverified, options.strict)
    with running_stage(observers, "capture") as stage:
        captured = stage.value = share_state(_captured(request))
        stage.summary = summarise(captured)
    notes = list(dict.fromkeys(note for graph in captured for note in graph.notes))
    notes += [] if request.training is not None else training_notes(captured)
    notes += () if lock is None else lock.warnings
    warn_all(observers, notes, options.strict)
    result = run_captured(captured, request, observers, lock)
    return replace(result, warnings=(*result.warnings, *unverified, *notes))


@rare_collections()
def run_captured(
    captured: Sequence[ModelGraph],
    request: CompileRequest,
    observers: Sequence[Observer] = (),
    lock: Lock | None = None,
) -> CompileResult:
    """The stages behind the capture: graphs, however they were captured, become the request's package.

    Raises CompileError; then nothing is left behind.
    """
    options = request.options
    captured, reports = _quantized(captured, options, observers)
    with running_stage(observers, "graph") as stage:
        kept, skip = kept_for(options.families), options.graph.skipped_passes
        made = Made()
        graphs = stage.value = [run_graph_passes(graph, kept=kept, skip=skip, made=made) for graph in captured]
        del made
        if options.quantize is not None:
            give_back()
        stage.summary = summarise(graphs)
    widened = list(dict.fromkeys(text for graph in graphs for text in widened_weights(graph, options.families)))
    warn_all(observers, widened, options.strict)
    measure_gpu = partial(_measure_gpu, graphs, options)
    tuned = choose(request, captured, lock, partial(_draft, captured, graphs), measure_gpu, observers)
    code = _code(captured, graphs, options, tuned.choices, observers)
    tuned, problems = tuned.fitting(code.schedules, options)
    warn_all(observers, problems, options.strict)
    result = _package(request, observers, captured, graphs, code, tuned, reports)
    tuned.save(request.out)
    return replace(result, quantization=tuple(reports), warnings=(*result.warnings, *widened, *problems))


def _quantized(
    captured: Sequence[ModelGraph], options: CompileOptions, observers: Sequence[Observer]
) -> tuple[Sequence[ModelGraph], list[QuantizationReport]]:
    """The entry points with the weights as integers that the options ask for: from here on they are the model."""
    if options.quantize is None:
        return captured, []
    from .quantize.quantize import quantize

    with running_stage(observers, "quantize") as stage:
        graphs, reports = quantize(captured, options.quantize)
        stage.value = "\n".join(line for report in reports for line in report.lines())
        stage.summary = summarise_quantization(reports)
        give_back()
    return graphs, reports


def _captured(request: CompileRequest) -> list[ModelGraph]:
    """The entry points as graphs, with those for some sizes alone behind them."""
    if request.training is not None:
        from .training.request import capture_training

        return capture_training(request.training, request.options.families)
    entries = in_dtype(request.entries, request.options.dtype)
    captured = [capture_request(entry) for entry in entries]
    return captured + [capture_request(v) for v in variant_requests(entries, captured, request.options.specialize)]


@dataclass(frozen=True)
class Code:
    """What the stages between the graph and the package made, by target."""

    schedules: Mapping[str, Sequence[Schedule]]
    weights: Weights
    generated: Generated
    built: Mapping[str, BuildResult]


def _code(
    captured: Sequence[ModelGraph],
    graphs: Sequence[ModelGraph],
    options: CompileOptions,
    choices: Choices,
    observers: Sequence[Observer],
) -> Code:
    """Lowers, schedules, generates and builds."""
    with running_stage(observers, "lower") as stage:
        lowered = {f: _lower(graphs, f, options.codegen.winograd, choices) for f in options.families}
        if options.graph.eager_roundings and "cuda" in lowered:
            lowered["cuda"] = [replace(p, program=with_eager_roundings(p.program)) for p in lowered["cuda"]]
        stage.value = [program for programs in lowered.values() for program in programs]
        stage.summary = summarise(stage.value)
    with running_stage(observers, "schedule") as stage:
        schedules = _schedules(lowered, options)
        stage.value = list({id(s): s for entries in schedules.values() for s in entries}.values())
        stage.summary = summarise(stage.value)
    with running_stage(observers, "codegen") as stage:
        weights = collect_weights(lowered.get("cpu", ()), lowered.get("cuda", ()), state_of(graphs), graphs)
        contract = package_contract(captured, weights)
        generated = stage.value = _generate(graphs, schedules, weights, options, choices, contract)
        stage.summary = summarise(generated)
    with running_stage(observers, "build") as stage:
        built, generated = _build(generated, weights, options, contract)
        stage.value = "\n".join(line for result in built.values() for line in result.log)
        stage.summary = summarise(built)
    return Code(schedules, weights, generated, built)


def _draft(
    captured: Sequence[ModelGraph], graphs: Sequence[ModelGraph], request: CompileRequest, choices: Choices
) -> Sequence[Schedule]:
    """Writes a package to be measured; its CPU schedules."""
    code = _code(captured, graphs, request.options, choices, ())
    assemble(request, captured, graphs, code.schedules, code.weights, code.generated, code.built).write(())
    return next(iter(code.schedules.values()))


def _measure_gpu(
    graphs: Sequence[ModelGraph], options: CompileOptions, captured: Sequence[ModelGraph], target: Target
) -> Lock:
    """The lock of a GPU's target, measured on this machine."""
    from .tune.search.gpu_search import search_gpu

    lowered = _lower(graphs, "cuda", options.codegen.winograd, NO_CHOICES)
    device = options.device(target)
    schedules = [schedule(entry.program, options.schedule, device) for entry in lowered]
    weights = collect_weights((), lowered)
    return search_gpu(captured, schedules, weights, target, device, _settings(options))


def _lower(graphs: Sequence[ModelGraph], family: Family, winograd: WinogradChoice, choices: Choices) -> list[Lowered]:
    layouts = shared_layouts(graphs, family)
    return [lower(graph, own, family, winograd, choices) for graph, own in zip(graphs, layouts, strict=True)]


def _schedules(lowered: Mapping[Family, Sequence[Lowered]], options: CompileOptions) -> dict[str, Sequence[Schedule]]:
    """The schedules of all entry points by target: one for all CPUs, and one for each GPU as itself."""
    found: dict[str, Sequence[Schedule]] = {}
    cpu: Sequence[Schedule] = [schedule(entry.program, options.schedule) for entry in lowered.get("cpu", ())]
    for target in options.targets:
        if target.family == "cuda":
            device = options.device(target)
            found[target.name] = [schedule(entry.program, options.schedule, device) for entry in lowered["cuda"]]
        else:
            found[target.name] = cpu
    return found


def _generate(
    graphs: Sequence[ModelGraph],
    schedules: Mapping[str, Sequence[Schedule]],
    weights: Weights,
    options: CompileOptions,
    choices: Choices,
    contract: str,
) -> Generated:
    """C++ for the CPU's targets, Triton kernels and their launches for each GPU."""
    cpu = [target for target in options.targets if target.family == "cpu"]
    generated = Generated({}, (), ())
    if cpu:
        generated = generate(graphs, schedules[cpu[0].name], weights, cpu, choices, contract)
    if "cuda" not in options.families:
        return generated
    from .codegen.cuda.generate import generate_device
    from .tune.search.gpu_space import tiles_of

    device = {
        target.name: generate_device(
            graphs, schedules[target.name], options.device(target), tiles_of(choices, target.name)
        )
        for target in options.targets
        if target.family == "cuda"
    }
    return replace(generated, device=device)


def _build(
    generated: Generated, weights: Weights, options: CompileOptions, contract: str
) -> tuple[dict[str, BuildResult], Generated]:
    """model.so of every target; for a GPU with its kernels, whose images its host program is made from."""
    settings = _settings(options)
    built: dict[str, BuildResult] = {}
    sources = dict(generated.sources)
    if "cuda" in options.families:
        from .build.device_build import PROGRAM, build_devices

        codes = {t: generated.device[t.name] for t in options.targets if t.family == "cuda"}
        for target, (result, program) in build_devices(codes, weights, settings, contract).items():
            built[target.name] = result
            kernels = {f"{kernel.symbol}.py": kernel.source for kernel in codes[target].kernels}
            sources[target.name] = Sources({PROGRAM: program}, kernels, len(kernels))
    for target in options.targets:
        if target.family == "cpu":
            own = sources[target.name]
            built[target.name] = build(own.units, own.headers, target, settings)
    built = {target.name: built[target.name] for target in options.targets}
    return built, replace(generated, sources=sources)


def _settings(options: CompileOptions) -> BuildOptions:
    from .. import __version__

    return BuildOptions(options.jobs or 0, options.cache_dir, version=__version__, flags=options.build.words)


def _package(
    request: CompileRequest,
    observers: Sequence[Observer],
    captured: Sequence[ModelGraph],
    graphs: Sequence[ModelGraph],
    code: Code,
    tuned: Tuned,
    reports: Sequence[QuantizationReport],
) -> CompileResult:
    """Writes the package beside its place, verifies it there, and moves it into place."""
    skip = request.options.quantize.skip if request.options.quantize is not None else ()
    assembled: Assembled = assemble(
        request, captured, graphs, code.schedules, code.weights, code.generated, code.built, tuned.manifest(),
        manifest_row(reports, skip),
    )  # fmt: skip
    summary = assembled.write(observers)
    return CompileResult(
        summary.path,
        summary,
        sum(len(s.program.nodes) for s in next(iter(code.schedules.values()))),
        tuple(code.built),
        assembled.error,
        assembled.eager,
        request.warnings,
    )
