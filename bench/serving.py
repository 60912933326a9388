"""Throughput of many requests at once: simulated arrivals of texts of mixed lengths, against the step times' own bound.

    python bench/serving.py [--size 124m|1b] [--package FILE] [--requests 64] [--batch 16] [--rate PER_SECOND]
                            [--cache-tokens N] [--dtype bf16] [--target cpu] [--threads N] [--seed 0]

Prompts have 16 to 512 tokens and answers 16 to 128, both drawn evenly on a logarithmic scale; a quarter of the prompts
begin with the same 64 tokens. With --rate requests come by a Poisson process, else all at the beginning.

Before the timed run the model serves a quarter as many requests of another seed, so that it is warm like a running
service. Their prompts have other lengths.

Prints tokens a second, the time to the first token and between tokens (p50, p99), and the share of two bounds. Both
take every token of a prompt that is not found in the cache at the speed of a whole piece. The bound of the steps takes
each step at the time that one of as many texts takes alone; the bound of full steps takes every generated token at the
speed of a step of --batch texts, as if none came with fewer at the end. On a GPU a call ends when the device has chosen
the tokens, as in the run.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mycc
import numpy as np
from mycc.runtime.generation.scheduler import Scheduler

LENGTH, CHUNK = 704, 256
PROMPTS, ANSWERS, SHARED = (16, 512), (16, 128), 64


@dataclass
class Served:
    """A request: when it comes, and the times of its tokens, in seconds from the beginning."""

    comes: float
    text: Any
    times: list[float] = field(default_factory=list)


def make_package(options: argparse.Namespace, folder: Path) -> Path:
    """A Llama-like model with random weights, as in text_decode.py."""
    import torch
    from text_decode import SIZES
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(max_position_embeddings=LENGTH, **SIZES[options.size])
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[options.dtype]
    return mycc.compile_generation(
        LlamaForCausalLM(config).eval().to(dtype), out=folder / "served.pkg", max_length=LENGTH, chunk=CHUNK,
        max_batch=options.batch, cache_tokens=options.cache_tokens, verify=False, target=options.target,
    )  # fmt: skip


def load_of(model: Any, options: argparse.Namespace, requests: int, seed: int) -> list[Served]:
    """The requests in the order in which they come."""
    choose = random.Random(seed)
    words = range(4, model.generator.vocabulary)
    begin = [choose.choice(words) for _ in range(SHARED)]
    comes, made = 0.0, []
    for i in range(requests):
        length, answer = (round(math.exp(choose.uniform(*map(math.log, ends)))) for ends in (PROMPTS, ANSWERS))
        prompt = [choose.choice(words) for _ in range(length)]
        if i % 4 == 0:
            prompt = (begin + prompt)[: max(length, SHARED)]
        drawn = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p, "seed": i}
        given = model.generator.options({"max_new_tokens": answer, "ignore_eos": True, **drawn})
        made.append(Served(comes, model.generator.text(prompt, given)))
        comes += choose.expovariate(options.rate) if options.rate else 0.0
    return made


def serve(scheduler: Scheduler, load: list[Served]) -> tuple[float, list[int]]:
    """Runs a load; seconds from the first arrival to the last token, and of how many texts each step took a token."""
    left, running = list(load), {id(each.text): each for each in load}
    steps = []
    begin = time.perf_counter()
    while left or scheduler.busy:
        now = time.perf_counter() - begin
        if left and not scheduler.busy and left[0].comes > now:
            time.sleep(left[0].comes - now)
        while left and left[0].comes <= time.perf_counter() - begin:
            scheduler.add(left.pop(0).text)
        found = list(scheduler.step())
        now = time.perf_counter() - begin
        steps.append(sum(bool(running[id(text)].times) for text, _ in found))
        for text, chosen in found:
            if chosen is not None:
                running[id(text)].times.append(now)
    return time.perf_counter() - begin, [texts for texts in steps if texts]


def shortest(call: Callable[[], Any], runs: int = 7) -> float:
    """Median seconds of a call."""
    call()
    spent = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)


def call_of(model: Any, name: str, inputs: list[Any]) -> Callable[[], Any]:
    """A call of an entry point up to what the scheduler needs: tokens where the device chooses them, else logits."""
    entry, state = model.entry(name), model.new_state()
    if "argmax" not in model.entries:
        return lambda: entry(*inputs, state=state)
    choose, given = model.entry("argmax"), [model.to_device(each) for each in inputs]
    return lambda: choose(entry(*given, state=state)).numpy()


@dataclass
class Alone:
    """Seconds of calls that are measured alone: a token of a prompt in a whole piece, and a step, by its texts."""

    token: float
    step: dict[int, float]

    def bounds(self, load: list[Served], read: int, steps: list[int]) -> tuple[float, float]:
        """Seconds that the calls of a load take at best: with the steps that were run, and with full steps."""
        full = sum(len(each.times) - 1 for each in load) / max(self.step)
        prompts = read * self.token
        return prompts + sum(self.step[texts] for texts in steps), prompts + full * self.step[max(self.step)]


def measured_alone(model: Any, load: list[Served]) -> Alone:
    """The calls of a load, each alone."""
    task = model.manifest["task"]
    texts, columns = int(task["texts"]), -(-int(task["length"]) // int(task["block"]))
    table = np.arange(texts * columns).reshape(texts, columns) % (int(task["blocks"]) - 1) + 1
    mean = round(statistics.fmean(len(each.text.prompt) + len(each.times) / 2 for each in load))
    piece = int(task["chunk"])
    tokens, start = np.full((1, piece), 5), np.array([min(mean // 2, int(task["length"]) - piece)])
    of_token = shortest(call_of(model, "prefill", [tokens, start, table[:1]])) / piece
    ones, starts = np.full((texts, 1), 5), np.full(texts, mean)
    counts = range(1, texts + 1)
    return Alone(of_token, {n: shortest(call_of(model, "decode", [ones[:n], starts[:n], table[:n]])) for n in counts})


def quantiles(values: list[float]) -> str:
    p50, p99 = np.percentile(values, (50, 99)) * 1e3
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="124m")
    parser.add_argument("--package", type=Path)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--cache-tokens", type=int)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.package or make_package(options, Path(folder))
        model = mycc.load(path, threads=options.threads)
        load = load_of(model, options, options.requests, options.seed)
        serve(model.generator.new_engine(True), load_of(model, options, options.requests // 4, options.seed + 1))
        scheduler = model.generator.new_engine(True)
        assert isinstance(scheduler, Scheduler)
        spent, steps = serve(scheduler, load)
        counts = scheduler.counts()
        alone = measured_alone(model, load)
    made = sum(len(each.times) for each in load)
    between = [b - a for each in load for a, b in zip(each.times, each.times[1:], strict=False)]
    print(f"{options.requests} requests, {made} tokens in {spent:.2f} s: {made / spent:.1f} tokens/s")
    for name, best in zip(("the steps", "full steps"), alone.bounds(load, counts.read_tokens, steps), strict=True):
        print(f"bound of {name}: {made / best:.1f} tokens/s; reached: {best / spent:.2f} of it")
    print(
        f"  a token of a prompt {alone.token * 1e3:.3f} ms, a step of {scheduler.places} texts "
        f"{alone.step[scheduler.places] * 1e3:.2f} ms; {len(steps)} steps of {statistics.fmean(steps):.1f} texts"
    )
    print(f"time to the first token: {quantiles([each.times[0] - each.comes for each in load])}")
    print(f"time between tokens: {quantiles(between)}")
    print(
        f"tokens of prompts: {counts.read_tokens} read, {counts.reused_tokens} found; "
        f"preempted {counts.preempted} times; {counts.copied_blocks} blocks copied; {counts.calls} calls"
    )


if __name__ == "__main__":
    main()
