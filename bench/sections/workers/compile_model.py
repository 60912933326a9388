"""compile_model MODEL static|dynamic OUT CACHE [TARGETS DTYPE]: compiles a zoo model, and tells how long that took.

One JSON line: seconds (from the call of mycc.compile, the model built, to the file on disk), export (seconds inside
torch.export.export), stages, parameter_bytes (unique parameters that the graph reads), convolutions (of the graph).
"""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import Any

import torch
from zoo import ZOO

name, kind, out, cache, *device = sys.argv[1:]
model = ZOO[name].build()
args = ZOO[name].inputs(batch=1)

import mycc  # noqa: E402

in_export = 0.0
export = torch.export.export


def timed_export(*positional: Any, **named: Any) -> Any:
    global in_export
    begin = perf_counter()
    try:
        return export(*positional, **named)
    finally:
        in_export += perf_counter() - begin


torch.export.export = timed_export

start = perf_counter()
from mycc.compiler.observe import TimingObserver  # noqa: E402


class Facts(TimingObserver):
    """Keeps the captured graph too."""

    captured: Any = None

    def stage_finished(self, name: str, seconds: float, summary: str, value: object) -> None:
        super().stage_finished(name, seconds, summary, value)
        if name == "capture":
            self.captured = value


facts = Facts()
shapes = ZOO[name].dynamic_shapes() if kind == "dynamic" else None
options = dict(zip(("target", "dtype"), device, strict=False))
mycc.compile(model, args, out=out, dynamic_shapes=shapes, cache_dir=cache, progress=facts, **options)
seconds = perf_counter() - start

parameters = {p.data_ptr(): p.nbytes for p in model.parameters()}
read, convolutions = set(), 0
for graph in facts.captured:
    read |= {graph.constants[n.target].data_ptr() for n in graph.module.graph.nodes if n.op == "get_attr"}
    targets = [str(n.target) for n in graph.module.graph.nodes if n.op == "call_function"]
    convolutions += sum("conv" in target for target in targets)
print(
    json.dumps(
        {
            "seconds": seconds,
            "export": in_export,
            "stages": {stage.name: stage.seconds for stage in facts.stages},
            "parameter_bytes": sum(size for pointer, size in parameters.items() if pointer in read),
            "convolutions": convolutions,
        }
    )
)
