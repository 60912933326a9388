"""Runs compilers as child processes, several at a time, none of which outlives a build that is given up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Processes", "kill_group"]


class Processes:
    """Child processes in one folder and one environment. Methods may be called by many threads."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """(exit code, standard output and error); a negative code is the signal that ended it, or the stop() before."""
        with self._lock:
            if self._stopped:
                return -signal.SIGTERM, ""
            # A group of its own: a compiler driver is killed together with what it runs.
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            self._running.add(process)
        try:
            output, _ = process.communicate()
        except BaseException:  # interrupted
            kill_group(process)
            process.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, output.decode(errors="replace")

    def stop(self) -> None:
        """Kills what runs and lets nothing more start."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                kill_group(process)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads a group, with all that it runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
