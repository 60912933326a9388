"""The demonstration of `make demo`: two real models compiled, then run without torch, beside eager torch.

    python bench/demo.py [--models resnet50,bert] [--threads N] [--folder DIR]

Each package is loaded and run in a process in which torch cannot be imported; eager runs in one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

RUN_PACKAGE = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked here")
sys.meta_path.insert(0, NoTorch())
import json, time, numpy
start = time.perf_counter()
import mycc
model = mycc.load(sys.argv[1], threads=int(sys.argv[2]))
load = time.perf_counter() - start
x = numpy.load(sys.argv[3])
model(x)
times = []
while len(times) < 7 or sum(times) < 3 and len(times) < 100:
    start = time.perf_counter(); model(x); times.append(time.perf_counter() - start)
assert "torch" not in sys.modules
print(json.dumps({"load": load, "ms": sorted(times)[len(times) // 2] * 1e3}))
"""

RUN_EAGER = """
import importlib.util, json, sys, time, numpy, torch
torch.set_num_threads(int(sys.argv[2]))
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec); spec.loader.exec_module(example)
model, inputs = example.get_model(), example.get_example_inputs()
x = inputs[0][:1]
numpy.save(sys.argv[3], x.numpy())
times = []
with torch.inference_mode():
    model(x)
    while len(times) < 7 or sum(times) < 3 and len(times) < 100:
        start = time.perf_counter(); model(x); times.append(time.perf_counter() - start)
print(json.dumps({"ms": sorted(times)[len(times) // 2] * 1e3}))
"""


def measure(name: str, folder: Path, threads: int) -> dict[str, Any]:
    """Compiles an example through the command line, then times the package and eager; a row of the table."""
    package, example, sample = folder / f"{name}.pkg", EXAMPLES / f"{name}.py", folder / f"{name}.npy"
    subprocess.run([sys.executable, "-m", "mycc.cli", "compile", str(example), "--out", str(package)], check=True)
    eager = _json(RUN_EAGER, str(example), str(threads), str(sample))
    ours = _json(RUN_PACKAGE, str(package), str(threads), str(sample))
    facts = json.loads(_output([sys.executable, "-m", "mycc.cli", "inspect", str(package), "--json"]))
    check = facts["check"]
    return {
        "model": name,
        "megabytes": package.stat().st_size / 1e6,
        "kernels": sum(len(e["kernels"]) for e in facts["entry_points"]),
        "error": max(check["error"]),
        "eager_error": max(check["eager"]),
        "ms": ours["ms"],
        "eager_ms": eager["ms"],
        "load_ms": ours["load"] * 1e3,
    }


def _json(code: str, *args: str) -> dict[str, Any]:
    return json.loads(_output([sys.executable, "-c", code, *args]))  # type: ignore[no-any-return]


def _output(command: list[str]) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip().splitlines()[-1] if command[1] == "-c" else done.stdout


def table(rows: list[dict[str, Any]], threads: int) -> str:
    """The rows for a person."""
    lines = [f"batch 1, {threads} threads; packages ran without torch; errors against float64", ""]
    names = (("size MB", 9), ("kernels", 9), ("error", 10), ("eager", 10), ("time ms", 10), ("eager ms", 10))
    head = f"{'model':<10}" + "".join(f"{n:>{w}}" for n, w in (*names, ("faster", 8), ("load ms", 9)))
    lines += [head, "-" * len(head)]
    for r in rows:
        lines.append(
            f"{r['model']:<10}{r['megabytes']:>9.1f}{r['kernels']:>9}{r['error']:>10.1e}{r['eager_error']:>10.1e}"
            f"{r['ms']:>10.1f}{r['eager_ms']:>10.1f}{r['eager_ms'] / r['ms']:>7.2f}x{r['load_ms']:>9.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,bert")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--folder", type=Path, default=None, help="where packages are kept; a temporary folder by default"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [measure(name, folder, args.threads) for name in args.models.split(",")]
    print("\n" + table(rows, args.threads))


if __name__ == "__main__":
    main()
