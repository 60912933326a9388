"""Fusions: schedules and remarks of small functions as goldens, and every reason of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from mycc.compiler.ir.nodes import Map, Nest, Reduce
from mycc.compiler.ir.structured import Conv, Gemm
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import Schedule, schedule
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import Writer, call, flat, load, loops, lowered, plain, scheduled, temp

Golden = Callable[[str], None]
x = torch.randn(4, 6, 32)
image = torch.randn(2, 8, 6, 6)


def text(s: Schedule) -> str:
    """The schedule and its remarks; plans are told by tests of their own (test_planning.py)."""
    s = replace(s, kernels=tuple(replace(k, plan=None) for k in s.kernels))
    remarks = [f"{'+' if r.done else '-'} {r.producer} -> {r.consumer}: {r.reason}" for r in s.remarks]
    return plain(f"{s}\n" + "\n".join(remarks))


def kinds(s: Schedule) -> list[type]:
    return [type(n) for n in s.program.nodes]


def planes(a: torch.Tensor) -> torch.Tensor:
    """Channels last -> channels first, without moving them."""
    return a.permute(0, 3, 1, 2)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[nn.Module, ...], list[type]]] = {
    "chain": (lambda a: torch.relu(a * 2 + 1).sigmoid(), (x,), (), [Map]),
    "chain_of_two_readers": (lambda a: (torch.exp(a) + 1, torch.exp(a) * 2), (x,), (), [Map, Map, Map]),
    "views_between": (lambda a: torch.relu(a.transpose(1, 2) * 2).reshape(4, -1) + 1, (x,), (), [Map]),
    "producer_into_reduction": (lambda a: torch.exp(a * 2).sum(-1), (x,), (), [Reduce]),
    "reduction_with_epilogue": (lambda a: torch.relu(a.mean(-1) + 1), (x,), (), [Reduce]),
    "softmax": (lambda a: torch.softmax(a * 2, -1), (x,), (), [Nest]),
    "softmax_over_the_middle": (lambda a: torch.softmax(a, 1), (torch.randn(16, 20, 32),), (), [Nest]),
    "softmax_of_large_slabs": (lambda a: torch.softmax(a, 1), (torch.randn(16, 128, 1024),), (), [Nest]),
    "softmax_of_deep_columns": (lambda a: torch.softmax(a, 1), (torch.ones(16, 4096, 64),), (), [Nest]),
    "variance_of_long_columns": (lambda a: a.var(0), (torch.ones(4096, 512),), (), [Nest, Nest]),
    "mean_and_deviation_by_hand": (
        lambda a: (a - a.mean(1, keepdim=True)) / a.std(1, keepdim=True),
        (torch.ones(20, 300),),
        (),
        [Nest],
    ),
    "largest_beside_smallest": (lambda a: (a.amax(-1) - a.amin(-1), a.sum(-1)), (torch.ones(20, 300),), (), [Reduce]),
    "largest_beside_another_sum": (lambda a, b: a.amax(-1) - b.sum(-1), (x, x), (), [Nest]),
    "softmax_of_many_long_rows": (lambda a: a.softmax(-1), (torch.ones(84, 100352),), (), [Nest]),
    "variance_of_rows_in_order": (lambda a: a.var(1).sqrt(), (torch.ones(40, 127, 128),), (), [Reduce]),
    "variance_beside_its_mean": (lambda a: torch.var_mean(a, 1), (torch.ones(40, 127, 128),), (), [Nest]),
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, -1), (x, x), (), [Reduce]),
    "mean_beside_largest_of_columns": (lambda a: (a.mean(0), a.amax(0)), (torch.ones(300, 80),), (), [Reduce]),
    "sums_of_other_rows": (lambda a, b: a.softmax(-1) * b.sum(-1, True), (x, torch.ones(4, 6, 40)), (), [Reduce, Nest]),
    "group_norm": (lambda a: F.silu(F.group_norm(a, 4)), (torch.ones(2, 8, 5, 16),), (), [Nest]),
    "group_norm_of_many_samples": (
        lambda a: F.silu(F.group_norm(planes(a), 8)).permute(0, 2, 3, 1),
        (torch.zeros(48, 56, 56, 64),),
        (),
        [Nest],
    ),
    "norm_of_channels_of_many_samples": (
        lambda a: F.layer_norm(a.permute(0, 2, 3, 1), (64,)).permute(0, 3, 1, 2),
        (torch.zeros(48, 64, 56, 56),),
        (),
        [Nest],
    ),
    "norm_of_channels": (lambda a: a - a.mean(1, keepdim=True), (torch.ones(4, 20, 24, 32),), (), [Nest]),
    "layer_norm_with_residual": (lambda norm, a, b: norm(a + b), (x, x), (nn.LayerNorm(32),), [Nest]),
    "gemm_bias_gelu": (lambda up, a: F.gelu(up(a)), (x,), (nn.Linear(32, 48),), [Gemm]),
    "gemm_residual": (lambda up, a: a + up(a), (x,), (nn.Linear(32, 32),), [Gemm]),
    "gemm_silu_gate": (lambda u, g, a: F.silu(g(a)) * u(a), (x,), (nn.Linear(32, 48), nn.Linear(32, 48)), [Gemm]),
    "conv_bn_relu_residual": (
        lambda conv, norm, a: torch.relu(norm(conv(planes(a))) + planes(a)).permute(0, 2, 3, 1),
        (image.permute(0, 2, 3, 1).contiguous(),),
        (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)),
        [],
    ),
}


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 20])
def test_products_of_few_columns_are_sums(columns: int) -> None:
    """Of dense columns; what comes before and after is one kernel with them."""
    expected = [Reduce] if columns <= 3 else [Map, Gemm]
    s = scheduled(lambda up, a: torch.sigmoid(up(torch.relu(a))), x, parts=(nn.Linear(32, columns),), dynamic=True)
    assert kinds(s) == expected
    s = scheduled(lambda a, b: a @ b, x, torch.randn(4, 32, columns))
    assert kinds(s) == ([Reduce] if columns == 1 else [Gemm])


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "parts"),
    [
        (8, 18432, 10, 4), (1, 65536, 16, 8), (1, 65536, 64, 2), (40, 18432, 10, 4),
        (8, 4096, 10, 1), (1, 65536, 80, 1), (200, 18432, 32, 1), (8, 18435, 10, 1),
    ],
)  # fmt: skip
def test_long_products_of_few_elements_are_cut_into_parts(rows: int, depth: int, columns: int, parts: int) -> None:
    """Parts of equal length; the sum of them is one kernel with what comes behind."""
    s = scheduled(lambda up, a: torch.relu(up(a) * 2), torch.randn(rows, depth), parts=(nn.Linear(depth, columns),))
    assert kinds(s) == ([Gemm] if parts == 1 else [Gemm, Map])
    (product,) = (n for n in s.program.nodes if isinstance(n, Gemm))
    assert product.k == depth // parts
    assert len(product.dims) == (2 if parts == 1 else 3)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "parts"),
    [(1, 65536, 16, 8), (8, 16384, 200, 4), (64, 2048, 64, 2), (64, 512, 64, 1)],
)
def test_long_products_of_two_operands_are_cut_into_parts(rows: int, depth: int, columns: int, parts: int) -> None:
    for batch in ((), (1,)):
        s = scheduled(lambda a, b: a @ b, torch.randn(*batch, rows, depth), torch.randn(*batch, depth, columns))
        assert kinds(s) == ([Gemm] if parts == 1 else [Gemm, Map])
        assert isinstance(s.program.nodes[0], Gemm)
        assert s.program.nodes[0].k == depth // parts


@pytest.mark.parametrize("case", CASES)
def test_fused(case: str, golden: Golden) -> None:
    function, inputs, parts, expected = CASES[case]
    s = scheduled(function, *inputs, parts=parts, dynamic=case in ("softmax", "gemm_residual"))
    golden(text(s))
    if expected:
        assert kinds(s) == expected


def test_convolution_takes_its_norm_activation_and_residual() -> None:
    function, inputs, parts, _ = CASES["conv_bn_relu_residual"]
    s = scheduled(function, *inputs, parts=parts)
    (conv,) = [n for n in s.program.nodes if isinstance(n, Conv)]
    assert conv.origin.ops == ("aten.conv2d", "aten.batch_norm", "aten.add", "aten.relu")
    assert s.program.nodes == (conv,)


def test_the_channels_of_a_convolution_are_moved_to_planes_by_a_kernel_of_their_own() -> None:
    for part in (nn.Conv2d(8, 9, 3), nn.ConvTranspose2d(8, 8, 4, 2, 1)):
        s = scheduled(
            lambda conv, a: torch.relu(conv(planes(a))), image.permute(0, 2, 3, 1).contiguous(), parts=(part,)
        )
        assert kinds(s)[-1] is Map
        assert all(isinstance(n, Conv) for n in s.program.nodes[:-1])


def test_every_phase_of_a_transposed_convolution_takes_what_follows() -> None:
    def rectified(conv: nn.Module, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(conv(a) + planes(b)).permute(0, 2, 3, 1)

    parts = (nn.ConvTranspose2d(8, 8, 4, 2, 1),)
    s = scheduled(rectified, image, torch.randn(2, 12, 12, 8), parts=parts)
    found = [n for n in s.program.nodes if isinstance(n, Conv)]
    assert [n.origin.ops[-1] for n in found] == ["aten.relu"] * 4
    assert {b.kind for n in found for b in n.writes()} == {"output"}


@pytest.mark.parametrize(("head", "expected"), [(16, [Gemm]), (24, [Gemm, Map])])
def test_heads_that_no_vector_fits_are_moved_by_a_kernel_of_their_own(head: int, expected: list[type]) -> None:
    def heads(up: nn.Module, a: torch.Tensor) -> torch.Tensor:
        return up(a).unflatten(-1, (2, head)).permute(0, 2, 1, 3).contiguous()

    s = scheduled(heads, x, parts=(nn.Linear(32, 2 * head),))
    assert kinds(s) == expected
    refused = [r.reason for r in s.remarks if not r.done]
    assert refused == ["neighbouring elements would be stored one by one"] * (len(expected) - 1)


def test_without_fusion_every_operator_is_a_kernel() -> None:
    program = lowered(lambda a: torch.relu(a * 2 + 1), x).program
    assert len(schedule(program, ScheduleOptions(fuse=False)).program.nodes) == len(program.nodes) == 3
    s = schedule(
        lowered(lambda up, a: F.gelu(up(a)), x, parts=(nn.Linear(32, 48),)).program, ScheduleOptions(epilogues=False)
    )
    assert kinds(s) == [Gemm, Map]


def test_dead_nodes_are_dropped() -> None:
    i, j = loops(i=4, j=8)
    w = Writer.new()
    a, y = w.input("a", 32), w.output("y", 32)
    w.map(temp("unread", 32), flat(i, j), call("exp", load(a, flat(i, j))), i, j)
    w.map(y, flat(i, j), call("neg", load(a, flat(i, j))), i, j)
    s = schedule(w.program())
    assert [n.origin.ops for n in s.program.nodes] == [("aten.y",)]


# refusals ------------------------------------------------------------------------------------------------------------
def reasons(s: Schedule) -> list[str]:
    return [r.reason for r in s.remarks if not r.done]


def test_an_operand_of_a_matrix_kernel_takes_memory() -> None:
    s = scheduled(lambda up, a: up(torch.relu(a)), x, parts=(nn.Linear(32, 48),))
    assert "read as an operand of a matrix kernel, which takes memory" in reasons(s)


def test_dear_expressions_are_not_computed_again() -> None:
    s = scheduled(lambda a, b: torch.exp(b)[:, None, :] + a, x, torch.randn(4, 32))
    assert any(r.startswith("would be computed 6 times, at ") for r in reasons(s)), reasons(s)
    assert kinds(s) == [Map, Map]


def test_cheap_expressions_are_computed_again() -> None:
    s = scheduled(lambda a, b: (b + 1)[:, None, :] + a, x, torch.randn(4, 32))
    assert kinds(s) == [Map]


def test_readers_of_a_concatenation_compute_its_parts() -> None:
    s = scheduled(lambda a, b: torch.exp(torch.cat([a, b], 1)), x, x)
    assert kinds(s) == [Nest]
    assert "computed where it is read, piece by piece" in [r.reason for r in s.remarks]


def test_a_concatenation_that_is_read_twice_is_stored() -> None:
    s = scheduled(lambda a, b: (lambda t: torch.exp(t) * t.flip(1))(torch.cat([a, b], 1)), x, x)
    assert len(s.program.nodes) == 2


def test_long_reductions_to_few_elements_are_split() -> None:
    assert kinds(scheduled(lambda a: a.sum(), torch.randn(1024, 512))) == [Reduce, Reduce]
    assert kinds(scheduled(lambda a: a.sum(0), torch.randn(65536, 8))) == [Reduce, Reduce]
    assert kinds(scheduled(lambda a: a.sum(-1), torch.randn(1024, 512))) == [Reduce]  # rows enough for all threads
    assert kinds(scheduled(lambda a: a.sum(), torch.randn(509, 521))) == [Reduce]  # no divisor fits


@pytest.mark.parametrize(("size", "columns"), [(56, 32), (12, 48), (28, 16)])
def test_pipelined_blocks_of_columns_are_narrow(size: int, columns: int) -> None:
    (nest,) = scheduled(lambda a: a.softmax(1), torch.randn(16, 64, size, size)).program.nodes
    assert isinstance(nest, Nest)
    assert nest.pipeline_stages
    (reduction, *_) = (s for s in nest.stages if isinstance(s, Reduce))
    assert reduction.dims[-1].extent.constant == columns


def test_columns_that_no_block_divides_are_not_pipelined() -> None:
    (nest,) = scheduled(lambda a: a.softmax(1), torch.randn(16, 64, 7, 7)).program.nodes
    assert isinstance(nest, Nest)
    assert not nest.pipeline_stages


def test_rope_is_one_kernel() -> None:
    def rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return q * cos + torch.cat([-q[..., 16:], q[..., :16]], -1) * sin

    s = scheduled(rope, torch.randn(2, 4, 6, 32), torch.randn(6, 32), torch.randn(6, 32))
    assert kinds(s) == [Nest]


def test_pieces_without_a_common_loop_are_kernels() -> None:
    s = scheduled(lambda a, b: torch.exp(torch.cat([a, b], 0)), x, x[:2])
    assert kinds(s) == [Map, Map]


def test_holes_are_not_inverted() -> None:
    i, j = loops(i=4, j=8)
    w = Writer.new()
    a, y, t = w.input("a", 32), w.output("y", 32), temp("t", 64)
    w.map(t, of_stride(i, j), call("exp", load(a, flat(i, j))), i, j)
    w.map(y, flat(i, j), call("neg", load(t, of_stride(i, j))), i, j)
    assert reasons(schedule(w.program())) == ["its elements are not written in one dense order"]


def of_stride(i: Any, j: Any) -> Any:
    return flat(i, j) * 2


def test_several_places_of_a_result() -> None:
    s = scheduled(lambda up, a: (lambda h: h + h.flip(0))(up(a)), torch.randn(8, 32), parts=(nn.Linear(32, 48),))
    assert "reads several places of the result for each element" in reasons(s)


def test_part_of_a_result() -> None:
    s = scheduled(lambda up, a: torch.relu(up(a)[2:5]), torch.randn(8, 32), parts=(nn.Linear(32, 48),))
    assert "does not read each element of the result exactly once" in reasons(s)


def test_rows_of_another_reduction() -> None:
    s = scheduled(lambda a: (lambda p: (p, p.sum(1)))(torch.softmax(a, -1)), x)
    assert kinds(s) == [Nest, Reduce]
    assert "reduces over another dimension than the rows" in reasons(s)


def test_rows_are_read_one_by_one() -> None:
    s = scheduled(lambda a: torch.softmax(a, -1).transpose(1, 2).contiguous().flip(2) + 1, x)
    assert "does not read the rows one by one" in reasons(s), reasons(s)


def test_a_kernel_in_between() -> None:
    def function(up: nn.Module, a: torch.Tensor) -> torch.Tensor:
        mean = a.mean(-1, keepdim=True)
        return a - mean * up(mean.expand(4, 6, 32)).sum(-1, keepdim=True)

    s = scheduled(function, x, parts=(nn.Linear(32, 48),))
    assert any(
        r in reasons(s) for r in ("another kernel has to run in between", "its loops do not start with the rows")
    )
