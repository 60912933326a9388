"""`mycc run FILE --prompt TEXT`: streams to the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..loader import load
from ..text import printable

__all__ = ["run_audio", "run_prompt"]


def run_prompt(
    file: Path,
    prompt: str,
    chat: bool,
    options: Mapping[str, Any],
    threads: int | None,
    target: str | None,
    device: str | None,
    quiet: bool = False,
    draft: str | None = None,
) -> dict[str, Any]:
    """Prints the text that follows a prompt as it comes, and how fast it came to standard error.

    quiet: nothing is printed. draft: "lookup", or the path of a package that guesses tokens.

    Returns:
        `text`, `prompt_tokens`, `tokens` (how many were generated), `finish_reason`, and `seconds` to the first token
        and in all.
    """
    model = load(os.fspath(file), threads, target, device=device)
    text = sys.stdin.read() if prompt == "-" else prompt
    guesses = load(draft, threads, target, device=device) if draft not in (None, "lookup") else draft
    if chat:
        stream = model.chat([{"role": "user", "content": text}], draft=guesses, **options)
    else:
        stream = model.generate(text, draft=guesses, **options)
    if not quiet and not chat:
        print(printable(text), end="", flush=True)
    pieces: list[str] = []
    first = 0.0
    start = time.perf_counter()  # modules and the tokenizer are loaded by now
    for piece in stream:
        first = first or time.perf_counter() - start
        pieces.append(piece)
        if not quiet:
            print(printable(piece), end="", flush=True)
    whole, count = time.perf_counter() - start, len(stream.tokens)
    known = stream.statistics
    if not quiet:
        print()
        rate = f", {(count - 1) / (whole - first):.1f} tokens/s" if count > 1 and whole > first else ""
        print(
            f"{len(stream.prompt_tokens)} tokens read, the first after {1e3 * first:.0f} ms; {count} generated{rate} "
            f"({stream.finish_reason})",
            file=sys.stderr,
        )
        if draft is not None:
            part = f"{known['accepted']} of {known['drafted']} guesses held ({100 * known['rate']:.0f} %)"
            print(f"{part}, {known['checks']} calls checked them", file=sys.stderr)
    return {
        "text": "".join(pieces), "prompt_tokens": len(stream.prompt_tokens), "tokens": count,
        "finish_reason": stream.finish_reason, "seconds": {"first": first, "all": whole},
        **({"draft": {name: known[name] for name in ("drafted", "accepted", "checks")}} if draft is not None else {}),
    }  # fmt: skip


def run_audio(
    file: Path,
    audio: Path,
    language: str | None,
    options: Mapping[str, Any],
    threads: int | None,
    target: str | None,
    device: str | None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Prints the text of a WAV file as it comes. quiet: nothing is printed.

    Returns:
        `text`, `language`, `tokens` (how many were generated), `finish_reason`, `seconds`.
    """
    model = load(os.fspath(file), threads, target, device=device)
    start = time.perf_counter()
    stream = model.transcribe(audio, language, **options)
    pieces: list[str] = []
    for piece in stream:
        pieces.append(piece)
        if not quiet:
            print(printable(piece), end="", flush=True)
    if not quiet:
        print()
    return {
        "text": "".join(pieces), "language": stream.language, "tokens": len(stream.tokens),
        "finish_reason": stream.finish_reason, "seconds": time.perf_counter() - start,
    }  # fmt: skip
