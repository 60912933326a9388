"""How fast models run at batch 1 beside eager torch and the other peers, and how near the core's own limit.

Every peer is a process of its own; they run in turns (A B C A B C ...), never two at once, and medians are compared.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

from .common import BENCH, WORKERS, Figure, Settings, build_c, median

MODULES = {"aoti": "torch", "ort": "onnxruntime", "openvino": "openvino"}
ONNX = ("ort", "openvino")  # these read what torch.onnx.export writes


def run(settings: Settings) -> Iterator[Figure]:
    peers = []
    for peer in settings.peers:
        missing = _missing(peer)
        if missing:
            yield Figure("speed", f"{peer}", None, note=f"skipped: {missing} is not installed")
        else:
            peers.append(peer)
    for threads in settings.threads:
        roof = fma_roof(settings, threads)
        yield Figure("speed", f"FMA roof, {threads} threads", roof, "GFLOP/s")
        for model in settings.models:
            yield _model(settings, model, threads, peers, roof)


def _missing(peer: str) -> str:
    needed = [MODULES[peer], *(("onnx", "onnxscript") if peer in ONNX else ())]
    return next((name for name in needed if importlib.util.find_spec(name) is None), "")


def fma_roof(settings: Settings, threads: int) -> float:
    """Measured fused multiply-adds of all threads together, in GFLOP/s."""
    program = settings.folder / "fma_roof"
    if not program.exists():
        build_c(WORKERS / "fma_roof.c", program, "-march=native", "-pthread")
    done = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _model(settings: Settings, model: str, threads: int, peers: list[str], roof: float) -> Figure:
    settings.package(model)
    servers = [_Server(settings, model, peer, threads) for peer in ("mycc", "eager", *peers)]
    failed = [server for server in servers if not server.start()]
    alive = [server for server in servers if server not in failed]
    try:
        for _ in range(settings.turns):
            for server in alive:
                server.turn(settings.seconds)
    finally:
        for server in servers:
            server.stop()
    times = {server.peer: median(server.times) * 1e3 for server in alive}
    if "mycc" not in times or "eager" not in times:
        return Figure("speed", f"{model}, {threads} threads", None, note=servers[0].error or servers[1].error)
    best = min((peer for peer in times if peer != "mycc"), key=times.__getitem__)
    ratio = times[best] / times["mycc"]
    percent = 100 * _gigaflops(settings, model) / (times["mycc"] / 1e3) / roof
    note = f"mycc {times['mycc']:.4g} ms, {percent:.0f} % of the roof"
    note += "".join(f"; {server.peer} failed: {server.error}" for server in failed)
    others = {f"{name} ms": value for name, value in times.items() if name != "mycc"}
    goal = 1.05 if peers else 1.0
    name = f"{model}, {threads} threads, {best} / mycc"
    return Figure("speed", name, ratio, "", f">= {goal}", ratio >= goal, note, others)


def _gigaflops(settings: Settings, model: str) -> float:
    from mycc.runtime.formula import evaluate
    from mycc.runtime.inspect import inspect_package

    (entry,) = inspect_package(settings.package(model))["entry_points"]
    rows = [row for row in entry["kernels"] if row["kind"] in ("gemm", "conv", "attention")]
    return sum(evaluate(row["flops"], {}) for row in rows) / 1e9


class _Server:
    """A process of workers/serve_model.py."""

    def __init__(self, settings: Settings, model: str, peer: str, threads: int) -> None:
        self.settings, self.peer = settings, peer
        self.times: list[float] = []
        self.error = ""
        command = [sys.executable, WORKERS / "serve_model.py", model, peer, threads, settings.folder]
        environment = dict(os.environ, PYTHONPATH=str(BENCH), PYTHONWARNINGS="ignore", OMP_NUM_THREADS=str(threads))
        self._log = open(settings.folder / f"{model}-{peer}.log", "w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(part) for part in command], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip

    def start(self) -> bool:
        """Waits until the model is loaded and warm; False when that failed."""
        try:
            self._answer()
        except (ValueError, BrokenPipeError):
            self._log.seek(0)
            lines = self._log.read().strip().splitlines()
            self.error = lines[-1][:200] if lines else "no answer"
            return False
        return True

    def turn(self, seconds: float) -> None:
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        print(seconds, file=stdin, flush=True)
        self.times.append(self._answer()["median"])

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]
