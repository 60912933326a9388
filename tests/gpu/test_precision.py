"""--dtype: the model as model.to(dtype) would have it, the user's own left alone."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture.export import CaptureRequest
from mycc.compiler.capture.precision import in_dtype
from mycc.compiler.ir.structured import Gemm
from mycc.runtime.errors import CompileError
from torch import nn

from ..helpers.device_programs import device_program


class Tied(nn.Module):
    """An embedding whose matrix is the last product's too, with a buffer of floats and one of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("order", torch.arange(4))

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(ids) * self.scale + x)[:, self.order]


def request(model: nn.Module) -> CaptureRequest:
    return CaptureRequest(model.eval(), (torch.tensor([1, 2]),), {"x": torch.randn(2, 4)})


def test_parameters_buffers_and_inputs_are_converted_and_ties_stay() -> None:
    model = Tied()
    (converted,) = in_dtype([request(model)], "bf16")
    assert converted.model.scale.dtype == torch.bfloat16
    assert converted.model.order.dtype == torch.int64
    assert converted.model.out.weight is converted.model.table.weight
    assert converted.model.out.weight.dtype == torch.bfloat16
    assert converted.args[0].dtype == torch.int64
    assert converted.kwargs["x"].dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.float32}  # the user's own
    wanted = model.to(torch.bfloat16)(*converted.args, **converted.kwargs)
    assert torch.equal(converted.model(*converted.args, **converted.kwargs), wanted)


def test_entry_points_share_what_they_shared() -> None:
    model = Tied()
    first, second = in_dtype([request(model), request(model)], "f16")
    assert first.model.table.weight is second.model.table.weight


def test_nothing_is_copied_when_nothing_changes() -> None:
    model = Tied()
    for dtype in (None, "f32"):
        (same,) = in_dtype([request(model)], dtype)
        assert same.model is model


def test_an_exported_program_keeps_its_dtype() -> None:
    program = torch.export.export(nn.Linear(3, 3), (torch.randn(2, 3),))
    with pytest.raises(CompileError, match="an exported program cannot be converted to bf16"):
        in_dtype([CaptureRequest(program)], "bf16")
    (same,) = in_dtype([CaptureRequest(program)], "f32")
    assert same.model is program


def test_a_function_with_modules_of_its_own_is_refused() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(CompileError, match="cannot be converted to f16"):
        in_dtype([CaptureRequest(lambda x: layer(x), (torch.randn(2, 3),))], "f16")


class Residual(nn.Module):
    """A sum that goes on as it is, and to a norm in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x + self.first(x)
        wide = h.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return h + self.second(normal.to(h.dtype))


def test_halves_are_not_stored_in_float32_beside() -> None:
    """Many rows: the norm is a kernel of its own, and reads the sum in the type in which it is stored anyway."""
    program = device_program(Residual(), (torch.randn(4096, 64),), dtype="bf16").schedule.program
    products = [node for node in program.nodes if isinstance(node, Gemm)]
    assert len(products) == 2
    assert {s.buffer.dtype for node in products for s in node.stores} == {"bf16"}
    assert all(len(node.stores) == 1 for node in products)
