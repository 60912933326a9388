"""The `mycc` command: each subcommand is a few lines over the Python API.

Commands that are given a model's source need torch; it is imported when they run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from time import perf_counter, strftime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from . import __version__
from .console import (
    FIRST_STEPS,
    BisectCommand,
    CacheDir,
    Calibrate,
    CompileCommand,
    Device,
    Dtype,
    Dynamic,
    Entry,
    ErrorGroup,
    Examples,
    ExplainCommand,
    Freeze,
    Json,
    JsonFileCommand,
    MaxError,
    Package,
    PlainCommand,
    Quantize,
    QuantizeSkip,
    Quiet,
    Settings,
    Sizes,
    Source,
    Specialize,
    Target,
    Targets,
    Tf32,
    Threads,
    Verbose,
    about,
    print_json,
    print_rich,
    stdout_to_stderr,
    write_json,
)

if TYPE_CHECKING:
    from .compiler.capture.source import Source as LoadedSource
    from .compiler.observe import Observer
    from .compiler.options import CompileOptions
    from .compiler.verify.command import ModelReport

__all__ = ["app"]

_CONTEXT = {"help_option_names": ["-h", "--help"]}
_Result = TypeVar("_Result")


app = typer.Typer(
    name="mycc", cls=ErrorGroup, no_args_is_help=True, add_completion=True, rich_markup_mode=None,
    context_settings=_CONTEXT, pretty_exceptions_enable=False,
    help="Ahead-of-time compiler for PyTorch models: PyTorch in, one small native package out.",
    epilog=FIRST_STEPS,
)  # fmt: skip
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The cache of compiled objects.")
app.add_typer(cache_app, name="cache")


class ModeChoice(StrEnum):
    """torch.compile's modes."""

    default = "default"
    reduce_overhead = "reduce-overhead"
    max_autotune = "max-autotune"


# -- compile ----------------------------------------------------------------------------------------------------------


@app.command("compile", cls=CompileCommand, **about("compile"))
def compile_command(
    source: Source,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The package. Default: NAME.pkg here.")
    ] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    specialize: Specialize = None,
    target: Targets = "cpu",
    mode: Annotated[ModeChoice, typer.Option("--mode", help="torch.compile's modes.")] = ModeChoice.default,
    dtype: Dtype = None,
    tf32: Tf32 = False,
    quantize: Quantize = None,
    quantize_skip: QuantizeSkip = None,
    calibrate: Calibrate = None,
    max_error: MaxError = None,
    threads: Threads = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Measure kernel variants here; keeps the choices in FILE.lock.")
    ] = False,
    lock: Annotated[
        Path | None, typer.Option("--lock", metavar="FILE", help="Repeat the choices of a lock file.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare with the model in float64.")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Make an error of every warning.")] = False,
    train: Annotated[
        bool, typer.Option("--train", help="Compile a training step: the file has an `optimizer` and a `loss`.")
    ] = False,
    freeze: Freeze = None,
    clip_norm: Annotated[
        float | None, typer.Option("--clip-norm", metavar="NORM", help="With --train: of all gradients, at most.")
    ] = None,
    clip_value: Annotated[
        float | None, typer.Option("--clip-value", metavar="X", help="With --train: of a gradient's elements, at most.")
    ] = None,
    check_finite: Annotated[
        bool, typer.Option("--check-finite", help="With --train: skip steps whose loss or gradients are not finite.")
    ] = False,
    accumulate: Annotated[
        bool, typer.Option("--accumulate", help="With --train: steps of several batches as well.")
    ] = False,
    settings: Settings = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The package's name in Python. Default: from the file.")
    ] = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write every stage's result there.")
    ] = None,
    cache_dir: CacheDir = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="C++ compilers at once. Default: one per core.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="SOURCE is a model's folder or GGUF file; text-generation, text2text-generation, image-text-to-text, "
            "automatic-speech-recognition or embedding.",
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", help="Tokens of a text. Default: the model's own, at most 4096.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="FILE", help="With --task: a tokenizer.json instead of the model's own."),
    ] = None,
    max_batch: Annotated[int | None, typer.Option("--max-batch", help="Texts generated at once. Default: 1.")] = None,
    cache_tokens: Annotated[
        int | None,
        typer.Option("--cache-tokens", help="Tokens of all texts that the cache holds. Default: as many as may come."),
    ] = None,
    max_source_length: Annotated[
        int | None, typer.Option("--max-source-length", help="Tokens that an encoder reads. Default: as --max-length.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option("--image-size", help="Height and width of images. Default: the model's own, or 448.")
    ] = None,
    cache_dtype: Annotated[
        str | None,
        typer.Option("--cache-dtype", help="Of keys and values: f32, bf16, f16, int8. Default: the model's."),
    ] = None,
    draft_tokens: Annotated[
        int | None,
        typer.Option("--draft-tokens", help="Tokens checked at once, for speculative decoding. Default: none."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compile a model, or with --task a model's folder, to a package."""
    from .compiler.api import (
        check_files,
        check_out,
        compile_entries,
        compile_request,
        require_torch,
        run_request,
        train_request,
    )
    from .compiler.observe import TimingObserver, running_stage
    from .compiler.options import CompileOptions
    from .runtime.errors import CompileError

    timing = TimingObserver()
    observers: list[Observer] = [timing] if as_json else [timing, _progress(quiet)]
    start = perf_counter()
    own = {"max_batch": max_batch, "max_source_length": max_source_length, "tokenizer": tokenizer,
           "draft_tokens": draft_tokens, "image_size": image_size, "cache_tokens": cache_tokens,
           "cache_dtype": cache_dtype}  # fmt: skip
    if task is not None:
        from .compiler.generation.tasks import compile_task

        with stdout_to_stderr(as_json):
            path = compile_task(
                task, source, out=out, max_length=max_length, own=own, dtype=dtype, target=target,
                verify=verify, strict=strict, threads=threads, options=_with_tf32(settings, tf32), name=name,
                cache_dir=cache_dir, jobs=jobs, dump=dump, observers=observers, quantize=quantize,
                quantize_skip=quantize_skip or (), max_error=max_error,
                unused={
                    "--input": inputs, "--dynamic": dynamic, "--specialize": specialize, "--tune": tune, "--lock": lock,
                    "--calibrate": calibrate,
                },
            )  # fmt: skip
        _report_compile(path, timing, perf_counter() - start, as_json, verbose)
        return
    for word, value in (("max_length", max_length), *own.items()):
        if value is not None:
            raise CompileError(f"--{word.replace('_', '-')} goes with --task")
    options = CompileOptions.of(
        target=target, dtype=dtype, mode=mode.value, tune=tune, lock=lock, verify=verify, strict=strict,
        threads=threads, options=_with_tf32(settings, tf32), cache_dir=cache_dir, jobs=jobs, dump=dump,
        specialize=specialize or (), quantize=quantize, quantize_skip=quantize_skip or (), calibrate=calibrate,
        max_error=max_error,
    )  # fmt: skip
    check_files(options)
    if not train and (freeze or clip_norm or clip_value or check_finite or accumulate):
        raise CompileError("--freeze, --clip-norm, --clip-value, --check-finite and --accumulate go with --train")
    if out is not None:
        check_out(out)
    with stdout_to_stderr(as_json):
        with running_stage(observers, "load") as stage:
            require_torch()
            loaded = _load(source, inputs or [])
            stage.summary = _describe(loaded)
        where = out or Path(f"{loaded.name}.pkg")
        if train:
            training = train_request(
                loaded, dynamic or (), freeze=freeze or (), clip_norm=clip_norm, clip_value=clip_value,
                check_finite=check_finite, accumulate=accumulate, dtype=options.dtype,
            )  # fmt: skip
            request = compile_request((), options, where, name, training=training)
        else:
            entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
            request = compile_request(entries, options, where, name)
        path = run_request(request, observers)
    _report_compile(path, timing, perf_counter() - start, as_json, verbose)


def _with_tf32(settings: list[str] | None, tf32: bool) -> list[str]:
    return [*(["codegen.tf32=yes"] if tf32 else []), *(settings or [])]


@app.command("check", cls=CompileCommand, **about("check"))
def check_command(
    source: Source,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    specialize: Specialize = None,
    target: Targets = "cpu",
    dtype: Dtype = None,
    tf32: Tf32 = False,
    quantize: Quantize = None,
    quantize_skip: QuantizeSkip = None,
    settings: Settings = None,
    strict: Annotated[bool, typer.Option("--strict", help="Make an error of every warning.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Say in seconds whether a model would compile, and to which kernels. Exit code 1: it would not."""
    from .compiler.api import compile_entries, require_torch
    from .compiler.options import CompileOptions

    options = CompileOptions.of(
        target=target, dtype=dtype, strict=strict, options=_with_tf32(settings, tf32), specialize=specialize or (),
        quantize=quantize, quantize_skip=quantize_skip or (),
    )  # fmt: skip
    with stdout_to_stderr(as_json):
        require_torch()
        from .compiler.check import check

        loaded = _load(source, inputs or [])
        entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
        report = check(entries, options)
    if as_json:
        print_json({"source": source, **report.as_dict()}, "check/1")
    else:
        from .compiler.check_text import render_check

        print_rich(render_check(report, source))
    if not report.ok:
        raise typer.Exit(1)


def _load(source: str, inputs: Sequence[str]) -> LoadedSource:
    from dataclasses import replace

    from .compiler.capture.source import load_source

    loaded = load_source(source)
    if not inputs:
        return loaded
    from .compiler.capture.examples import override_inputs
    from .compiler.capture.export import forward_of

    args, kwargs = override_inputs(forward_of(loaded.model), loaded.args, loaded.kwargs, inputs)
    return replace(loaded, args=args, kwargs=kwargs)


def _describe(source: LoadedSource) -> str:
    """`BertModel, 109.5 M parameters`"""
    parameters = getattr(source.model, "parameters", None)
    kind = getattr(source.model, "__name__", type(source.model).__name__)
    if not callable(parameters):
        return kind
    count = sum({id(p): p.numel() for p in parameters()}.values())
    many = f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"
    return f"{kind}, {many} parameter{'' if count == 1 else 's'}"


def _progress(quiet: bool = False) -> Observer:
    from .compiler.progress import ProgressObserver

    return ProgressObserver(quiet=quiet)


def _report_compile(path: Path, timing: Any, seconds: float, as_json: bool, verbose: bool) -> None:
    from .compiler.machine.targets import runs_on_this_machine
    from .runtime.inspect import accuracy_line, inspect_package, megabytes, quantization_lines

    facts = inspect_package(os.fspath(path))
    if as_json:
        stages = [{"name": s.name, "seconds": round(s.seconds, 3), "summary": s.summary} for s in timing.stages]
        kept = {
            key: facts[key]
            for key in ("path", "name", "size", "weights", "other", "targets", "glibc", "check", "quantization")
        }
        entries = [{"name": row["name"], "signature": row["signature"], "kernels": len(row["kernels"])}
                   for row in facts["entry_points"]]  # fmt: skip
        result = {**kept, "entry_points": entries, "seconds": round(seconds, 3), "stages": stages}
        print_json({**result, "warnings": timing.warnings}, "compile/1")
        return
    number = sum(len(row["kernels"]) for row in facts["entry_points"])
    kernels = f"{number} kernel{'' if number == 1 else 's'}"
    targets = ", ".join(row["target"] for row in facts["targets"])
    print(f"\n{path}  {megabytes(facts['size'])}  ({kernels}, {targets}, {seconds:.1f} s)")
    for row in facts["entry_points"]:
        print(f"  {row['signature']}")
    here = runs_on_this_machine(facts)
    print(f"  {accuracy_line(facts['check'])}" + ("" if here else ": no target of it runs on this machine"))
    for line in quantization_lines(facts["quantization"] or {}):
        print(f"  {line}")
    if verbose:
        from .runtime.render import render_inspection

        for fusions in (False, True):
            print_rich(render_inspection(facts, fusions, summary=False))
    if not here:
        print(f"  copy it to a machine with {targets}, then: mycc verify {path}   and: mycc run {path}")
        return
    way = f"mycc run {path}"
    if (facts["task"] or {}).get("name") == "text-generation":
        way += ' --prompt "..."'
    print(f"  run it: {way}   or in Python: mycc.load({os.fspath(path)!r})")


# -- the light commands: no torch -------------------------------------------------------------------------------------


@app.command("run", cls=PlainCommand, **about("run"))
def run_command(
    file: Package,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", metavar="FILE", help="One .npz, or .npy files in order. Default: random."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the outputs to this .npz.")
    ] = None,
    sizes: Sizes = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the random inputs, or of the tokens drawn.")] = 0,
    entry: Entry = None,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="Generate what follows it; -: stdin."),
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option("--image", metavar="FILE", help="With --prompt: an image that it names.")
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option("--draft", metavar="FILE", help="With --prompt: what guesses tokens, a package or lookup."),
    ] = None,
    audio: Annotated[
        Path | None, typer.Option("--audio", metavar="FILE", help="Of packages for speech: a WAV file to write down.")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="With --audio: the language that is spoken. Default: found out.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message to answer.")] = False,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", help="At most so many.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="0: always the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Draw from the likeliest that add up to p.")] = None,
    min_p: Annotated[
        float | None, typer.Option("--min-p", help="Draw from those at least p times as likely as the likeliest.")
    ] = None,
    repetition_penalty: Annotated[float | None, typer.Option("--repetition-penalty", help="1: none.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the text.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a package on inputs from files or on random ones; one for text on a prompt."""
    if prompt is not None:
        from .runtime.generation.command import run_prompt

        options = {
            "max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
            "min_p": min_p, "repetition_penalty": repetition_penalty, "stop": stop or None, "seed": seed,
            **({"images": [os.fspath(path) for path in image]} if image else {}),
        }  # fmt: skip
        facts = run_prompt(file, prompt, chat, options, threads, target, device, quiet=as_json, draft=draft)
        if as_json:
            print_json(facts, "run/1")
        return
    if audio is not None:
        from .runtime.generation.command import run_audio

        facts = run_audio(file, audio, language, {"max_new_tokens": max_new_tokens}, threads, target, device, as_json)
        if as_json:
            print_json(facts, "run/1")
        return
    from .runtime.execute import parse_sizes, run_package

    values = parse_sizes(sizes or [])
    result = run_package(
        file,
        inputs or None,
        sizes=values,
        entry=entry,
        threads=threads,
        target=target,
        device=device,
        out=out,
        seed=seed,
    )
    if as_json:
        print_json(_run_facts(result), "run/1")
    else:
        from .runtime.render import render_run

        print_rich(render_run(result))


def _run_facts(result: Any) -> dict[str, Any]:
    def shape(array: Any) -> dict[str, Any]:
        return {"dtype": array.dtype.name, "shape": list(array.shape)}

    return {
        "entry": result.entry, "target": result.target, "device": result.device, "threads": result.threads,
        "generated": result.generated,
        "inputs": {name: shape(array) for name, array in result.inputs.items()},
        "outputs": {name: shape(array) for name, array in result.outputs.items()},
        "seconds": result.seconds, "out": result.out,
    }  # fmt: skip


@app.command("serve", cls=PlainCommand, **about("serve"))
def serve_command(
    file: Package,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="And the port.")] = 8000,
    name: Annotated[str | None, typer.Option("--name", help="The model's name for clients. Default: FILE's.")] = None,
    waiting: Annotated[
        int, typer.Option("--waiting", help="Texts that may wait; others are told to come again.")
    ] = 256,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    verbose: Verbose = False,
) -> None:
    """Answer OpenAI's HTTP requests with a package for text, or for vectors of texts."""
    from .runtime.loader import load
    from .runtime.serve.app import serve

    model = load(os.fspath(file), threads, target, device=device)
    serve(model, name or file.stem, host, port, waiting)


@app.command("inspect", cls=PlainCommand, **about("inspect"))
def inspect_command(
    file: Package,
    fusions: Annotated[bool, typer.Option("--fusions", help="Which fusions were done, which not, and why.")] = False,
    members: Annotated[bool, typer.Option("--members", help="The members of the package and their sizes.")] = False,
    sizes: Sizes = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what a package is: signature, targets, kernels with their source lines, memory, sizes."""
    from .runtime.execute import parse_sizes
    from .runtime.inspect import inspect_package

    facts = inspect_package(os.fspath(file))
    if as_json:
        print_json(facts, "inspect/1")
    else:
        from .runtime.render import render_inspection

        print_rich(render_inspection(facts, fusions, members or verbose, parse_sizes(sizes or [])))


@app.command("verify", cls=BisectCommand, **about("verify"))
def verify_command(
    files: Annotated[
        list[str], typer.Argument(metavar="[SOURCE] FILE", help="A package; before it the model to compare it with.")
    ],
    bisect: Annotated[
        Path | None,
        typer.Option("--bisect", metavar="[DIR]", help="Find the first wrong kernel; a reproducer goes to DIR."),
    ] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    dtype: Dtype = None,
    settings: Settings = None,
    entry: Entry = None,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check every hash of a package, then its results against its accuracy certificate, or with SOURCE against the
    model itself in float64. Exit code 1: not accurate."""
    if len(files) > 1 or bisect is not None:
        from .compiler.options import CompileOptions

        options = CompileOptions.of(dtype=dtype, options=settings, threads=threads)
        with stdout_to_stderr(as_json):
            compared = _compare_with_model(files, inputs, dynamic, options, entry, bisect)
        print_json(compared.as_dict(), "verify/1") if as_json else print(compared.text())
        if not compared.ok:
            raise typer.Exit(1)
        return
    from .runtime.verify import verify_package

    report = verify_package(files[0], threads, target, device)
    if as_json:
        print_json(report.as_dict(), "verify/1")
    else:
        from .runtime.render import render_verify

        print_rich(render_verify(report))
    if not report.ok:
        raise typer.Exit(1)


def _compare_with_model(
    files: Sequence[str],
    inputs: Sequence[str] | None,
    dynamic: Sequence[str] | None,
    options: CompileOptions,
    entry: str | None,
    bisect: Path | None,
) -> ModelReport:
    from .compiler.api import compile_entries, require_torch
    from .runtime.errors import InputError

    if len(files) != 2:
        raise InputError("comparing with the model takes its source and the package: mycc verify model.py model.pkg")
    require_torch()
    from .compiler.quantize.stored import as_stored
    from .compiler.verify.command import verify_model

    loaded = _load(files[0], inputs or [])
    entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
    return verify_model(entries, Path(files[1]), options, entry, bisect, as_stored)


@app.command("bench", cls=JsonFileCommand, **about("bench"))
def bench_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A package; or a model to compare: model.py, model.py:factory.")
    ],
    against: Annotated[
        str | None, typer.Option("--against", metavar="PEERS", help="eager,compile,aoti,aoti-max,ort,openvino.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,N", help="Threads of a run, one measurement for each.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N,N", help="Sizes of the model's batch. Default: the example's.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="X=DTYPE[SIZES]", help="Another example for the model.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Of timed runs of a peer, each turn.")] = 1.0,
    turns: Annotated[int, typer.Option("--turns", help="How often the peers take turns.")] = 3,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Largest error of a peer that counts. Default: from eager's.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts.")] = None,
    sizes: Sizes = None,
    runs: Annotated[int | None, typer.Option("--runs", help="Timed runs. Default: a second's worth.")] = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="Each kernel beside the machine's roof.")] = False,
    entry: Entry = None,
    target: Target = None,
    device: Device = None,
    cache_dir: CacheDir = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="[FILE]", help="Print the result as JSON, or write it to FILE.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure a package and its kernels; or a model beside eager torch and other compilers."""
    from .compiler.bench.command import bench_packages, bench_source, check_file, is_source, refuse

    check_file(Path(json_file) if json_file not in (None, "-") else None)
    if not is_source(file):
        own = {"--against": against, "--batch": batch, "--input": inputs, "--html": html, "--tolerance": tolerance}
        refuse(own, "a model, not for a package", "Name the model's source: mycc bench model.py --against eager,aoti.")
        from .runtime.execute import parse_sizes
        from .runtime.render import render_bench

        results = bench_packages(file, threads, sizes=parse_sizes(sizes or []), runs=runs, entry=entry, target=target,
                                 device=device, kernels=kernels or verbose)  # fmt: skip
        if json_file is None:
            for result in results:
                print_rich(render_bench(result))
        else:
            write_json(results[0] if len(results) == 1 else results, json_file, "bench/1")
        return
    own = {"--size": sizes, "--runs": runs, "--kernels": kernels, "--entry": entry, "--device": device}
    refuse(own, "a package, not for a model", "Compile the model first: mycc compile model.py --out model.pkg.")
    check_file(html)
    from .compiler.bench.page import html_page
    from .compiler.bench.report import render_case, render_summary, write_text

    with stdout_to_stderr(json_file == "-"):
        comparison = bench_source(
            file, against, threads, batch, inputs=tuple(inputs or ()), seconds=seconds, turns=turns,
            tolerance=tolerance, show=lambda case: print_rich(render_case(case)), observers=[_progress(quiet)],
            compile_options={"target": target or "cpu", "cache_dir": cache_dir},
        )  # fmt: skip
        print_rich(render_summary(comparison))
    if json_file is not None:
        write_json(comparison.as_dict(), json_file, "comparison/1")
    if html is not None:
        write_text(html, html_page(comparison, strftime("%Y-%m-%d %H:%M")))
    if not comparison.accurate:
        raise typer.Exit(1)


@app.command("explain", cls=ExplainCommand, **about("explain"))
def explain_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A package; or a model, which is compiled first.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page. Default: NAME.html here.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Time each kernel here, beside the roof.")] = False,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE", help="Another package, to be shown beside.")
    ] = None,
    sources: Annotated[
        list[Path] | None, typer.Option("--source", metavar="DIR", help="A folder with the model's files.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a trace for Perfetto or Chrome.")
    ] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", help="Write the graph for Netron or Graphviz.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="[FILE]", help="Print the report as JSON, or write it to FILE.")
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=SIZE", help="A dynamic size: batch=4.")
    ] = None,
    inputs: Examples = None,
    dynamic: Dynamic = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Of a model: what to compile for. Of a package: which to measure.")
    ] = None,
    dtype: Dtype = None,
    settings: Settings = None,
    entry: Entry = None,
    threads: Threads = None,
    device: Device = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show what became of a model: one page with its graph, kernels, lines, fusions, memory and times."""
    from .compiler.bench.command import is_source, refuse
    from .compiler.explain.api import explain_package
    from .compiler.explain.command import Wanted, check_wanted, deliver, explaining
    from .runtime.execute import parse_sizes

    wanted = Wanted(out, open_page, trace, dot, json_file)
    check_wanted(wanted)
    about: dict[str, Any] = {
        "measure": measure, "against": against, "sizes": parse_sizes(sizes or []), "entry": entry, "threads": threads,
        "device": device, "sources": sources or [],
    }  # fmt: skip
    if is_source(file):
        from .compiler.options import CompileOptions

        options = CompileOptions.of(target=target or "cpu", dtype=dtype, options=settings, threads=threads)
        about["sources"] = [*about["sources"], Path(file.rpartition(":")[0] or file).absolute().parent]
        with (
            stdout_to_stderr(json_file == "-"),
            explaining(lambda: _load(file, inputs or []), options, dynamic, _progress(quiet)) as path,
        ):
            explanation = explain_package(path, **about)
    else:
        own = {"--input": inputs, "--dynamic": dynamic, "--dtype": dtype, "--set": settings}
        refuse(own, "a model, not for a package", "Name the model's source: mycc explain model.py.")
        explanation = explain_package(Path(file), target=target, **about)
    for line in deliver(explanation, wanted):
        print(line)


@app.command("doctor", cls=PlainCommand, **about("doctor"))
def doctor_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Say what this machine has of what mycc needs, and how to install the rest. Exit code 1: something is missing."""
    from .compiler.doctor import as_rows, doctor, doctor_text

    findings = doctor(cache_dir)
    if as_json:
        print_json({"findings": as_rows(findings)}, "doctor/1")
    else:
        print(doctor_text(findings))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


# -- cache ------------------------------------------------------------------------------------------------------------


@cache_app.command("info")
def cache_info_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Show where the cache is, what it holds and its size."""
    from .compiler.build.cache import info

    facts = info(cache_dir)
    if as_json:
        print_json({"path": facts.path, "entries": facts.entries, "bytes": facts.bytes}, "cache/1")
    else:
        print(f"{facts.path}: {facts.entries} objects, {facts.bytes / 1e6:.1f} MB")


@cache_app.command("clear")
def cache_clear_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Remove everything from the cache."""
    from .compiler.build.cache import clear

    removed = clear(cache_dir)
    if as_json:
        print_json({"removed": removed}, "cache/1")
    else:
        print(f"removed {removed} objects")


# -- shared -----------------------------------------------------------------------------------------------------------


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mycc {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()
