"""Convolutions whose weight the model computes: of parameters alone it is a constant, as any other weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.ir.structured import Conv
from torch import Tensor, nn

from ..helpers.programs import lowered

#: weights of parameters: one that has the weight's size, and one for each output
OF_PARAMETERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda w, d: w,
    "scaled": lambda w, d: w * d,
    "weight_norm": lambda w, d: torch._weight_norm(w, d, 0),
    "standardised": lambda w, d: (w - w.mean((1, 2, 3), True)) / w.var((1, 2, 3), keepdim=True).sqrt(),
    "batch_norm": lambda w, d: F.batch_norm(w.reshape(1, len(w), -1), None, None, training=True).reshape_as(w),
    "a sum of low rank": lambda w, d: w + (d.flatten(1) @ d.flatten(1).t()).reshape(-1, 1, 1, 1)[: len(w)],
    "a view": lambda w, d: w.reshape(w.shape[1], w.shape[0], *w.shape[2:]).transpose(0, 1),
    "one for all channels": lambda w, d: w[:1, :1].expand(w.shape),
}


@pytest.mark.parametrize("groups", [1, 4, 32])
@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_weights_of_parameters_are_constants(name: str, groups: int) -> None:
    """The kernel is the same one as for a plain weight, with a constant of as many elements."""
    w, d, x = torch.randn(32, 32 // groups, 3, 3), torch.rand(32, 1, 1, 1), torch.randn(2, 32, 14, 14)

    def conv(make: Callable[[Tensor, Tensor], Tensor]) -> list[Conv]:
        program = lowered(lambda x: F.conv2d(x, make(w, d), None, 1, 1, 1, groups), x).program
        return [n for n in program.nodes if isinstance(n, Conv)]

    (plain,), (own,) = conv(OF_PARAMETERS["plain"]), conv(OF_PARAMETERS[name])
    assert own.w.kind == plain.w.kind == "const"
    assert (own.algorithm, own.window, own.w.size) == (plain.algorithm, plain.window, plain.w.size)


class Given(nn.Module):
    """The weights are computed from inputs. forms: groups, stride and dilation of each, whether it is transposed."""

    def __init__(self, forms: list[tuple[int, int, int, bool]]) -> None:
        super().__init__()
        self.forms = forms

    def forward(self, x: list[Tensor], w: list[Tensor]) -> list[Tensor]:
        found = []
        for (groups, stride, dilation, back), own, weight in zip(self.forms, x, w, strict=True):
            count = weight.dim() - 2
            name = f"conv_transpose{count}d" if back else f"conv{count}d"
            form = {"stride": stride, "padding": 1, "dilation": dilation, "groups": groups}
            found.append(getattr(F, name)(own.tanh(), weight * 0.5, **form))
        return found


#: channels of the input, outputs, taps of a kernel, groups, stride, dilation, sizes of the map, transposed
FORMS = [
    (16, 32, (3, 3), 1, 1, 1, (14, 14), False), (32, 24, (3, 3), 1, 2, 1, (14, 14), False),
    (16, 21, (3, 2), 1, 1, 2, (9, 11), False), (32, 40, (1, 1), 1, 1, 1, (7, 7), False),
    (32, 32, (3, 3), 8, 1, 1, (9, 9), False), (32, 32, (3, 3), 2, 1, 1, (9, 9), False),
    (32, 32, (3, 3), 32, 1, 1, (9, 9), False), (32, 48, (3, 3), 2, 2, 1, (9, 9), False),
    (3, 32, (7, 7), 1, 2, 1, (30, 30), False), (3, 5, (3, 3), 1, 1, 1, (20, 40), False),
    (2, 2, (3, 3), 1, 1, 1, (20, 40), False), (32, 32, (3, 3), 1, 1, 1, (30, 30), False),
    (20, 24, (5,), 1, 1, 1, (61,), False), (16, 20, (2, 3, 3), 1, 1, 1, (5, 9, 10), False),
    (24, 16, (4, 4), 1, 2, 1, (9, 9), True), (32, 32, (3, 3), 4, 2, 1, (9, 9), True),
    (8, 6, (3, 3), 1, 1, 1, (20, 40), True), (16, 40, (4,), 1, 2, 1, (31,), True),
    (32, 32, (3, 3), 32, 2, 1, (9, 9), True), (32, 32, (3, 3), 1, 1, 1, (30, 30), True),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_inputs(dtype: torch.dtype, tmp_path: Path) -> None:
    """They are packed in the run, for all kernels that read packed weights."""
    torch.manual_seed(2)
    forms = FORMS if dtype == torch.float32 else FORMS[::4]
    x = [torch.randn(2, c, *size).to(dtype) for c, *_, size, _ in forms]
    shapes = [(c, out // g, *k) if back else (out, c // g, *k) for c, out, k, g, *_, back in forms]
    w = [torch.randn(shape).to(dtype) for shape in shapes]
    model = Given([(g, stride, dilation, back) for _, _, _, g, stride, dilation, _, back in forms])
    package = mycc.load(mycc.compile(model, (x, w), out=tmp_path / "given.pkg", verify=False))
    exact = model([t.double() for t in x], [t.double() for t in w])
    for own, eager, want in zip(package(x, w), model(x, w), exact, strict=True):
        most = (eager.double() - want).abs().max() * 3 + 1e-6 * want.abs().max()
        assert (own.double() - want).abs().max() <= most
    kernels = " ".join(package.kernels)
    assert "reduce" not in kernels
    if dtype == torch.float32:
        wanted = ("1x1_f32_p16", "3x3_f32_p16_nchw", "3x3_f32_nchw", "f33taps", "_groups", "transpose1d_f32_p16")
        assert all(name in kernels for name in wanted)
