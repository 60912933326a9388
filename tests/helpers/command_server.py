"""Runs `mycc` commands in processes of their own that are forked from one which has imported torch already.

As a program: reads JSON requests, a line each ({"args", "code", "cwd", "env"}), runs each in a forked child, and
answers {"code", "stdout", "stderr"}. CommandServer is its client. A command runs as `mycc ARGS` would: its own working
directory, environment, output and exit code; only the seconds of importing torch are saved.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SECONDS = 400  #: that a command may take; then a signal ends it


class CommandServer:
    """mycc commands, and Python code, in fresh processes with torch imported."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def mycc(
        self, *args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`mycc ARGS`."""
        return self._request(args=[str(arg) for arg in args], cwd=cwd, env=env)

    def python(
        self, code: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Python code; a negative return code is the signal that ended it."""
        return self._request(code=code, cwd=cwd, env=env)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _request(
        self,
        args: list[str] | None = None,
        code: str | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"args": args, "code": code, "cwd": os.fspath(cwd or Path.cwd()), "env": dict(env or {})}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(args or [], answer["code"], answer["stdout"], answer["stderr"])


def _serve() -> None:
    import mycc.compiler.pipeline  # noqa: F401  (and torch with it)

    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                _run(json.loads(line))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        print(json.dumps({"code": code, "stdout": texts[0], "stderr": texts[1]}), flush=True)


def _run(request: dict[str, object]) -> None:
    """Never returns."""
    import traceback

    status = 1
    try:
        os.environ.update(request["env"])  # type: ignore[arg-type]
        os.chdir(str(request["cwd"]))
        sys.path[0] = str(request["cwd"])
        if request["code"] is not None:
            exec(str(request["code"]), {"__name__": "__main__"})
            status = 0
        else:
            from mycc.cli import app

            sys.argv = ["mycc", *request["args"]]  # type: ignore[misc]
            app()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
