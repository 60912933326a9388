"""What a second core gives: one call with two threads, and two callers with one thread each."""

from __future__ import annotations

from collections.abc import Iterator

from .common import Figure, Settings, worker

THREADS, CALLERS = 1.85, 1.9
LONG_MS = 50.0  # the goal of two threads is for models that take longer


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        facts = worker("scale_model", settings.package(model), settings.seconds, settings.turns)
        one, two, callers = facts["one"], facts["two"], facts["callers"]
        note = f"{1e3 * one:.4g} ms with one thread, {1e3 * two:.4g} ms with two"
        yield _figure(f"{model}, 2 threads over 1", facts["threads"], THREADS, note, goal=1e3 * one > LONG_MS)
        note = f"a call takes {1e3 * callers:.4g} ms beside another, {1e3 * one:.4g} ms alone"
        yield _figure(f"{model}, 2 callers over 1", facts["together"], CALLERS, note)


def _figure(name: str, value: float, limit: float, note: str, goal: bool = True) -> Figure:
    if not goal:
        return Figure("scaling", name, value, note=note)
    return Figure("scaling", name, value, "", f">= {limit}", value >= limit, note)
