"""The processes of bench/gpu_check.py: started, stopped while others are timed, asked, ended."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_worker import Task

#: seconds that an answer may take, once a worker is ready
PATIENCE = 60
#: what torch's compilers keep: a folder for each worker, as they would write over each other's results
TORCH_CACHE = Path(tempfile.gettempdir()) / "gpu_check_inductor"


@dataclass(eq=False)
class Worker:
    """A process that measures a package or a peer.

    Attributes:
        figures: what it said when it became ready.
        times: (call_ms, time_ms) of each round.
        failure: why it gives no times, "" while nothing is wrong.
    """

    task: Task
    process: subprocess.Popen[str] | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    times: list[tuple[float, float]] = field(default_factory=list)
    failure: str = ""
    ready: bool = False

    @property
    def case(self) -> tuple[str, int]:
        return self.task.model, self.task.batch

    @property
    def label(self) -> str:
        return f"{self.task.model:<12} batch {self.task.batch:<3} {self.task.peer:<24}"

    @property
    def call_ms(self) -> float:
        return statistics.median(call for call, _ in self.times)

    @property
    def time_ms(self) -> float:
        return min(time for _, time in self.times)

    def start(self, program: str, environment: dict[str, str], gate: threading.Lock) -> None:
        """Starts the process when the gate is free, and waits until it is ready."""
        with gate:
            if self.failure:
                return
            self._open(program, environment)
        self.figures = self._answer()
        self.ready = not self.failure

    def _open(self, program: str, environment: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [sys.executable, program, json.dumps(asdict(self.task))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True,
            env={
                **environment, "CUDA_VISIBLE_DEVICES": str(self.task.gpu),
                "TORCHINDUCTOR_CACHE_DIR": str(TORCH_CACHE / re.sub(r"\W+", "-", self.label)),
            },
        )  # fmt: skip

    def ask(self, word: str) -> dict[str, Any]:
        """The answer to a word; nothing, and the worker has failed, when it gives none in time."""
        assert self.process
        assert self.process.stdin
        if not self.ready:
            return {}
        late = threading.Timer(PATIENCE, self.signal, (signal.SIGKILL,))
        late.start()
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            return self._answer()
        except BrokenPipeError:
            self._fail()
            return {}
        finally:
            late.cancel()

    def signal(self, number: int) -> None:
        """Sends it a signal, and all that it has started."""
        if self.process and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _answer(self) -> dict[str, Any]:
        assert self.process
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._fail()
        return {}

    def _fail(self) -> None:
        assert self.process
        self.ready = False
        self.errors.seek(0)
        self.failure = self.failure or self.errors.read()[-1500:].strip() or f"ended with {self.process.wait()}"


class Pending:
    """Workers that become ready, `jobs` at once."""

    def __init__(
        self, workers: list[Worker], pool: ThreadPoolExecutor, program: str, environment: dict[str, str]
    ) -> None:
        self.workers = workers
        self.gate = threading.Lock()
        self.futures = [pool.submit(worker.start, program, environment, self.gate) for worker in workers]

    def wait(self, seconds: float) -> None:
        wait(self.futures, max(0.0, seconds))

    @property
    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    @contextmanager
    def paused(self) -> Iterator[list[Worker]]:
        """The workers that are ready, while all others stand still."""
        with self.gate:
            ready = [worker for worker in self.workers if worker.ready]
            others = [worker for worker in self.workers if worker not in ready]
            for worker in others:
                worker.signal(signal.SIGSTOP)
            try:
                yield ready
            finally:
                for worker in others:
                    worker.signal(signal.SIGCONT)


@contextmanager
def launched(workers: list[Worker], jobs: int, program: str, environment: dict[str, str]) -> Iterator[Pending]:
    """All workers, starting; at the end none is left."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield Pending(workers, pool, program, environment)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                if not worker.ready and not worker.failure:
                    worker.failure = "was not ready in time"
            for worker in workers:
                worker.signal(signal.SIGKILL)
