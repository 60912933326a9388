"""Installs the wheels of a release into fresh environments and runs packages there: the last step of `make dist`.

Where this environment has torch, the wheel of everything compiles the models of `make demo`; the packages are then
checked against their certificates in environments that hold numpy and mycc, and nothing else.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of ELF
QEMU, SYSROOT = "qemu-aarch64-static", Path("/usr/aarch64-linux-gnu")

# Runs in an environment of numpy and mycc: each package computes what its certificate says.
VERIFY = """
import importlib.util, sys
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("typer") is None
import mycc
from mycc.runtime.verify import verify_package
for path in sys.argv[1:]:
    report = verify_package(path)
    assert report.ok, report
    print("  right on", report.target, path)
"""
# Runs where only the runtime is: what needs the compiler says so.
NO_COMPILER = """
import mycc
try:
    mycc.compile
except AttributeError as error:
    assert "mycc-aot-runtime" in str(error), error
else:
    raise SystemExit("the runtime's wheel has a compiler")
"""


def check(
    out: Path, pythons: list[str], wheels: list[Path], runtimes: list[Path], models: list[str], offline: bool
) -> None:
    """Ends with a message where a wheel does not work.

    offline: numpy is taken from this environment, and nothing from the index.
    """
    for path in [*wheels, *runtimes]:
        check_machine(path)
    with tempfile.TemporaryDirectory(prefix="mycc-dist-check-") as folder:
        work = Path(folder)
        own = [path for path in wheels if f"cp{sys.version_info.major}{sys.version_info.minor}-" in path.name]
        packages = compiled([path for path in own if native(path)], models, work)
        for python in pythons:
            tag = subprocess.run(
                [python, "-c", "import sys; print('cp%d%d-' % sys.version_info[:2])"], check=True, capture_output=True,
                text=True,
            ).stdout.strip()  # fmt: skip
            for path in [p for p in [*wheels, *runtimes] if tag in p.name and native(p)]:
                print(f"{path.name} in a fresh environment", flush=True)
                fresh = environment(python, path, work / path.stem, offline)
                run([fresh, "-c", VERIFY, *map(str, packages)], work)
                if path in runtimes:
                    run([fresh, "-c", NO_COMPILER], work)
                done = subprocess.run([fresh, "-m", "mycc"], cwd=work, capture_output=True, text=True)
                if done.returncode != 2 or "'cli'" not in done.stderr:
                    sys.exit(f"`mycc` without its extra cli answers {done.returncode}: {done.stderr}")
        foreign = [path for path in runtimes if "aarch64" in path.name and not native(path)]
        if foreign:
            check_aarch64(foreign[0], own, work)


def native(wheel: Path) -> bool:
    return wheel.name.endswith(f"_{platform.machine()}.whl")


def check_machine(wheel: Path) -> None:
    """Every library of a wheel is for the machine in its name."""
    wanted = next(number for name, number in MACHINES.items() if wheel.name.endswith(f"_{name}.whl"))
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        for name in libraries:
            if int.from_bytes(archive.read(name)[18:20], "little") != wanted:
                sys.exit(f"{wheel.name}: {name} is for another machine")
    if len(libraries) != 3:
        sys.exit(f"{wheel.name} holds {libraries}")


def environment(python: str, wheel: Path, folder: Path, offline: bool) -> str:
    """A fresh environment with a wheel and what it asks for; returns its interpreter."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    interpreter = str(folder / "bin" / "python")
    if offline:
        site = next((folder / "lib").glob("python*/site-packages"))
        for part in Path(sysconfig.get_path("purelib")).glob("numpy*"):
            (site / part.name).symlink_to(part)
    options = ["--no-index"] if offline else ["-c", str(ROOT / "constraints.txt")]
    run([interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, str(wheel)], folder)
    return interpreter


def with_torch(wheel: Path, folder: Path) -> str:
    """An environment with a wheel whose other modules are those of this one, torch among them."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    interpreter = str(folder / "bin" / "python")
    run([interpreter, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)], folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    # The hooks of an editable install are .pth files, which are not read in folders that a .pth file names.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def compiled(wheels: list[Path], models: list[str], work: Path) -> list[Path]:
    """The packages that the wheel of everything makes of the examples."""
    if not wheels:
        print("no wheel of this Python and machine: no packages are compiled")
        return []
    interpreter = with_torch(wheels[0], work / "compiler")
    packages = []
    for model in models:
        packages.append(work / f"{model}.pkg")
        print(f"{wheels[0].name} compiles examples/{model}.py", flush=True)
        source = str(ROOT / "examples" / f"{model}.py")
        run([interpreter, "-m", "mycc", "compile", source, "--out", str(packages[-1]), "--quiet"], work)
    return packages


def check_aarch64(runtime: Path, wheels: list[Path], work: Path) -> None:
    """A C program runs a package for aarch64 with the library of that wheel, where an emulator is at hand."""
    if shutil.which(QEMU) is None or not SYSROOT.is_dir():
        print(f"{runtime.name} was not run: no {QEMU} or no {SYSROOT}")
        return
    folder, package = work / "aarch64", work / "aarch64.pkg"
    with zipfile.ZipFile(runtime) as archive:
        archive.extractall(folder)
    compiler = with_torch(next(path for path in wheels if native(path)), work / "cross")
    source = str(ROOT / "examples/mlp.py")
    run([compiler, "-m", "mycc", "compile", source, "--out", str(package), "--target", "cpu:aarch64"], work)
    runtime_folder = folder / "mycc/runtime"
    program = folder / "run_package"
    run(
        [
            sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17", "-s", "-std=c11",
            f"-I{runtime_folder / 'include'}", str(ROOT / "examples/c/run_package.c"), "-o", str(program),
            str(runtime_folder / "libmycc.so"), f"-Wl,-rpath,{runtime_folder}",
        ],
        work,
    )  # fmt: skip
    run([QEMU, "-L", str(SYSROOT), str(program), str(package), "batch=2"], work)
    print(f"{runtime.name}: its library runs a package under {QEMU}")


def run(command: list[str], folder: Path) -> None:
    """Runs a command and prints what it says; ends where it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ... failed:\n{(done.stdout + done.stderr)[-4000:]}")
    if "-c" in command and done.stdout:
        print(done.stdout, end="", flush=True)


def main() -> None:
    out, models = Path(sys.argv[1]).resolve(), sys.argv[2].split(",")
    files = sorted(out.glob("*.whl"))
    runtimes = [path for path in files if "_runtime-" in path.name]
    check(out, [sys.executable], [p for p in files if p not in runtimes], runtimes, models, offline=True)


if __name__ == "__main__":
    main()
