"""Quantised products in packages on a GPU, against exact integers and float64."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch

from ..gpu.test_quantised_kernels import ROUNDING, WEIGHTS, Products, operands

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(("rows", "dtype"), [(1, torch.bfloat16), (16, torch.float16), (200, torch.bfloat16)])
def test_products(rows: int, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Products().eval()
    given = operands(rows, max(w.k for w in WEIGHTS), dtype)
    package = mycc.load(mycc.compile(model, given, out=tmp_path / "m.pkg", target="cuda", verify=False))
    results = [y.cpu() for y in package(*(t.cuda() for t in given))]
    for i, weight in enumerate(WEIGHTS):
        (floats, integers), (want, exact) = results[2 * i : 2 * i + 2], model.exact(i, *given)
        near = ROUNDING[dtype] * want.abs() + 1e-5 * want.norm()
        assert ((floats.double() - want).abs() <= near).all(), str(weight)
        if weight.group:
            assert float((integers.double() - exact).norm() / exact.norm()) < 2e-6, str(weight)
        else:
            assert torch.equal(integers.double(), exact), str(weight)


@pytest.mark.parametrize("fast", [False, True])
def test_float8_rows(fast: bool, tmp_path: Path) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("tensor cores of this device have no float8")
    torch.manual_seed(0)
    w, scale = torch.randn(512, 1024).to(torch.float8_e4m3fn), 0.01 + torch.rand(512, 1)

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", w)
            self.register_buffer("scale", scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            own = x.abs().amax(1, keepdim=True) / 448
            q = (x / own).clamp(-448, 448).to(torch.float8_e4m3fn)
            out = {"out_dtype": torch.float32, "use_fast_accum": fast}
            return torch._scaled_mm(q, self.w.t(), own, self.scale.t(), **out)

    x = torch.randn(1100, 1024)
    package = mycc.load(mycc.compile(Rows().eval(), (x,), out=tmp_path / "m.pkg", target="cuda", verify=False))
    own = x.abs().amax(1, keepdim=True) / 448
    q = (x / own).clamp(-448, 448).to(torch.float8_e4m3fn).double()
    want = (q @ w.double().t()) * own.double() * scale.double().t()
    error = float((package(x.cuda()).cpu().double() - want).norm() / want.norm())
    assert error < (2e-3 if fast else 5e-4)
