"""The parent's side of a worker: builds a peer in a process of its own, and asks it for timings.

A worker that is not asked is stopped (SIGSTOP, with all processes that it started): threads that spin or tidy up after
a run would take time from the one that is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import IO, Any

from ...runtime.measure import Timing

__all__ = ["BUILD_SECONDS", "PeerFailed", "Worker"]

BUILD_SECONDS = 900.0  # a peer that is not ready by then has failed
ENDING_SECONDS = 30.0  # a worker that has closed its pipe and has not ended by then is killed


class PeerFailed(Exception):
    """A peer cannot be measured; the text says why."""


class Worker:
    """One process of compiler/bench/worker.py. Use it in a with statement: it ends with it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.peer = str(job["peer"])
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = dict(
            os.environ, PYTHONWARNINGS="ignore", OMP_NUM_THREADS=str(job["threads"]), TOKENIZERS_PARALLELISM="false",
            TORCHINDUCTOR_CACHE_DIR=os.path.join(str(job["folder"]), "inductor"),
        )  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mycc.compiler.bench.worker"], env=environment, process_group=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        self._write(json.dumps(dict(job)))
        self._rest = b""

    def ready(self) -> float:
        """Waits until the peer is built and warm; the seconds of its build. Raises PeerFailed."""
        answer = self._answer(BUILD_SECONDS)
        self._pause()
        return float(answer["ready"])

    def turn(self, seconds: float) -> Timing:
        """The timing of runs for about so many seconds. Raises PeerFailed."""
        self._signal(signal.SIGCONT)
        self._write(str(seconds))
        answer = self._answer(60 + 20 * seconds)
        self._pause()
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            assert file is not None
            with contextlib.suppress(OSError):
                file.close()

    def _pause(self) -> None:
        """Returns when the worker stands still."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: int) -> None:
        """To the worker and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._ending()) from None

    def _answer(self, seconds: float) -> dict[str, Any]:
        line = self._line(seconds)
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailed(answer["failed"])
        return answer

    def _line(self, seconds: float) -> bytes:
        """The next line of the worker. Raises PeerFailed when there is none in time."""
        stream: IO[bytes] | None = self._process.stdout
        assert stream is not None
        end = monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, end - monotonic())):
                    raise PeerFailed(f"no answer in {seconds:.0f} s")
                part = os.read(stream.fileno(), 1 << 16)
                if not part:
                    raise PeerFailed(self._ending())
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ending(self) -> str:
        """Why the process is gone: the signal that ended it, or the last line that it printed."""
        try:
            code = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            code = self._process.wait()
        if code < 0:
            return f"ended by signal {signal.Signals(-code).name}"
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1][:300] if lines else f"ended with exit code {code}"
