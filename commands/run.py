"""`mycc run` and `mycc serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..runtime.errors import InputError
from .arguments import Device, Entry, Json, Package, Sizes, Target, Threads, Verbose, out_option
from .console import print_json, print_rich

__all__ = ["run_command", "serve_command"]


def run_command(
    file: Package,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", metavar="FILE", help="One .npz, or .npy files in order. Default: random."),
    ] = None,
    out: Annotated[Path | None, out_option("Write the outputs to this .npz.")] = None,
    sizes: Sizes = None,
    seed: Annotated[
        int, typer.Option("--seed", help="The seed of the random inputs, or of the tokens that are drawn.")
    ] = 0,
    entry: Entry = None,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="A text to continue; - reads standard input."),
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option("--image", metavar="FILE", help="With --prompt: an image for the model to see.")
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option("--draft", metavar="FILE", help="With --prompt: a small package that guesses tokens, or lookup."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option("--audio", metavar="FILE", help="A WAV file; a package for speech writes down what is said."),
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="With --audio: the language that is spoken. Default: found out.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message to answer.")] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", help="How many tokens to generate at most.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="0: always the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Draw from the likeliest that add up to p.")] = None,
    min_p: Annotated[
        float | None, typer.Option("--min-p", help="Draw from those at least p times as likely as the likeliest.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", help="Above 1: what was said becomes less likely.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the text.")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="The model's end tokens do not end it.")] = False,
    json_schema: Annotated[
        str | None, typer.Option("--json-schema", metavar="JSON", help="The text is JSON by this schema.")
    ] = None,
    grammar: Annotated[
        str | None, typer.Option("--grammar", metavar="LARK", help="The text is one of this grammar.")
    ] = None,
    regex: Annotated[str | None, typer.Option("--regex", help="The whole text matches this expression.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a package on inputs from files or on random ones, or a package for text on a prompt."""
    of_text = {
        "--image": image, "--draft": draft, "--chat": chat, "--temperature": temperature, "--top-k": top_k,
        "--top-p": top_p, "--min-p": min_p, "--repetition-penalty": repetition_penalty, "--stop": stop,
        "--ignore-eos": ignore_eos, "--json-schema": json_schema, "--grammar": grammar, "--regex": regex,
    }  # fmt: skip
    of_speech = {"--audio": audio, "--language": language}
    of_arrays = {"--input": inputs, "--out": out, "--size": sizes, "--entry": entry}
    if prompt is not None:
        _refuse("--prompt", **of_speech, **of_arrays)
    elif audio is not None:
        _refuse("--audio", **of_text, **of_arrays)
    else:
        _refuse(None, **of_text, **of_speech, **{"--max-new-tokens": max_new_tokens})
    if prompt is not None:
        from ..runtime.generation.command import run_prompt

        options = {
            "max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
            "min_p": min_p, "repetition_penalty": repetition_penalty, "stop": stop or None, "seed": seed,
            "ignore_eos": ignore_eos or None, "json_schema": json_schema, "grammar": grammar, "regex": regex,
            **({"images": [os.fspath(path) for path in image]} if image else {}),
        }  # fmt: skip
        facts = run_prompt(file, prompt, chat, options, threads, target, device, quiet=as_json, draft=draft)
        if as_json:
            print_json(facts, "run/1")
        return
    if audio is not None:
        from ..runtime.generation.command import run_audio

        facts = run_audio(file, audio, language, {"max_new_tokens": max_new_tokens}, threads, target, device, as_json)
        if as_json:
            print_json(facts, "run/1")
        return
    from ..runtime.execute import parse_sizes, run_package

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
        from ..runtime.render import render_run

        print_rich(render_run(result))


def _refuse(chosen: str | None, **given: Any) -> None:
    """Raises InputError for an option that has a value, and would say nothing of what is run."""
    for name, value in given.items():
        if value not in (None, False, []):
            needed = "needs --audio" if name == "--language" else "needs --prompt"
            raise InputError(f"{name} {needed if chosen is None else f'does not go with {chosen}'}")


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


def serve_command(
    file: Package,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to listen at.")] = 8000,
    name: Annotated[str | None, typer.Option("--name", help="The model's name for clients. Default: FILE's.")] = None,
    waiting: Annotated[
        int, typer.Option("--waiting", help="How many texts may wait; others are told to come again.")
    ] = 256,
    threads: Threads = None,
    target: Target = None,
    device: Device = None,
    verbose: Verbose = False,
) -> None:
    """Answer OpenAI's HTTP requests with a package for text, or for vectors of texts."""
    from ..runtime.loader import load
    from ..runtime.serve.app import serve

    model = load(os.fspath(file), threads, target, device=device)
    serve(model, name or file.stem, host, port, waiting)
