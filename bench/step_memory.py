"""Memory of a training step beside eager torch: what is allocated beyond parameters, moments and inputs.

    python bench/step_memory.py [--models mlp,resnet50,bert] [--batch 8] [--largest 10]

Float32, AdamW, one process each. torch: the largest sum of the allocator's bytes within a step (forward, backward and
update) above what was there before it, with gradients set to None at its end; memory that oneDNN takes by itself is not
seen. mycc: the arena of the step, which is planned when it is compiled; no C++ compiler runs. `--largest N` prints the
largest buffers that live where most bytes do, with the kernels from which and up to which they are needed.
`--models` takes the names of training_models.py and zoo.py; text has 4 rows of 128 tokens.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
from multiprocessing.connection import Connection

import torch
import training
from mycc.compiler.capture.state import share_state
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower, shared_layouts
from mycc.compiler.model.operators.kept import kept_for
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.training.request import capture_training, training_request
from torch.profiler import ProfilerActivity, profile
from training_models import built

MODELS = "mlp,resnet,bert,gpt2,resnet50,mobilenetv2,vit,llama"


def inputs_of(name: str, batch: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The model, its input and the target."""
    model, x = built(name, batch)
    with torch.no_grad():
        shape = copy.deepcopy(model)(x).shape
    return model, x, torch.randint(0, shape[-1], shape[:-1])


def of_torch(name: str, batch: int) -> int:
    """Bytes of a step in eager torch."""
    model, x, target = inputs_of(name, batch)
    optimizer = training.optimizer_of(model, fused=True)

    def step() -> None:
        training.loss_of(model(x), target).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # which makes the moments
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        step()
    events = found.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def of_mycc(name: str, batch: int) -> Schedule:
    """The schedule of the step."""
    model, x, target = inputs_of(name, batch)
    request = training_request(
        model, (x,), {}, targets=(target,), loss=training.loss_of, optimizer=training.optimizer_of(model),
        entries=["step"],
    )  # fmt: skip
    graphs = [run_graph_passes(g, kept=kept_for(["cpu"])) for g in share_state(capture_training(request))]
    (entry,) = (lower(g, s, "cpu") for g, s in zip(graphs, shared_layouts(graphs, "cpu"), strict=True))
    return schedule(entry.program)


def largest(found: Schedule, count: int) -> list[str]:
    """Lines on the buffers that live at the kernel where most bytes do."""
    spans = [(t.bytes.constant or 0, t.first, t.last, t.buffer.name) for t in found.memory.lifetimes]
    live = [sum(size for size, first, last, _ in spans if first <= i <= last) for i in range(len(found.names))]
    peak = live.index(max(live))
    lines = [f"    at kernel {peak} of {len(live)}, {found.names[peak]}: {live[peak] / 1e6:.1f} MB"]
    there = sorted((s for s in spans if s[1] <= peak <= s[2]), reverse=True)[:count]
    for size, first, last, name in there:
        lines.append(
            f"    {size / 1e6:8.2f} MB  {name}  from {first} {found.names[first]} to {last} {found.names[last]}"
        )
    return lines


def compared(name: str, batch: int, count: int) -> str:
    eager, own = of_torch(name, batch), of_mycc(name, batch)
    text = f"{name:12} torch {eager / 1e6:9.1f} MB   mycc {own.memory.arena / 1e6:9.1f} MB   "
    text += f"{own.memory.arena / eager:5.2f}   live {own.memory.live / 1e6:9.1f} MB"
    return "\n".join([text, *(largest(own, count) if count else ())])


def _child(answers: Connection, *args: object) -> None:
    answers.send(compared(*args))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--largest", type=int, default=0, metavar="N")
    options = parser.parse_args()
    for name in options.models.split(","):
        answers, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("spawn").Process(
            target=_child, args=(theirs, name, options.batch, options.largest)
        )
        child.start()
        theirs.close()
        try:
            print(answers.recv(), flush=True)
        except EOFError:
            print(f"{name}: the process ended without an answer", flush=True)
        child.join()


if __name__ == "__main__":
    main()
