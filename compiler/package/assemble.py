"""From the results of all stages to a written, verified package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.certificate import VERIFY_SEED, make_certificate, serialize
from ...runtime.errors import CompileError
from ...runtime.inspect import megabytes
from ...runtime.installation import how_to_install
from ...runtime.loader import EntryPoint, Model, load
from ..build.runtime_library import runtime_library
from ..capture.state import state_of
from ..lower.core.shapes import Sizes, sizes_of
from ..machine.local_cpu import machine
from ..machine.targets import Target, target_folder
from ..model.graph import ModelGraph, dtype_name
from ..model.random_operators import draws_random_numbers
from ..observe import Observer, running_stage
from ..schedule import Schedule
from ..schedule.report import kernel_rows
from ..verify.verify import Tolerance, VerifyResult, summarise, verify
from ..weights.recipes import MEMBER as RECIPES
from ..weights.recipes import recipes
from ..weights.safetensors import layout
from .contract import contract_of
from .launches import launch_rows
from .model_facts import MEMBER, model_facts
from .python_side import installed_loader, installed_wrappers
from .writer import Completion, PackageContents, PackageSummary, write_package

if TYPE_CHECKING:
    import sympy
    import torch

    from ..build.compile import BuildResult
    from ..codegen.generate import Generated
    from ..options import CompileOptions
    from ..request import CompileRequest
    from ..weights.collect import Weights


def unverified_notes(options: CompileOptions) -> list[str]:
    """A warning where the package is to be verified and no target of it runs on this machine."""
    if not options.verify or _runs_here(options):
        return []
    targets = ", ".join(target.name for target in options.targets)
    verb = "does" if len(options.targets) == 1 else "do"
    return [
        f"the package is not compared with the model: {targets} {verb} not run on this machine. `mycc verify SOURCE "
        "PACKAGE` compares them where it runs"
    ]


def _runs_here(options: CompileOptions) -> bool:
    """Whether one of the package's targets can run on this machine; a cross-compiled package is verified there."""
    from ..machine.targets import runs_here

    return any(runs_here(target) for target in options.targets)


@dataclass
class Assembled:
    """A package that is ready to be written."""

    request: CompileRequest
    captured: Sequence[ModelGraph]
    contents: PackageContents
    results: list[VerifyResult] = field(default_factory=list)

    @property
    def error(self) -> float | None:
        """The largest error of an entry point against float64, relative; None: nothing was verified."""
        return max((r.error for r in self.results), default=None)

    @property
    def eager(self) -> float | None:
        """The largest error of eager torch against float64, relative; None: nothing was verified."""
        return max((r.eager for r in self.results), default=None)

    def write(self, observers: Sequence[Observer]) -> PackageSummary:
        """Writes the package and verifies it before it takes its place."""
        verifying = self.request.options.verify and _runs_here(self.request.options)
        with ExitStack() as stages:
            stage = stages.enter_context(running_stage(observers, "package"))
            weights, path = sum(t.nbytes for t in self.contents.weights), self.request.out
            stage.summary = f"{path.name}: weights {megabytes(weights)}"
            if self.request.options.verify and not verifying:
                stage.summary += "; not verified: no target of it runs on this machine"
            stage.value = "\n".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.contents.weights)

            def complete(draft: Path) -> Completion:
                stages.close()  # the package is written; what follows is its verification
                return self._verify(draft, observers)

            return write_package(path, self.contents, complete if verifying else None)

    def _other_models(self, path: Path, model: Model) -> list[Model]:
        """On a GPU: the package's code for the CPU, when this one runs it."""
        from ..machine.targets import runs_here

        runs = any(target.family == "cpu" and runs_here(target) for target in self.request.options.targets)
        return [load(path, self.request.options.threads, device="cpu")] if runs and model.device != "cpu" else []

    def _verify(self, path: Path, observers: Sequence[Observer]) -> Completion:
        numerics = self.request.options.numerics
        allowed = {"f43": 4.0}.get(self.request.options.codegen.winograd, 0.0)  # asked for, so allowed to round more
        tolerance = Tolerance(max(numerics.factor, allowed), numerics.floor)
        with running_stage(observers, "verify") as stage:
            model = load(path, self.request.options.threads)
            others = self._other_models(path, model)
            for graph in self.captured:
                if draws_random_numbers(graph) and model.device != "cpu":
                    continue  # nothing to compare with: torch draws others
                entry = model.entry(graph.variant_of or graph.name)  # which hands calls of its sizes over
                self.results.append(verify(graph, run_torch(entry), tolerance=tolerance, seed=numerics.seed))
                for other in (m.entry(entry.name) for m in others):  # they have to be right too
                    verify(graph, run_torch(other), tolerance=tolerance, seed=numerics.seed)
            lines = [c.describe(i) for r in self.results for c in r.cases for i in range(len(c.errors))]
            stage.value = "\n".join(lines)
            random = [graph.name for graph in self.captured if draws_random_numbers(graph)]
            left_out = random if model.device != "cpu" else []
            stage.summary = summarise(self.results) if self.results else ""
            if left_out:
                stage.summary += f"{'; ' * bool(self.results)}not compared, random: {', '.join(left_out)}"
        certificate = make_certificate([case for r in self.results for case in r.references()])
        outputs = [(r.cases, i) for r in self.results for i in range(len(r.cases[0].errors))]
        check = {
            "error": [max(c.errors[i] for c in cases) for cases, i in outputs],
            "eager": [max(c.eager[i] for c in cases) for cases, i in outputs],
            "shapes": [c.sizes for r in self.results for c in r.cases],
        }
        return Completion(serialize(certificate), check)


def run_torch(entry: EntryPoint) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """The entry point on torch tensors; one without inputs gives numpy arrays, which become tensors here."""
    import torch

    def as_torch(value: Any) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            return value
        if getattr(value, "dtype", None) == "bfloat16":
            return torch.from_numpy(value.view("int16")).view(torch.bfloat16)
        return torch.as_tensor(value) if hasattr(value, "__array__") else torch.from_dlpack(value)

    return lambda inputs: [as_torch(y) for y in entry.run_whole(inputs, seed=VERIFY_SEED)]


def assemble(
    request: CompileRequest,
    captured: Sequence[ModelGraph],
    graphs: Sequence[ModelGraph],
    schedules: Mapping[str, Sequence[Schedule]],
    weights: Weights,
    generated: Generated,
    built: Mapping[str, BuildResult],
    tuning: Mapping[str, Any] | None = None,
    quantization: Mapping[str, Any] | None = None,
) -> Assembled:
    """The contents of the package.

    graphs: `captured` behind the graph passes. tuning, quantization: the manifest's rows of these names.
    """
    shown = schedules[min(request.options.targets, key=lambda target: target.family != "cpu").name]
    symbols = generated.symbols or tuple(schedule.names for schedule in shown)
    rows = [entry_row(graph, s, names) for graph, s, names in zip(captured, shown, symbols, strict=True)]
    for i, row in enumerate(rows):
        if generated.device:
            row["launches"] = {
                target: launch_rows(code, i, built[target].kernels) for target, code in generated.device.items()
            }
    contents = PackageContents(
        name=request.name,
        entry_points=rows,
        state=_state_rows(captured, weights),
        weights=weights.tensors,
        libraries={name: b.library for name, b in built.items()},
        targets=request.options.targets,
        devices={t.name: request.options.device(t) for t in request.options.targets if t.family == "cuda"},
        images={name: b.images for name, b in built.items() if b.images},
        device_weights=weights.device,
        loaders={target.name: _loader(target, request.options.cache_dir) for target in request.options.targets},
        wrappers=installed_wrappers(),
        sources=_sources(generated)
        | {MEMBER: model_facts(graphs, schedules, request.options)}
        | ({RECIPES: recipes(captured, graphs, weights.rows)} if request.training is None else {})
        if request.options.codegen.sources
        else {},
        threads=request.options.threads or 0,
        launch="graph" if request.options.mode == "reduce-overhead" else "",
        versions=_versions(built),
        tuning=tuning,
        task=None if request.task is None else request.task.facts,
        files={} if request.task is None else request.task.files,
        training=request.training.manifest if request.training is not None else None,
        quantization=quantization,
    )
    return Assembled(request, captured, contents)


def _loader(target: Target, cache_dir: Path | None) -> bytes:
    """libmycc.so for a target: the installed one where the architecture is the builder's."""
    from ... import __version__

    if target.arch != machine():
        return runtime_library(target, __version__, cache_dir)
    loader = installed_loader()
    if loader is None:
        raise CompileError(
            "the runtime library libmycc.so is not installed beside mycc",
            hint=how_to_install("compiler"),
        )
    return loader


def _versions(built: Mapping[str, BuildResult]) -> dict[str, str]:
    import torch

    from ... import __version__

    compiler = next(iter(built.values())).compiler
    python = ".".join(map(str, sys.version_info[:3]))
    return {"mycc": __version__, "torch": torch.__version__, "compiler": compiler, "python": python}


def _sources(generated: Generated) -> dict[str, str]:
    files: dict[str, str] = {}
    for target, sources in generated.sources.items():
        folder = target_folder(target)
        for name, text in {**sources.units, **sources.headers}.items():
            files[f"{folder}/{name}"] = text
    return files


def entry_row(graph: ModelGraph, schedule: Schedule, symbols: tuple[str, ...]) -> dict[str, Any]:
    """The manifest's row of an entry point."""
    memory = schedule.memory
    return {
        **interface_row(graph),
        "kernels": kernel_rows(schedule, symbols),
        "fusions": [
            {"producer": r.producer, "consumer": r.consumer, "done": r.done, "reason": r.reason}
            for r in schedule.remarks
        ],
        "memory": {
            "buffers": len(memory.lifetimes),
            "arena": memory.arena,
            "live": memory.live,
            "dynamic": memory.offsets is None,
        },
    }


def interface_row(graph: ModelGraph) -> dict[str, Any]:
    """What the row of an entry point says of its arguments and results."""
    sizes = sizes_of(graph)
    return {
        "name": graph.name,
        "inputs": [_port(spec, sizes) for spec in graph.inputs[: graph.n_arguments]],
        "outputs": [_port(spec, sizes) for spec in graph.outputs[: graph.n_results]],
        "symbols": [
            {name: getattr(s, name) for name in ("name", "min", "max", "input", "dim", "scale", "offset")}
            for s in graph.symbols
        ],
        **({"variant_of": graph.variant_of, "fixed": dict(graph.fixed)} if graph.variant_of else {}),
        **_in_place_rows(graph),
        "computed": [{"name": c.name, "min": c.min, "max": c.max, "where": c.where} for c in graph.computed],
        "in_tree": graph.in_tree,
        "out_tree": graph.out_tree,
    }


def package_contract(captured: Sequence[ModelGraph], weights: Weights) -> str:
    """What the code of a package with these entry points and weights is compiled for (contract.py)."""
    placed = layout(weights.tensors)
    rows = [interface_row(graph) for graph in captured]
    return contract_of(rows, _state_rows(captured, weights), len(placed.header), placed.size)


def _in_place_rows(graph: ModelGraph) -> dict[str, Any]:
    """What a call reads and changes beside its results: tensors of the state by number, inputs by position."""
    state = [change for change in graph.in_place if change.initial is not None]
    rows = {
        "state": [change.slot for change in state],
        "changes": [change.slot for change in state if change.output is not None],
        "writes": [change.input for change in graph.in_place if change.initial is None],
    }
    return {name: row for name, row in rows.items() if row}


def _state_rows(captured: Sequence[ModelGraph], weights: Weights) -> list[dict[str, Any]]:
    """The tensors of the state; `offset` of the first value in the data of the weights, without one it is zero."""
    rows = []
    for change, offset in zip(state_of(captured), weights.state, strict=True):
        assert change.initial is not None
        row = {"name": change.name, "dtype": dtype_name(change.initial.dtype), "shape": list(change.initial.shape)}
        rows.append(row | ({} if offset is None else {"offset": offset}))
    return rows


def _port(spec: Any, sizes: Sizes) -> dict[str, Any]:
    return {"name": spec.name, "dtype": dtype_name(spec.dtype), "shape": [_dimension(d, sizes) for d in spec.shape]}


def _dimension(size: int | sympy.Expr, sizes: Sizes) -> int | str:
    """A size as the manifest writes it: a number, or a formula over symbol names."""
    if isinstance(size, int) or size.is_Integer:
        return int(size)
    return str(sizes.index(size))
