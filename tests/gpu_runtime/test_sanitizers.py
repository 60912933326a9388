"""The GPU runtime under the thread sanitizer, on the fake driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ..runtime.packages import ROOT
from .support import package

FLAGS = ["-std=c++17", "-O1", "-g", "-fPIC", "-fsanitize=thread", "-D_GNU_SOURCE", '-DMYCC_VERSION="0"']


@pytest.mark.slow
def test_many_callers_under_the_thread_sanitizer(no_driver: None, program: bytes, tmp_path: Path) -> None:
    here = Path(__file__).parent
    include = [f"-I{ROOT}/runtime", f"-I{ROOT}/runtime/include"]
    sources = sorted(path for path in (ROOT / "runtime" / "src").rglob("*.cpp") if path.name != "roof.cpp")
    stress, driver = tmp_path / "stress", tmp_path / "libcuda.so.1"
    shared = ["-shared", "-Wl,-soname,libcuda.so.1"]
    commands = [
        ["g++", *FLAGS, *include, str(here / "stress.cpp"), *map(str, sources), "-o", str(stress), "-lpthread", "-ldl"],
        ["g++", *FLAGS, *include, *shared, str(here / "fake_driver.cpp"), "-o", str(driver)],
    ]
    for command in commands:
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if "cannot find" in built.stderr:
            pytest.skip("this compiler has no thread sanitizer")
        assert built.returncode == 0, built.stderr
    path = tmp_path / "fake.pkg"
    path.write_bytes(package(program, "sm_90"))
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    ran = subprocess.run(
        ["setarch", "-R", str(stress), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert "data race" not in ran.stderr, ran.stderr[:4000]
    assert ran.stdout == "0 wrong\n", ran.stderr[:2000]
