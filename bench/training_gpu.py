"""Milliseconds of a training step on a GPU beside eager torch and torch.compile: in turns, medians.

    python bench/training_gpu.py [--models bert,gpt2,vit,resnet50,llama] [--batch 32] [--peers eager,reduce-overhead]

Models of bench/zoo.py, `dtype="bf16"` beside torch's autocast in bfloat16 on float32 parameters, AdamW (fused, compiled
with the step under torch.compile), cross entropy over the last dimension, text of 128 tokens. All models become ready
side by side, each in a process; then each is timed while the others wait. Every row begins with the losses of the first
steps of all, on the same data. A step is ten steps that the host does not wait for, divided by ten.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import mycc
import torch
import training
import zoo
from torch import nn

Run = Callable[[], torch.Tensor]

MODELS = "bert,gpt2,vit,resnet50,llama"
STEPS, TURNS, LOSSES = 10, 6, 4


def trained(name: str, batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model, with what gives its output no gradient frozen, its input and the target."""
    torch.manual_seed(0)
    model, (x,) = zoo.ZOO[name].build().train(), zoo.ZOO[name].inputs(batch)
    for parameter, values in model.named_parameters():
        values.requires_grad_("pooler" not in parameter)
    with torch.no_grad():
        shape = copy.deepcopy(model)(x).shape
    return model, x, torch.randint(0, shape[-1], shape[:-1])


def of_torch(model: nn.Module, x: torch.Tensor, target: torch.Tensor, mode: str) -> Run:
    """A step of torch. mode: eager, or a mode of torch.compile."""
    optimizer = training.optimizer_of(model, fused=True)

    def forward(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return training.loss_of(model(x), target)

    loss = forward if mode == "eager" else torch.compile(forward, mode=mode)
    update = optimizer.step if mode == "eager" else torch.compile(optimizer.step)

    def run() -> torch.Tensor:
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        found = loss(x, target)
        found.backward()
        update()
        return found

    return run


def runs_of(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Run]:
    model, x, target = trained(name, options.batch)
    path = folder / f"{name}.pkg"
    mycc.compile_training(
        model, (x,), targets=(target,), loss=training.loss_of, optimizer=training.optimizer_of(model), out=path,
        entries=["step"], dtype="bf16", target="cuda", verify=False,
    )  # fmt: skip
    x, target = x.cuda(), target.cuda()
    package = mycc.load(path)
    runs: dict[str, Run] = {"mycc": lambda: package.step(x, target)}
    for peer in filter(None, options.peers.split(",")):
        runs[peer] = of_torch(copy.deepcopy(model).cuda(), x, target, peer)
    return runs


def timed(runs: dict[str, Run]) -> dict[str, float]:
    """Median milliseconds of a step of each."""
    spent: dict[str, list[float]] = {label: [] for label in runs}
    for turn in range(TURNS):
        for label, run in runs.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(STEPS):
                run()
            torch.cuda.synchronize()
            if turn:
                spent[label].append(1e3 * (time.perf_counter() - begin) / STEPS)
    return {label: statistics.median(values) for label, values in spent.items()}


def measure(name: str, options: argparse.Namespace, folder: str, ready: Barrier) -> None:
    try:
        runs = runs_of(name, options, Path(folder))
        losses: dict[str, list[Any]] = {k: [round(float(r()), 4) for _ in range(LOSSES)] for k, r in runs.items()}
    except Exception as error:
        ready.wait()
        print(f"{name:10} failed: {error}", flush=True)
        return
    ready.wait()
    with open(Path(folder) / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = timed(runs)
    text = "  ".join(f"{label} {spent:8.2f} ms" for label, spent in found.items())
    best = min((spent for label, spent in found.items() if label != "mycc"), default=float("nan"))
    print(f"{name:10} losses {losses}\n{name:10} {text}  {best / found['mycc']:5.2f} x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--peers", default="eager,reduce-overhead", help="eager, or modes of torch.compile; '': none")
    options = parser.parse_args()
    names, context = options.models.split(","), multiprocessing.get_context("spawn")
    ready = context.Barrier(len(names))
    with tempfile.TemporaryDirectory(prefix="mycc-training-") as folder:
        workers = [context.Process(target=measure, args=(name, options, folder, ready)) for name in names]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
