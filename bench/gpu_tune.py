"""Tunes models of the zoo on the GPU of this machine, each kernel in the whole graph: tiles in the form that ships.

    python bench/gpu_tune.py OUT [--cases bert:1,bert:32,...] [--dtype bf16]

OUT gets a lock file for each model and batch (as `mycc compile --tune` writes it) and tiles.json: the tile of every
matrix kernel, as rows of compiler/schedule/gpu/tiles_sm90.json. Kernels are compiled side by side, while one model
at a time is measured. Needs torch and triton, and mycc importable.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: what a row says beside the shape; times are those of the whole graph
NOT_KEYS = ("tile", "run_us", "plain_run_us")
CASES = "bert:32,llama:32,resnet50:32,vit:32,resnet50:1,bert:1,llama:1,vit:1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) // 4), help="compilers of each case")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker:
        tune(options.worker, options)
        return 0
    command = [sys.executable, __file__, str(options.out), "--dtype", options.dtype, "--jobs", str(options.jobs)]
    command += ["--sequence", str(options.sequence), "--target", options.target]
    workers = {c: subprocess.Popen([*command, "--worker", c]) for c in options.cases.split(",")}
    failed = [case for case, worker in workers.items() if worker.wait()]
    rows: dict[str, dict[str, Any]] = {}
    for case in workers:
        path = options.out / f"{case.replace(':', '-')}.rows.json"
        for row in json.loads(path.read_text()) if path.exists() else ():
            rows[json.dumps({k: v for k, v in row.items() if k not in NOT_KEYS})] = row
    text = ",\n".join(json.dumps(row) for row in rows.values())
    (options.out / "tiles.json").write_text(f'{{"rows": [\n{text}\n]}}\n')
    print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    return len(failed)


def tune(case: str, options: argparse.Namespace) -> None:
    """One model and batch."""
    sys.path.insert(0, str(HERE))
    from mycc.compiler import pipeline
    from mycc.compiler.build.compile import BuildOptions
    from mycc.compiler.capture.export import CaptureRequest, capture_request
    from mycc.compiler.capture.precision import in_dtype
    from mycc.compiler.graph.passes import run_graph_passes
    from mycc.compiler.lower import lower
    from mycc.compiler.machine.gpu import device_for
    from mycc.compiler.machine.targets import CUDA_TARGETS
    from mycc.compiler.schedule.schedule import DEFAULTS
    from mycc.compiler.tune.search import gpu_search
    from mycc.compiler.tune.search.lock import write_lock
    from mycc.compiler.weights.collect import collect_weights
    from zoo import ZOO

    target = next(t for t in CUDA_TARGETS if t.name == options.target)
    name, _, batch = case.partition(":")
    model = ZOO[name]
    inputs = tuple(model.inputs(int(batch), options.sequence))
    (request,) = in_dtype([CaptureRequest(model.build(), inputs, {}, None)], options.dtype)
    graph = capture_request(request)
    lowered = lower(run_graph_passes(graph), None, "cuda")
    planned = pipeline.schedule(lowered.program, DEFAULTS, device_for(target))
    gpu_search.Gpu = _alone(gpu_search.Gpu)  # type: ignore[misc]
    settings = BuildOptions(options.jobs, options.out / "cache", version="bench")
    device = device_for(target)
    lock = gpu_search.search_gpu([graph], [planned], collect_weights((), [lowered]), target, device, settings)
    stem = case.replace(":", "-")
    write_lock(lock, options.out / f"{stem}.lock")
    rows = list(database_rows([planned], lock.targets[target.name], device))
    (options.out / f"{stem}.rows.json").write_text(json.dumps(rows))
    before, after = lock.run_us["cost_model"], lock.run_us["chosen"]
    print(f"{case}: {before:.1f} us, tuned {after:.1f} us, {100 * after / before:.1f} %", flush=True)
    for row in rows:
        sizes = " ".join(f"{k}={v}" for k, v in row.items() if k not in NOT_KEYS)
        print(f"   {sizes}: {row['plain_run_us']:.1f} -> {row['run_us']:.1f}  {row['tile']}", flush=True)


def _alone(gpu: Any) -> Any:
    """The GPU's class, held by one process at a time."""

    class Alone(gpu):  # type: ignore[misc]
        def __init__(self) -> None:
            self.lock = open(Path(tempfile.gettempdir()) / "gpu_check.lock", "w")  # noqa: SIM115
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            super().__init__()

        def close(self) -> None:
            super().close()
            self.lock.close()

    return Alone


def database_rows(schedules: Any, locked: Any, device: Any) -> Any:
    """Rows of the database of tiles: what was chosen for each kernel, and the time of the graph with it."""
    from mycc.compiler.schedule.gpu.measured import database_key
    from mycc.compiler.tune.choices.keys import kernel_key
    from mycc.compiler.tune.search.gpu_space import choice_of, tile_of

    seen = set()
    for schedule in schedules:
        for node in schedule.program.nodes:
            key = kernel_key(node)
            row = locked.get(key)
            computed = getattr(node, "prologue", None) is not None  # the database has products of what lies in memory
            if key in seen or row is None or len(row.tried) < 2 or computed:
                continue
            seen.add(key)
            chosen = tile_of(key, row.choice) or chosen_by_model(node, device)
            plain = row.tried[0].us
            us = next((t.us for t in row.tried if t.choice == row.choice), plain)
            tile = choice_of(chosen).as_dict()
            yield {**database_key(node), "tile": tile, "run_us": round(us, 2), "plain_run_us": round(plain, 2)}


def chosen_by_model(node: Any, device: Any) -> Any:
    """The tile without a lock."""
    from mycc.compiler.schedule.gpu.product_plans import chosen_tile

    return chosen_tile(node, device)


if __name__ == "__main__":
    raise SystemExit(main())
