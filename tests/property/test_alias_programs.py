"""Random programs that write in place under several names; `explore --kind alias` draws thousands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import alias_judge_gpu
from .alias_judge import judge
from .alias_programs import AliasProgram
from .judge import Verdict
from .programs import Input

DRAWN, RUN = 35, 50  # programs of a round, and how many run in all
FOUND = {
    "pieces beside a body that writes": AliasProgram(
        (Input("x0", (4, 3), "float32"), Input("k0", (4,), "int64")),
        (("b0", (4, 3), "float32"),),
        (
            "b0 = self.b0",
            "v0 = x0.chunk(2)[1]",
            "v0.add_(1)",
            "v1 = b0.movedim(0, -1)",
            "v1[k0] += v0[0, 0]",
            "v2 = b0.narrow(0, 1, 2).unbind(0)[1]",
            "def body(i, a):",
            "    v2.mul_(2)",
            "    b0[k0] += a[k0]",
            "    return i + 1, a + b0",
            "v3 = torch.while_loop(lambda i, a: i < 2, body, (torch.zeros((), dtype=torch.int64), x0))[1]",
        ),
        ("v3", "v0", "b0"),
    ),
    "strides of views, of which some lie in no order of their own": AliasProgram(
        (Input("x0", (4, 3), "float32"),),
        (("b0", (3, 4), "float32"),),
        (
            "b0 = self.b0",
            "v0 = x0.t().as_strided((2, 2), (3, 1)).clone()",
            "v1 = x0[1:].as_strided((2, 2), (2, 1)) + 0",
            "v2 = (x0.t() + 1).as_strided((4,), (1,)).clone()",
            "b0.t()[1:].as_strided((2,), (5,)).mul_(3)",
            "v3 = x0 * 2",
            "v3.unfold(0, 2, 1)[..., 0].add_(1)",
            "v3.unfold(1, 2, 2).mul_(2)",
            "v4 = (x0 * 1).t()",
            "v4.as_strided((2, 2), (1, 4), 1).add_(5)",
            "v5 = x0 * 1",
            "v5.unfold(0, 2, 1).fill_(4)",
            "v5[1:].split(2, 1)[0].mul_(3)",
            "x0[:, 1:].as_strided((2, 2), (1, 5)).sub_(1)",
            "v6 = torch.zeros_like(x0).as_strided((2, 2), (1, 1)).clone()",
            "v7 = torch.ones(4)",
            "v7.as_strided((2,), (2,)).add_(1)",
        ),
        ("v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7"),
    ),
    "strides of a dynamic size, in a body too": AliasProgram(
        (Input("x0", ("n", 3), "float32"),),
        (("b0", (3, 4), "float32"),),
        (
            "b0 = self.b0",
            "v0 = x0 * 1",
            "v0.split([2, v0.shape[0] - 2])[1].add_(1)",
            "v0.split([v0.shape[0] - 1, 1])[0].mul_(2)",
            "v1 = x0 * 1",
            "v1.t().as_strided((2, 2), (2, 1)).add_(1)",
            "v1[1:].as_strided((2, 2), (1, 3)).mul_(2)",
            "def body(i, a):",
            "    v1.as_strided((3,), (2,)).add_(1)",
            "    b0[1:].as_strided((2, 2), (4, 2)).sub_(1)",
            "    v0.split([2, v0.shape[0] - 2])[1].add_(v1[0, 0])",
            "    return i + 1, a + b0.sum()",
            "v3 = x0[0, :1].clone()",
            "v2 = torch.while_loop(lambda i, a: i < 3, body, (torch.zeros((), dtype=torch.int64), v3))[1]",
        ),
        ("v0", "v1", "v2", "b0"),
    ),
    "a view that is taken with the memory itself, handed in before an index": AliasProgram(
        (Input("x0", (5,), "float32"), Input("k0", (4,), "int64")),
        (("b0", (4, 4, 4), "float32"),),
        (
            "b0 = self.b0",
            "v1 = b0.view_as(b0)",
            "v3 = b0 - x0.sum()",
            "def then(a):",
            "    b0[k0] += 1",
            "    return v1 + 1",
            "v4 = torch.cond(k0.sum() > 3, then, lambda a: v3 + 1, (v3,))",
        ),
        ("v3", "v4"),
    ),
    "a loop that carries what it writes through views": AliasProgram(
        (Input("x0", (4,), "float32"), Input("k0", (4,), "int64")),
        (("b0", (4, 4, 4), "float32"), ("b1", (4, 4, 4), "int32")),
        (
            "b0 = self.b0",
            "b1 = self.b1",
            "v0 = b0.unsqueeze(0)",
            "v1 = b0.view_as(b0)",
            "v2 = v1.view(-1)",
            "def body(i, a):",
            "    v0.index_copy_(1, k0, v0[:, k0] - 1)",
            "    u1 = v2.unbind(0)[1]",
            "    return i + 1, a + v0.sum().clamp(-9, 9).to(a.dtype)",
            "def test(i, a):",
            "    u0 = v1.to(v1.dtype)",
            "    b1[:, 0] = b1[:, 1]",
            "    return i < 1",
            "v8 = torch.while_loop(test, body, (torch.zeros((), dtype=torch.int64), b0))[1]",
            "v8.mul_(2)",
        ),
        ("v1", "v2", "v8"),
    ),
    "rows of every second one of a dynamic size": AliasProgram(
        (Input("x0", ("n", "n"), "float32"),),
        (),
        (
            "v0 = x0[::2]",
            "v0.copy_(v0.flip(0))",
            "v1 = v0.cumsum(0).clamp(-9, 9)",
            "v1[...] += 1",
            "v0[...] += 1",
            "v2 = v1[0]",
            "v3 = v2[0]",
            "v3[...] += 1",
            "v2.add_(1)",
        ),
        ("v2", "v3"),
    ),
    "all elements of a size times a half": AliasProgram(
        (Input("x0", ("n", "n", 4), "float32"), Input("k0", (4,), "int64")),
        (),
        ("v0 = x0.clone()[::2]", "v0.put_(k0, v0.flatten()[k0], accumulate=True)", "x0.copy_(x0.flip(0))"),
        ("v0",),
    ),
    "all but the last of a half": AliasProgram(
        (Input("x0", ("n", 5), "int64"), Input("k0", (4,), "int64")),
        (),
        ("x0[:, k0] -= 1", "v0 = x0[::2]", "v1 = v0[:-1]", "v0.mul_(-1)", "v0.add_(1)", "v1.add_(1)"),
        ("v1",),
    ),
    "an expanded intermediate": AliasProgram(
        (Input("x0", (4,), "float32"), Input("k0", (4,), "int64")),
        (),
        ("v0 = x0 + 1", "v0.expand(2, 4).sub_(v0.mean())"),
        ("v0",),
        raises=True,
    ),
}


def test_random_programs() -> None:
    """In a process of its own: what hypothesis draws for a seed depends on the modules that are imported."""
    command = [sys.executable, "-m", "tests.property.explore", "--kind", "alias", "--seed", "21", "--no-shrink"]
    command += ["--programs", str(RUN), "--round", str(DRAWN)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    right = re.search(r"^(\d+) of \d+ programs are right, 0 are wrong$", done.stdout, re.MULTILINE)
    assert right is not None, done.stdout
    assert int(right[1]) >= RUN


def test_programs_that_were_wrong_once(tmp_path: Path) -> None:
    verdicts = judge(list(FOUND.values()), tmp_path)
    wrong = {name: verdicts[p] for name, p in FOUND.items() if verdicts[p].problem or verdicts[p].refused}
    assert not wrong


def test_as_kernels_for_gpus(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    few = [FOUND[name] for name in ("pieces beside a body that writes", "an expanded intermediate")]
    assert set(alias_judge_gpu.judge(few, tmp_path).values()) == {Verdict()}
