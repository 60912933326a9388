"""`make dist`: the sources, the wheels of both architectures, and packages that run in fresh environments."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ..helpers.scripts import load_script

ROOT = Path(__file__).parents[2]


def load_dist_runtime() -> object:
    return load_script(ROOT / ".ci/dist_runtime.py")


def test_the_runtimes_wheel_has_no_compiler(tmp_path: Path) -> None:
    whole = tmp_path / "mycc_aot-1.0-cp311-cp311-linux_x86_64.whl"
    info = "mycc_aot-1.0.dist-info"
    metadata = (  # of a wheel of everything
        "Metadata-Version: 2.2\nName: mycc-aot\nVersion: 1.0\nRequires-Dist: numpy\nProvides-Extra: cli\n"
        'Requires-Dist: typer; extra == "cli"\nProvides-Extra: compiler\n'
        'Requires-Dist: torch>=2.11; extra == "compiler"\n'
    )
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in {
            "mycc/__init__.py": "x = 1\n", "mycc/compiler/api.py": "", "mycc/kernels/a.h": "",
            f"{info}/METADATA": metadata, f"{info}/WHEEL": "Wheel-Version: 1.0\n", f"{info}/RECORD": "stale",
            f"{info}/entry_points.txt": "[console_scripts]\n",
        }.items():  # fmt: skip
            archive.writestr(name, text)
    made = load_dist_runtime().without_compiler(whole, tmp_path)  # type: ignore[attr-defined]
    assert made.name == "mycc_aot_runtime-1.0-cp311-cp311-linux_x86_64.whl"
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path / "site"),
            str(made),
        ],
        check=True,
    )  # fmt: skip
    site = tmp_path / "site"
    assert sorted(p.name for p in (site / "mycc").iterdir() if p.suffix) == ["__init__.py"]
    assert not (site / "mycc/compiler").exists()
    text = (site / "mycc_aot_runtime-1.0.dist-info/METADATA").read_text()
    assert "Name: mycc-aot-runtime\n" in text
    assert "Requires-Dist: numpy\n" in text
    assert "typer" in text
    assert "torch" not in text


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_release_is_built_and_runs(tmp_path: Path) -> None:
    for name in ("ziglang", "auditwheel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}, of the extra dist")
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci/dist.py"), "--out", str(tmp_path), "--models", "mlp", "--no-isolation"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 5, names  # the sources, and two wheels for each architecture
    assert done.stdout.count("right on") >= 2


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / ".ci/man.py"), str(tmp_path)], check=True, capture_output=True)
    pages = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {"mycc.1", "mycc-compile.1", "mycc-run.1", "mycc-cache-clear.1"} <= set(pages)
    compile_page = pages["mycc-compile.1"]
    assert compile_page.startswith('.TH "MYCC-COMPILE" "1"')
    assert "\\fB\\-\\-out\\fR" in compile_page
    assert ".SH EXAMPLES" in compile_page
    for name, text in pages.items():
        for line in text.splitlines():
            assert re.match(r"\.(TH|SH|PP|TP|nf|fi)\b|[^.']|$", line), f"{name}: {line}"
