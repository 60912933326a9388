"""Small programs that were wrong once, all in one package."""

from __future__ import annotations

from pathlib import Path

from .judge import judge
from .programs import Input, Program

X = (Input("x0", ("n", 16, 5, 1), "float32"),)
FOUND = {
    "groups whose outputs are no whole panel": Program(
        X, (("w0", (64, 1, 3, 3), "float32"),), ("v0 = F.conv2d(x0, self.w0, None, padding=1, groups=16)",), ("v0",)
    ),
    "the smallest number of 32 bits": Program((Input("x0", ("n", 3), "int32"),), (), ("v0 = x0.max()",), ("v0",)),
    "a row of few elements, reduced": Program(
        (Input("x0", (5,), "float32"),),
        (("w0", (3,), "float32"),),
        ("v0 = torch.lgamma(x0.abs().unsqueeze(-1) + self.w0.abs() + 1)", "v1 = v0.sum(-1)"),
        ("v1",),
    ),
    "a part of another type than the whole": Program(
        (Input("x0", (4,), "bool"),), (), ("v0 = torch.slice_scatter(x0, x0[1:] * 1, 0, 1)",), ("v0",)
    ),
    "copies of halves that a nest keeps": Program(
        (Input("x0", (4, 4, 4), "bfloat16"),),
        (),
        ("v0 = -F.group_norm(x0, 1, eps=0.1)", "v1 = v0.unsqueeze(0).expand(3, *v0.shape)"),
        ("v1",),
    ),
    "the largest of booleans and its place": Program(
        (Input("x0", ("n", 5), "bool"),), (), ("v0 = x0.max(1).indices", "v1 = x0.int().argmax(1)"), ("v0", "v1")
    ),
    "a dynamic size's half, but one at least": Program(
        (Input("x0", (4, "n"), "float32"),),
        (),
        ("v0 = -x0", "v1 = v0[..., : max(v0.shape[-1] // 2, 1)]"),
        ("v1",),
    ),
    "a nest of a single row that computes for long": Program(
        (Input("x0", (1, 8), "float32"), Input("x1", (16, 17, 16), "float32")),
        (),
        (
            "v0 = x1.clamp(0, 99).to(torch.uint8).transpose(2, 1)",
            "v1 = torch.eq(x0, x0).sum()",
            "v2 = torch.logaddexp(x1.double().clamp(-9, 9), v1.double().clamp(-9, 9))",
            "v3 = torch.cat([v0, v0], 1)",
            "v4 = v3 & v3",
        ),
        ("v4", "v2"),
    ),
    "a product of differences, a sum of bits": Program(
        (Input("x0", ("n", 4), "float32"), Input("x1", (7, "n"), "int64")),
        (),
        (
            "v0 = (x0[:, 2:] - x0[:, :2]).prod(-1)",
            "v1 = (x0 / 2 - 1.5).prod(0)",
            "v2 = (x1 & 3).sum(-1)",
            "v3 = (x1 % 5 - 1).prod(0)",
        ),
        ("v0", "v1", "v2", "v3"),
    ),
    "a loop that writes over rows of few elements": Program(
        (Input("x0", (4, 4), "float32"),),
        (),
        tuple(
            f"v{i} = torch.while_loop(lambda i, x: (i < 5) & (x.sum() < 50), lambda i, x: (i + 1, {step}),"
            " (torch.zeros((), dtype=torch.int64), x0))[1]"
            for i, step in enumerate(("x + x.mean(-1, keepdim=True)", "x + x.abs().mean(-1, keepdim=True)"))
        ),
        ("v0", "v1"),
    ),
    "one more than a dynamic size, blocks of which are turned": Program(
        (Input("x0", ("n", 70, 50), "float32"),),
        (),
        ("v0 = F.pad(x0, (0, 0, 0, 0, 0, 1), value=2.0)", "v1 = v0.transpose(1, 2) + 1"),
        ("v1",),
    ),
}


def test_programs_that_were_wrong_once(tmp_path: Path) -> None:
    verdicts = judge(list(FOUND.values()), tmp_path)
    wrong = {name: verdicts[p] for name, p in FOUND.items() if verdicts[p].problem or verdicts[p].refused}
    assert not wrong
