"""Products of quantised weights in the loop IR: what they read, and what they mean."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.dtypes import DTYPES
from mycc.compiler.ir.structured import Gemm
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.lower.core.driver import Lowered
from mycc.compiler.model.operators import dequantize, quantised  # noqa: F401  # defines the operators
from mycc.compiler.schedule import schedule
from torch import Tensor, nn

from ..helpers.evaluation import answer, difference, given_to

ops = torch.ops.mycc


def narrow(x: Tensor, scale: float) -> Tensor:
    return torch.clamp(torch.round(x * scale), -100, 100).to(torch.int8)


class Layers(nn.Module):
    """A layer of each form, which hand their results on."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("whole", torch.randint(-128, 128, (size, size), dtype=torch.int8))
        self.register_buffer("halves", torch.randint(0, 256, (size, size // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(size, size // 32).to(torch.float16))
        self.register_buffer("zeros", torch.randint(-8, 8, (size, size // 32), dtype=torch.int8))
        self.register_buffer("rows", torch.rand(size))
        self.register_buffer("taps", torch.randint(-128, 128, (size, size, 1, 1), dtype=torch.int8))

    def forward(self, x: Tensor, lows: Tensor) -> Tensor:
        whole, halves, scales, rows = (self.get_buffer(name) for name in ("whole", "halves", "scales", "rows"))
        h = torch.relu(ops.mixed_mm(x, whole) * rows)
        h = ops.grouped_mm(h, halves, scales, self.get_buffer("zeros"), 4, 32)
        b = narrow(torch._int_mm(narrow(h, 0.01), whole.t()).float(), 1e-3)
        taps = self.get_buffer("taps")
        c = ops.int_conv(b[:, :, None, None], taps, 3, [1, 1], [1, 1], [1, 1], 1)
        d = narrow(c[:, :, 1, 1].float(), 1e-3)
        return ops.grouped_int_mm(d, lows, halves, scales, None, 4, 32) * rows


def layers(size: int) -> tuple[Layers, Lowered, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    model, inputs = Layers(size), (torch.randn(3, size), torch.randint(-128, 128, (3, 1), dtype=torch.int32))
    return model, lower(run_graph_passes(capture(model, inputs))), inputs


def test_no_product_reads_weights_that_are_floats() -> None:
    """What products read of weights are integers and the scales of groups, within 3 % of their bits."""
    size = 256
    _, lowered, _ = layers(size)
    products = [node for node in schedule(lowered.program).program.nodes if isinstance(node, Gemm)]
    assert len(products) == 5
    for node in products:
        how = node.quantised
        assert how is not None
        assert node.b.buffer.dtype in ("i8", "u8")
        bits = how.bits + (16 / how.group if how.group else 0) + (8 / how.group if how.zeros else 0)
        finished = {load.buffer for store in node.stores for load in store.value.loads}  # scales of columns, say
        read = sum(_bytes(b) for b in node.reads() if b.kind == "const" and b not in finished)
        assert read <= 1.03 * size * size * bits / 8
        assert sum(_bytes(b) for b in finished if b.kind == "const") <= 8 * size


class Tied(nn.Module):
    """An output head and an embedding of one table, which stands for floats in the way that `dequantize` says."""

    def __init__(self, bits: int, group: int, zeros: bool, dtype: torch.dtype = torch.int8) -> None:
        super().__init__()
        half = 1 << (bits - 1)
        self.register_buffer("table", torch.randint(-half, half, (40, 64)).to(dtype))
        self.register_buffer("scales", torch.rand(40, 64 // group).to(torch.float16))
        self.register_buffer("zeros", torch.randint(-8, 8, (40, 64 // group), dtype=torch.int8) if zeros else None)
        self.bits, self.group = bits, group

    def forward(self, ids: Tensor) -> Tensor:
        w = ops.dequantize(self.table, self.scales, self.zeros, self.bits, self.group, torch.float32)
        return nn.functional.linear(nn.functional.embedding(ids, w).relu(), w)


@pytest.mark.parametrize("model", [Tied(8, 64, False), Tied(4, 16, True), Tied(8, 8, True), Tied(4, 64, False)])
def test_a_table_that_an_output_head_shares_is_stored_once(model: Tied) -> None:
    """The embedding reads the lines of the product, and the same scales and zero points."""
    ids = torch.tensor([[0, 39, 17], [5, 16, 31]])
    lowered = lower(run_graph_passes(capture(model, (ids,))))
    read = {buffer for node in lowered.program.nodes for buffer in node.reads()}
    own = [c for c, buffer in lowered.constants.items() if buffer in read]
    assert sum(c.tensor.dtype in (torch.int8, torch.uint8) for c in own) == 1 + (model.zeros is not None)
    stored = sum(c.elements * c.tensor.element_size() for c in own)
    assert stored <= 48 * 64 * model.bits // 8 + 48 * (64 // model.group) * 3 + 4 * 48
    table = ops.dequantize(model.table, model.scales, model.zeros, model.bits, model.group, torch.float64)
    want = [(table[ids].relu() @ table.t()).flatten().numpy()]
    given = given_to(lowered, (ids,))
    for program in (lowered.program, schedule(lowered.program).program):
        verify_program(program)
        assert difference(answer(program, given, {}), want, 1e-6) == ""


def _bytes(buffer: Buffer) -> int:
    return (buffer.size.constant or 0) * DTYPES[buffer.dtype].size


def test_the_evaluator_reads_them_as_the_operators_do() -> None:
    model, lowered, inputs = layers(64)
    want = [model(inputs[0].double(), inputs[1]).double().flatten().numpy()]
    given = given_to(lowered, inputs)
    for program in (lowered.program, schedule(lowered.program).program):
        verify_program(program)
        assert difference(answer(program, given, {}), want, 1e-6) == ""
