"""Writes requirements-hashed.txt: the SHA-256 of the wheels of every version in constraints.txt, for `make HASHED=1`.

    python .ci/hashes.py            # asks the package index through pip; a few minutes

Run it after each change of constraints.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX = "https://pypi.org/simple"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (31, 28, 27, 24, 17, 12, 5)] + [
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64",
]  # fmt: skip
HEAD = """\
# Hashes of the wheels of constraints.txt, for CPython {pythons} on x86-64 Linux: `make venv HASHED=1` installs by them.
# .ci/hashes.py writes this file.
#
# torch is not here. Its wheels have one version and several sources: {index} has the build for CUDA,
# download.pytorch.org those for the CPU, for each version of CUDA and for ROCm, all of other bytes, and which one is
# right depends on the machine and on the index that pip is told to use. A hash of one of them would forbid the others.
# To pin yours, hash it once (`pip download --no-deps torch==...`, `pip hash torch-*.whl`) and set
# TORCH="torch==... --hash=sha256:..." for make. HASHED=1 is for the builds for the CPU: the libraries that the build
# for CUDA asks for are not pinned.
"""


def report(python: str, requirements: list[str], folder: str) -> list[dict[str, dict[str, object]]]:
    """What pip would install for an interpreter: name, version and hash of each wheel."""
    out = Path(folder) / f"{python}.json"
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet",
        "--index-url", INDEX, "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms,
        "--target", folder, "--report", str(out), *requirements,
    ]  # fmt: skip
    settings = {key: value for key, value in os.environ.items() if not key.startswith("PIP_") or key == "PIP_CERT"}
    subprocess.run(command, check=True, env={**settings, "PIP_CONFIG_FILE": os.devnull})
    return json.loads(out.read_text())["install"]


def main() -> None:
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    pins = [line for line in lines if line and not line.startswith("torch==")]
    hashes: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        for python in PYTHONS:
            for pin, row in zip(pins, sorted_like(pins, report(python, pins, folder)), strict=True):
                hashes[pin].add(row["download_info"]["archive_info"]["hashes"]["sha256"])
    write({pin: sorted(hashes[pin]) for pin in pins})


def sorted_like(pins: list[str], rows: list[dict]) -> list[dict]:
    by_name = {row["metadata"]["name"].lower().replace("_", "-"): row for row in rows}
    return [by_name[pin.split("==")[0]] for pin in pins]


def write(hashes: dict[str, list[str]]) -> None:
    text = HEAD.format(pythons=f"{PYTHONS[0]} to {PYTHONS[-1]}", index=INDEX.split("/")[2])
    for pin, values in hashes.items():
        text += f"\n{pin}" + "".join(f" \\\n    --hash=sha256:{value}" for value in values)
    (ROOT / "requirements-hashed.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
