"""Milliseconds of a training step beside eager torch and torch.compile: interleaved, medians, one process.

    python bench/training.py [--models mlp,resnet,bert,gpt2] [--threads 1,2] [--batch 8] [--rounds 15] [--kernels 20]

Float32, AdamW. Eager has the fused optimizer; torch.compile compiles model and loss, and the update. `--models` takes
the names of training_models.py, and `zoo.` with those of zoo.py. The last column is the best peer's time over mycc's;
the loss is the cross entropy over the last dimension.
`--kernels N` prints the N slowest kernels of the package: share of the step, GB/s, and the time over that of copying as
many bytes here, which says how far a kernel without products is from its floor.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import torch
from mycc.runtime.formula import evaluate
from torch import nn
from torch.nn import functional as F
from training_models import built
from turns import timed

Run = Callable[[], Any]


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def optimizer_of(model: nn.Module, **how: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, **how)


def torch_step(model: nn.Module, x: torch.Tensor, target: torch.Tensor, compiled: bool) -> Run:
    optimizer = optimizer_of(model, fused=True)

    def forward(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return loss_of(model(x), target)

    loss = torch.compile(forward) if compiled else forward
    update = torch.compile(optimizer.step) if compiled else optimizer.step

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        found = loss(x, target)
        found.backward()
        update()
        return found.item()

    return run


def copying() -> float:
    """Bytes a nanosecond that a copy of 64 MB reads and writes."""
    source, target = np.ones(1 << 24, np.float32), np.zeros(1 << 24, np.float32)
    spent = []
    for _ in range(9):
        begin = time.perf_counter_ns()
        np.copyto(target, source)
        spent.append(time.perf_counter_ns() - begin)
    return 2 * source.nbytes / statistics.median(spent)


def print_kernels(package: Any, x: torch.Tensor, target: torch.Tensor, count: int) -> None:
    entry = package.entry("step")
    times = entry.profile([x.numpy(), target.numpy(), *package._defaults.values()], 5)
    (row,) = (row for row in package.manifest["entry_points"] if row["name"] == "step")
    speed, whole = copying(), sum(times)
    rows = sorted(zip(times, row["kernels"], strict=True), key=lambda pair: -pair[0])
    for spent, kernel in rows[:count]:
        moved, flops = (float(evaluate(kernel.get(key, 0), {})) for key in ("bytes", "flops"))
        floor = f"{spent * speed / moved:5.1f} x a copy" if moved else ""
        figures = f"{100 * spent / whole:5.1f} %  {moved / spent:6.1f} GB/s  {flops / spent:6.1f} GFLOP/s  {floor}"
        print(f"    {spent / 1e6:8.3f} ms  {figures}  {kernel['name']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,resnet,bert,gpt2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kernels", type=int, default=0, metavar="N")
    parser.add_argument("--peers", default="eager,compile", help="none: mycc alone")
    options = parser.parse_args()
    peers = [name for name in ("eager", "compile") if name in options.peers.split(",")]
    for name in options.models.split(","):
        model, x = built(name, options.batch)
        with torch.no_grad():
            shape = copy.deepcopy(model)(x).shape
        target = torch.randint(0, shape[-1], shape[:-1])
        with tempfile.TemporaryDirectory(prefix="mycc-training-") as folder:
            path = Path(folder) / f"{name}.pkg"
            mycc.compile_training(
                model, (x,), targets=(target,), loss=loss_of, optimizer=optimizer_of(model), out=path,
                entries=["step"], verify=False,
            )  # fmt: skip
            for threads in map(int, options.threads.split(",")):
                torch.set_num_threads(threads)
                package = mycc.load(path, threads=threads)
                arrays = (x.numpy(), target.numpy())
                runs: dict[str, Run] = {"mycc": lambda package=package, arrays=arrays: package.step(*arrays)}
                for peer in peers:
                    torch._dynamo.reset()
                    runs[peer] = torch_step(copy.deepcopy(model), x, target, peer == "compile")
                found = timed(runs, options.rounds)
                text = "  ".join(f"{label} {spent:9.2f} ms" for label, spent in found.items())
                best = min((found[peer] for peer in peers), default=float("nan"))
                print(f"{name:10} {threads} threads  {text}  {best / found['mycc']:5.2f} x", flush=True)
                if options.kernels:
                    print_kernels(package, x, target, options.kernels)


if __name__ == "__main__":
    main()
