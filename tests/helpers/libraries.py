"""C++ of tests, compiled once for each text: by one worker for all of them, and again only after a change.

What was compiled lies in the cache of mycc's own builds (tests/conftest.py: where), under a key of all that it is made
of: the compiler, the command, the source, and the headers that it includes.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mycc.compiler.build.cache import Cache, encode_key
from mycc.compiler.build.includes import Headers

__all__ = ["compiled"]


def compiled(
    command: Sequence[str], source: str, headers: Mapping[str, str], into: Path, after: Sequence[str] = ()
) -> Path:
    """Compiles the source in a folder where the headers lie; gives `into`, the file that holds the result.

    command: the compiler and its flags, without the source and without -o; it finds the project's own headers by
    itself. headers: name -> text of those that are not the project's. after: words behind the source.

    Raises:
        AssertionError: the compiler's words, where it failed.
    """
    texts = {**headers, **Headers(headers).of(source)}
    parts = [("what", "library of a test 1"), ("compiler", _identity(command[0])), ("source", source)]
    parts += [("command", "\0".join((*command, "", *after))), *((f"header {name}", t) for name, t in texts.items())]
    key, cache = encode_key(parts), Cache()
    locks = Path(tempfile.gettempdir()) / f"mycc-test-locks-{os.getuid()}"
    locks.mkdir(exist_ok=True)
    with open(locks / hashlib.sha256(key).hexdigest()[:16], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
        if (made := cache.get(key)) is None:
            made = _compile(command, source, headers, after)
            cache.put(key, made)
    into.write_bytes(made)
    into.chmod(0o755)
    return into


def _compile(command: Sequence[str], source: str, headers: Mapping[str, str], after: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="mycc-test-") as name:
        folder = Path(name)
        for path, text in {**headers, "test.cpp": source}.items():
            (folder / path).write_text(text)
        words = [*command, "-I", ".", "test.cpp", "-o", "test.out", *after]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr[:4000]}"
        return (folder / "test.out").read_bytes()


@functools.cache
def _identity(compiler: str) -> str:
    """What the compiler says of itself, and which file it is."""
    path = Path(shutil.which(compiler) or compiler).resolve()
    said = subprocess.run([compiler, "-v"], capture_output=True, text=True, check=True).stderr
    return f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n{said}"
