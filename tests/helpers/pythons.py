"""Other Pythons of this machine, each with numpy and without mycc."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

_SECONDS = 300.0  # for an environment, numpy's download included


def interpreter(version: str) -> str:
    """A Python of this version ("3.12") that has numpy; skips the test by name where there is none.

    MYCC_PYTHON_312 names one. Else numpy gets into an environment in the temporary folder, which stays there.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = _find(version)
    if found is None:
        pytest.skip(f"no Python {version} with numpy")
    return found


@cache
def _find(version: str) -> str | None:
    digits = version.replace(".", "")
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    candidates = [
        str(c) for c in (os.environ.get(f"MYCC_PYTHON_{digits}"), shutil.which(f"python{version}"), *installed) if c
    ]
    ready = next((python for python in candidates if _runs(python, "import numpy")), None)
    if ready is not None:
        return ready
    folder = Path(tempfile.gettempdir()) / f"mycc-test-python{digits}"
    with open(f"{folder}.lock", "w") as lock:  # another process of the tests may be making it
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next((made for python in candidates if (made := _environment(python, folder)) is not None), None)


def _environment(python: str, folder: Path) -> str | None:
    inside = folder / "bin" / "python"
    if _runs(str(inside), "import numpy"):
        return str(inside)
    install = [inside, "-m", "pip", "install", "-q", "--only-binary", ":all:", "numpy"]
    done = _runs(python, "import venv") and _done([python, "-m", "venv", "--clear", folder]) and _done(install)
    return str(inside) if done else None


def _runs(python: str, code: str) -> bool:
    return _done([python, "-c", code])


def _done(command: list[object]) -> bool:
    try:
        return (
            subprocess.run(
                [str(part) for part in command], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
