"""One package for several CPUs: every level that this machine runs gives right answers; aarch64 runs under qemu."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.machine.targets import TARGETS, host_target, runs_on

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INCLUDE = Path(__file__).resolve().parents[2] / "runtime" / "include"
X86 = [t.name for t in TARGETS if t.arch == "x86_64"]

PROGRAM = """
#include <mycc/model.h>
#include <stdio.h>
int main(int argc, char **argv) {
  mycc_model *m;
  if (mycc_load_file(argv[1], 0, &m)) { puts(mycc_last_error()); return 1; }
  static float x[2 * 64];
  for (int i = 0; i < 2 * 64; ++i) x[i] = (float)(i % 17) * 0.25f - 2.0f;
  mycc_tensor in = {0}, out = {0};
  in.data = x; in.device_type = 1; in.ndim = 2; in.dtype = (mycc_dtype){2, 32, 1};
  in.shape[0] = 2; in.shape[1] = 64; in.strides[0] = 64; in.strides[1] = 1;
  if (mycc_run(m, 0, &in, 1, &out, 1)) { puts(mycc_last_error()); return 1; }
  printf("%s", mycc_model_target(m));
  for (int i = 0; i < 2 * 8; ++i) printf(" %.9g", ((float *)out.data)[i]);
  return argc != 2;
}
"""


class Block(torch.nn.Module):
    """x f32[2, 64] -> f32[2, 8]: a GEMM, a norm, an activation and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = torch.nn.Linear(64, 96), torch.nn.LayerNorm(96), torch.nn.Linear(96, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x)))).softmax(-1)


def _inputs() -> torch.Tensor:
    return ((torch.arange(2 * 64) % 17).float() * 0.25 - 2.0).reshape(2, 64)


@pytest.fixture(scope="module")
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


def test_all_levels_of_one_package_are_right(block: Block, tmp_path: Path) -> None:
    host = host_target()
    levels = [name for name in X86 if runs_on(name, host)]
    package = mycc.compile(block, (_inputs(),), out=tmp_path / "block.pkg", target=",".join(levels))
    wanted = block(_inputs()).detach()
    for level in levels:
        model = mycc.load(package, target=level)
        assert model.target == level
        torch.testing.assert_close(model(_inputs()), wanted, rtol=1e-5, atol=1e-6)
    assert mycc.load(package).target == host.name  # the best that runs


def test_aarch64_runs_under_qemu(block: Block, tmp_path: Path) -> None:
    qemu, compiler = shutil.which("qemu-aarch64-static"), shutil.which("aarch64-linux-gnu-gcc")
    if qemu is None or compiler is None:
        pytest.skip(
            "needs qemu-aarch64-static and aarch64-linux-gnu-gcc (Debian: qemu-user-static, g++-aarch64-linux-gnu)"
        )
    package = mycc.compile(block, (_inputs(),), out=tmp_path / "block.pkg", target="cpu:aarch64")
    with zipfile.ZipFile(package) as archive:
        (tmp_path / "libmycc.so").write_bytes(archive.read("lib/aarch64/libmycc.so"))
    (tmp_path / "main.c").write_text(PROGRAM)
    build = [compiler, f"-I{INCLUDE}", "main.c", "-o", "main", "./libmycc.so", "-Wl,-rpath,."]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(
        [qemu, "-L", "/usr/aarch64-linux-gnu", "./main", str(package)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    target, *values = done.stdout.split()
    assert target == "cpu:aarch64"
    found = np.array([float(v) for v in values]).reshape(2, 8)
    np.testing.assert_allclose(found, block(_inputs()).detach().numpy(), rtol=1e-5, atol=1e-6)
