"""Packages that change while they are loaded or run: what was checked is what runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime.errors import LoadError, RunError

from .conftest import Loaded
from .packages import WEIGHTS, Draft, data_ranges

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LARGE = np.zeros(1 << 20, np.float32)  # 4 MB: mapped from the file
LARGE[:4] = WEIGHTS


@pytest.fixture
def large(program: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "large.pkg"
    path.write_bytes(Draft(program, weights=LARGE, block=1 << 22).build())
    return path


def right(model: Loaded) -> bool:
    return np.array_equal(model("affine", X), 2 * X + WEIGHTS)


def mapped(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_large_weights_are_pages_of_the_file_unless_they_are_copied(library: Any, large: Path) -> None:
    model = Loaded(library.load_file(str(large), check_full=True))
    assert right(model)
    assert mapped(large) == 1
    copied = Loaded(library.load_file(str(large), check_full=True, copy=True))
    del model
    assert mapped(large) == 0
    assert right(copied)


@pytest.mark.parametrize("change", ["overwritten", "cut off"])
@pytest.mark.parametrize("kind", ["small", "copied"])
def test_a_change_of_the_file_does_not_reach_what_was_read(
    library: Any, package_file: Path, large: Path, tmp_path: Path, change: str, kind: str
) -> None:
    path = tmp_path / "changing.pkg"
    path.write_bytes((package_file if kind == "small" else large).read_bytes())
    model = Loaded(library.load_file(str(path), copy=kind == "copied"))
    with path.open("r+b") as file:
        if change == "overwritten":
            file.write(b"\xff" * path.stat().st_size)
        else:
            file.truncate(0)
    assert right(model)
    with pytest.raises(LoadError):
        library.load_file(str(path))


@pytest.mark.parametrize("change", ["overwritten", "cut off", "replaced"])
def test_a_call_whose_weights_are_pages_of_a_changed_file_is_refused(library: Any, large: Path, change: str) -> None:
    """Neither wrong numbers nor the death of the process; a file that is renamed over it changes nothing."""
    model = Loaded(library.load_file(str(large)))
    assert right(model)
    if change == "overwritten":
        with large.open("r+b") as file:
            file.write(b"\xff" * large.stat().st_size)
    elif change == "cut off":
        os.truncate(large, 1 << 16)
    else:
        other = large.with_name("other.pkg")
        other.write_bytes(bytes(large.stat().st_size))
        other.rename(large)
        assert right(model)
        return
    for _ in range(2):
        with pytest.raises(
            RunError, match=r"was written to, or cut off, after it was loaded[^\0]*Load the package again"
        ):
            model("affine", X)


def test_code_that_changes_under_way_is_refused_or_not_seen(library: Any, large: Path) -> None:
    """The bytes of the code change all the time while it is loaded; a load that succeeds has the right ones."""
    code = next(r for n, r in data_ranges(large.read_bytes()).items() if n.endswith("model.so"))
    stop, outcomes = threading.Event(), {True: 0, False: 0}

    def write() -> None:
        with large.open("r+b", buffering=0) as file:
            good = os.pread(file.fileno(), len(code), code.start)
            while not stop.is_set():
                for data in (bytes(len(code)), good):
                    os.pwrite(file.fileno(), data, code.start)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            try:
                model = Loaded(library.load_file(str(large), copy=True))  # else its calls are refused
            except LoadError:
                outcomes[False] += 1
            else:
                outcomes[True] += 1
                assert right(model)
    finally:
        stop.set()
        writer.join()
    assert outcomes[False]
    assert right(Loaded(library.load_file(str(large))))


def test_a_file_that_is_touched_while_it_is_loaded_is_refused(library: Any, large: Path) -> None:
    stop, seconds = threading.Event(), iter(range(10**9))

    def touch() -> None:
        while not stop.is_set():
            os.utime(large, (next(seconds), next(seconds)))

    toucher = threading.Thread(target=touch)
    toucher.start()
    try:
        with pytest.raises(LoadError, match="changed while it was loaded"):
            all(library.load_file(str(large)) for _ in range(500))
    finally:
        stop.set()
        toucher.join()


def test_a_package_in_memory_is_copied_when_asked(library: Any, package: bytes) -> None:
    memory = bytearray(package)
    model = Loaded(library.load_memory(memory, copy=True))
    memory[:] = bytes(len(memory))
    memory.clear()  # nobody holds it
    assert right(model)
