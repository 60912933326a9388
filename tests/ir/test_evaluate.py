"""The evaluator: operators of each kind of node against torch in float64, and the laws that it holds programs to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.evaluate import CallFails, Undefined, evaluate
from mycc.compiler.ir.expr import Acc, Const, Expr, IndexValue, Load, cast
from mycc.compiler.ir.index import Index, Indirect, Var, as_index, of
from mycc.compiler.ir.nodes import Carry, Map, Nest, Node, Origin, Reduce, Reduction, Scan, Scatter, Store
from mycc.compiler.ir.ops import OPS
from mycc.compiler.ir.program import Program
from mycc.compiler.lower import lower
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.schedule import schedule
from torch import nn
from torch.nn import functional as F

from ..helpers.cuda_generator import CudaGenerator
from ..helpers.evaluation import difference, given_to, wide
from ..helpers.programs import call, lowered

Function = Callable[..., Any]


def draw(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * (high - low) + low


def ids(*shape: int, n: int = 5) -> torch.Tensor:
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(n))


def planes(a: torch.Tensor) -> torch.Tensor:
    return a.permute(0, 3, 1, 2)


def gradient_of_attention(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, g: torch.Tensor, *mask: torch.Tensor
) -> Any:
    """With a mask of one row that sees nothing; else causal."""
    bias = [
        torch.where(m > m[0, 0], m, -torch.inf).masked_fill(torch.arange(len(m))[:, None] == 2, -torch.inf)
        for m in mask
    ]
    named: dict[str, Any] = {"attn_mask": bias[0] if bias else None}
    out, log = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(a, b, c, 0.0, not bias, **named)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return (out, log, *backward(g, a, b, c, out, log, 0.0, not bias, **named))


x, image = draw(4, 6, 32), draw(2, 8, 12, 11)
q, k, v = draw(2, 4, 7, 16), draw(2, 2, 9, 16), draw(2, 2, 9, 16)
LARGE = torch.tensor([3, -7, 250, 2**31 - 1, -(2**31)])
CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...], tuple[nn.Module, ...]]] = {
    "map": (lambda a: F.gelu(a.transpose(0, 1) * 2 + 1) - a[:, :1].transpose(0, 1), (x,), ()),
    "broadcast": (lambda a, b: a[:, None] * b[None], (draw(5), draw(3)), ()),
    "flipped": (lambda a: a.flip(0, 2)[:, ::2] + a[:, 1::2], (x,), ()),
    "no elements": (lambda a: (a[:0].sum(0), a[:0] * 2, a[:, :0].prod(1)), (x,), ()),
    "sums": (lambda a: (a.sum(), a.mean(1), a.prod(-1), a.var(0), torch.logsumexp(a, 1)), (x,), ()),
    "largest": (lambda a: (a.amax(0), *a.max(1), a.argmin(-1), a.argmax()), (x,), ()),
    "any and all": (lambda a: ((a > 1.9).any(-1), (a > -1.9).all(0)), (x,), ()),
    "softmax": (lambda a: (a.softmax(1), a.log_softmax(-1)), (x,), ()),
    "scan": (lambda a: (a.cumsum(1), a.cumprod(-1), *torch.cummax(a, 0), torch.logcumsumexp(a, 1)), (x,), ()),
    "gather": (lambda a, i: (a.gather(0, i), a[i[:, 0]], F.embedding(i, a)), (draw(5, 6), ids(5, 6)), ()),
    "negative places": (lambda a, i: a[i - 5], (draw(5, 6), ids(4)), ()),
    "scatter": (lambda a, i: (a.scatter_add(0, i, a), a.scatter(1, i, 2.0)), (draw(5, 6), ids(5, 6)), ()),
    "scatter of the largest": (lambda a, i: a.scatter_reduce(0, i, a * 2, "amax"), (draw(5, 6), ids(5, 6)), ()),
    "written in place": (lambda a: (lambda y: (y[1:].mul_(3), y[..., ::2].add_(1), y)[2])(a.clone()), (x,), ()),
    "linear": (lambda up, a: F.gelu(up(a)), (x,), (nn.Linear(32, 50),)),
    "product": (lambda a, b: a @ b, (draw(3, 5, 7), draw(3, 7, 20)), ()),
    "product with a transpose": (lambda a, b: a @ b.mT, (draw(5, 7), draw(9, 7)), ()),
    "gated product": (
        lambda up, a: (lambda g, u: F.silu(g) * u)(*up(a).chunk(2, -1)),
        (x,),
        (nn.Linear(32, 64),),
    ),
    "convolution": (lambda c, a: c(a), (image,), (nn.Conv2d(8, 20, 3, padding=1, stride=2),)),
    "dilated convolution": (lambda c, a: c(a), (image,), (nn.Conv2d(8, 24, 3, dilation=2, groups=2),)),
    "Winograd 2": (lambda c, a: c(a), (draw(1, 64, 40, 40),), (nn.Conv2d(64, 64, 3, padding=1),)),
    "Winograd of a large kernel": (lambda c, a: c(a), (draw(1, 64, 40, 40),), (nn.Conv2d(64, 64, 5, padding=2),)),
    "Winograd of stride 2": (lambda c, a: c(a), (draw(1, 128, 64, 64),), (nn.Conv2d(128, 64, 3, 2, padding=1),)),
    "depthwise": (lambda c, a: c(a), (draw(1, 64, 9, 9),), (nn.Conv2d(64, 64, 3, groups=64),)),
    "small groups": (lambda c, a: c(a), (draw(1, 64, 9, 9),), (nn.Conv2d(64, 64, 3, groups=16),)),
    "convolution in planes": (lambda c, a: c(a), (draw(1, 3, 20, 20),), (nn.Conv2d(3, 6, 3, padding=1),)),
    "1-d convolution": (lambda c, a: c(a), (draw(2, 8, 30),), (nn.Conv1d(8, 20, 5, padding=2),)),
    "3-d convolution": (lambda c, a: c(a), (draw(1, 8, 5, 6, 7),), (nn.Conv3d(8, 20, 3, padding=1),)),
    "transposed convolution": (lambda c, a: c(a), (image,), (nn.ConvTranspose2d(8, 20, 3, 2, padding=1),)),
    "pooling": (lambda a: (*F.max_pool2d(a, 3, 2, 1, return_indices=True), F.avg_pool2d(a, 2)), (image,), ()),
    "resize": (lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), (image,), ()),
    "attention": (lambda a, b, c: F.scaled_dot_product_attention(a, b, c, enable_gqa=True), (q, k, v), ()),
    "causal attention": (
        lambda a, b: F.scaled_dot_product_attention(a, b, b, is_causal=True),
        (q, draw(2, 4, 9, 16)),
        (),
    ),
    "masked attention": (
        lambda a, b, m: F.scaled_dot_product_attention(a, b, b, attn_mask=m > 0),
        (q, draw(2, 4, 9, 16), draw(7, 9)),
        (),
    ),
    "gradient of attention": (gradient_of_attention, (q, k, v, q.flip(-1)), ()),
    "gradient of masked attention": (gradient_of_attention, (q, k, v, q.flip(-1), draw(7, 9)), ()),
    "recurrent": (lambda layer, a: layer(a)[0], (draw(3, 4, 8),), (nn.LSTM(8, 6, 2),)),
    "sort": (lambda a: (*a.sort(-1, descending=True), *a.topk(3, 1), a.median(1).values), (x,), ()),
    "mode": (lambda a: a.mode(-1), (ids(5, 9).float(),), ()),
    "search": (lambda a, b: torch.searchsorted(a, b), (torch.arange(40.0), draw(6, low=0, high=41)), ()),
    "found rows": (lambda a: (a[a > 0], (a > 1).nonzero(), torch.unique(a.round())), (x,), ()),
    "repeats": (lambda a, i: torch.repeat_interleave(a, i, 0), (draw(6, 3), ids(6)), ()),
    "Fourier": (lambda a: (torch.fft.rfft(a).abs(), torch.fft.fft(a).imag, torch.fft.irfft(a + 0j)), (x,), ()),
    "inverse": (torch.linalg.inv, (draw(3, 5, 5),), ()),
    "Cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(5)), (draw(3, 5, 5),), ()),
    "QR": (lambda a: torch.linalg.qr(a).R.abs(), (draw(3, 5, 4),), ()),
    "eigenvalues": (lambda a: torch.linalg.eigvalsh(a + a.mT), (draw(3, 5, 5),), ()),
    "singular values": (torch.linalg.svdvals, (draw(3, 5, 4),), ()),
    "matrix exponential": (torch.linalg.matrix_exp, (draw(3, 4, 4),), ()),
    "bits of integers": (lambda a: (a.to(torch.uint8) + a.int(), a << 2, a // 3, a % -3, ~a), (LARGE,), ()),
    "special functions": (
        lambda a: (torch.special.digamma(a), torch.lgamma(a), torch.frexp(a)[1], torch.polygamma(2, a)),
        (draw(9, low=0.5, high=4),),
        (),
    ),
    "branch": (lambda a: torch.cond(a.sum() > 0, torch.sin, torch.cos, (a,)), (x,), ()),
    "loop": (
        lambda a: torch.while_loop(
            lambda i, y: i < 4, lambda i, y: (i + 1, y * 0.5 + i), (torch.zeros((), dtype=torch.int64), a)
        )[1],
        (x,),
        (),
    ),
    "CTC": (
        lambda a, t: F.ctc_loss(a.log_softmax(-1), t + 1, (12, 9), (3, 4), reduction="none"),
        (draw(12, 2, 7), ids(2, 4)),
        (),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operators(case: str) -> None:
    """Before and after the schedule."""
    function, inputs, parts = CASES[case]
    program = lowered(function, *inputs, parts=parts)
    with torch.no_grad():
        wanted = function(*(copy.deepcopy(p).double() for p in parts), *map(wide, inputs))
    wanted = [wide(w).contiguous().reshape(-1).numpy() for w in (wanted if isinstance(wanted, tuple) else (wanted,))]
    for stage in (program.program, schedule(program.program).program):
        found = list(evaluate(stage, given_to(program, inputs), {}).values())[: len(wanted)]
        assert difference(found, wanted, 1e-12) == ""


def test_sizes_are_bound() -> None:
    program = lowered(lambda a: a.softmax(0) * a.shape[0], torch.ones(3, 4), dynamic=True)
    for batch in (1, 5, 64):
        rows = draw(batch, 4)
        (found,) = evaluate(program.program, given_to(program, [rows]), {"batch": batch}).values()
        assert difference([found], [(rows.double().softmax(0) * batch).reshape(-1).numpy()]) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_roundings_are_those_of_the_types(dtype: torch.dtype) -> None:
    inputs = [draw(50).to(dtype), draw(50, low=1).to(dtype)]
    program = lowered(lambda a, b: a / b + a, *inputs)
    (found,) = evaluate(program.program, given_to(program, inputs), {}, roundings=True).values()
    assert torch.equal(torch.from_numpy(found).to(dtype), inputs[0] / inputs[1] + inputs[0])
    (exact,) = evaluate(program.program, given_to(program, inputs), {}).values()
    assert difference([exact], [(wide(inputs[0]) / wide(inputs[1]) + wide(inputs[0])).numpy()], 1e-15) == ""


@pytest.mark.parametrize("draws", ["rand", "randn", "randint", "randperm", "multinomial"])
def test_random_numbers_of_cpus(draws: str) -> None:
    functions: dict[str, Function] = {
        "rand": lambda a: (torch.rand(20), torch.rand(20, dtype=torch.float64)),
        "randn": lambda a: (torch.randn(5), torch.randn(37)),
        "randint": lambda a: (torch.randint(0, 100, (20,)), torch.rand(3)),
        "randperm": lambda a: (torch.randperm(20), torch.rand(3)),
        "multinomial": lambda a: torch.multinomial(a, 9, replacement=True),
    }
    weights = draw(6, low=0)
    program = lowered(functions[draws], weights)
    found = list(evaluate(program.program, given_to(program, [weights]), {"random_call": 5}).values())
    torch.manual_seed(5)
    wanted = functions[draws](weights)
    for f, w in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(f, wide(w).numpy(), rtol=1e-5, atol=1e-6)


def test_random_numbers_of_gpus() -> None:
    generator = CudaGenerator(11, 64)
    n = np.arange(1000)
    threads = 256 * 4
    places = [torch.tensor(11), *(torch.from_numpy(p) for p in (n // threads // 4, n % threads, n // threads % 4))]
    assert np.array_equal(OPS["random_word"].reference(*places).numpy(), generator.words(1000).astype(np.int64))


# laws ----------------------------------------------------------------------------------------------------------------
X = Buffer("x", "f32", as_index(12), "input", 0)
N = Buffer("n", "i64", as_index(12), "input", 1)
Y = Buffer("y", "f32", as_index(12), "output", 0)
T = Buffer("t", "f32", as_index(12), "temp")
L = Buffer("l", "f32", as_index(4), "local")
ROW, COLUMN = Var("row", as_index(3)), Var("column", as_index(4))
AT = of(ROW) * 4 + of(COLUMN)
ONE = Const(1.0, "f32")


def program_of(*nodes: Node) -> Program:
    return Program("test", (X, N), (Y,), (), nodes)  # type: ignore[arg-type]


def node(value: Expr, buffer: Buffer = Y, index: Index = AT) -> Map:
    return Map((ROW, COLUMN), (Store(buffer, index, value),), Origin())


def run(*nodes: Node, places: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    given = {X: np.arange(12.0), N: np.arange(12) if places is None else places}
    return evaluate(program_of(*nodes), given, {})[Y]


BROKEN: dict[str, tuple[tuple[Node, ...], str]] = {
    "never written": ((node(ONE, T),), "an element of y is never written"),
    "read before written": ((node(Load(T, AT)),), "an element of t is read before it is written"),
    "read half": (
        (Map((ROW,), (Store(T, of(ROW), ONE),), Origin()), node(Load(T, AT))),
        "an element of t is read before it is written",
    ),
    "read outside": ((node(Load(X, AT + 1)),), "a place outside of x is read"),
    "written outside": ((node(ONE, Y, AT + 1),), "a place outside of y is written"),
    "written twice": ((node(ONE), node(ONE)), "an element of y is written twice"),
    "two values": ((node(Load(X, AT), Y, of(COLUMN)),), "two iterations write different values to one element of y"),
    "another row": (
        (
            Nest(
                (ROW,),
                (),
                Origin(),
                (node(ONE, T), node(Load(T, as_index(8) - of(ROW) * 4 + of(COLUMN)))),
            ),
        ),
        "a row reads what another row writes to t",
    ),
    "parallel updates": (
        (Scatter((ROW, COLUMN), (Store(Y, AT, ONE),), Origin(), (ROW,), (Store(Y, as_index(0), ONE),), 1),),
        "updates that run in parallel meet at an element",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_laws(case: str) -> None:
    nodes, message = BROKEN[case]
    with pytest.raises(Undefined, match=message):
        run(*nodes)


def test_what_is_not_chosen_need_not_exist() -> None:
    """Loads behind a condition may lie outside."""
    first = call("lt", IndexValue(of(COLUMN)), Const(3, "i64"), dtype="bool")
    chosen = call("where", first, Load(X, AT + 1), ONE)
    assert run(node(chosen)).tolist() == [1, 2, 3, 1, 5, 6, 7, 1, 9, 10, 11, 1]


@pytest.mark.parametrize(("wrap", "fails"), [(False, True), (True, False)])
def test_places_from_memory_are_checked(wrap: bool, fails: bool) -> None:
    at = of(Indirect(Load(N, AT), as_index(12), wrap))
    if fails:
        with pytest.raises(CallFails, match="index out of range"):
            run(node(Load(X, at)), places=np.arange(12) - 12)
    else:
        assert run(node(Load(X, at)), places=np.arange(12) - 12).tolist() == list(range(12))


def test_divisions_by_zero_fail() -> None:
    value = cast(call("floor_div", Const(7, "i64"), Load(N, AT), dtype="i64"), "f32")
    with pytest.raises(CallFails, match="integer division by zero"):
        run(node(value))


def test_rows_have_local_memory() -> None:
    stages = (node(Load(X, AT), L, of(COLUMN)), node(Load(L, as_index(3) - of(COLUMN))))
    assert run(Nest((ROW,), (), Origin(), stages, (L,))).tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]


def test_local_memory_holds_one_row() -> None:
    """Two pipeline stages behind, the row after it is there."""
    stages = (node(Load(X, AT), L, of(COLUMN)), node(Load(L, of(COLUMN))))
    for pipeline_stages in ((0, 0), (0, 1)):
        assert run(Nest((ROW,), (), Origin(), stages, (L,), pipeline_stages)).tolist() == list(range(12))
    with pytest.raises(Undefined, match="l of pipeline stage 0 is read in pipeline stage 2"):
        run(Nest((ROW,), (), Origin(), stages, (L,), (0, 2)))


def test_updates_run_in_order() -> None:
    """Each element sees its updates in the order of the loops: here 2 y + x."""
    place = of(Indirect(Load(N, AT), as_index(12)))
    update = Store(Y, place, call("add", call("mul", Load(Y, place), Const(2.0, "f32")), Load(X, AT)))
    scatter = Scatter((ROW, COLUMN), (Store(Y, AT, ONE),), Origin(), (ROW, COLUMN), (update,))
    wanted = [1.0] * 12
    for i in range(12):
        wanted[i % 3] = wanted[i % 3] * 2 + i
    assert run(scatter, places=np.arange(12) % 3).tolist() == wanted


def test_steps_hand_on_all_carries_at_once() -> None:
    a, b = Acc("a", "f32"), Acc("b", "f32")
    carries = (Carry(a, Const(0.0, "f32"), b), Carry(b, Const(1.0, "f32"), call("add", a, b)))
    step = Var("step", as_index(12))
    assert run(Scan((), (Store(Y, of(step), a),), Origin(), step, carries)).tolist() == [
        1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144,
    ]  # fmt: skip


def test_reductions_of_special_values() -> None:
    z = Buffer("z", "i64", as_index(2), "output", 1)
    acc, place = Acc("acc", "f32"), Acc("place", "i64")
    column = Var("column", as_index(4))
    rows = Var("rows", as_index(2))
    load = Load(Buffer("x", "f32", as_index(8), "input", 0), of(rows) * 4 + of(column))
    out = Buffer("y", "f32", as_index(2), "output", 0)
    reductions = (Reduction(acc, "max", load), Reduction(place, "argmax", load))
    reduce = Reduce((rows,), (Store(out, of(rows), acc), Store(z, of(rows), place)), Origin(), (column,), reductions)
    program = Program("test", (load.buffer,), (out, z), (), (reduce,))
    nan, inf = float("nan"), float("inf")
    found = evaluate(program, {load.buffer: np.array([1, nan, inf, nan, 2, inf, inf, 0])}, {})
    np.testing.assert_array_equal(found[out], [nan, inf])
    assert found[z].tolist() == [1, 1]


def test_programs_after_the_schedule_of_gpus() -> None:
    """Weights lie in another order there."""
    from mycc.compiler.capture import capture
    from mycc.compiler.graph.passes import run_graph_passes

    conv = nn.Conv2d(8, 20, 3, padding=1)
    program = lower(run_graph_passes(capture(conv.eval(), (image,), None, None)), family="cuda")
    with torch.no_grad():
        wanted = copy.deepcopy(conv).double()(image.double()).reshape(-1).numpy()
    for stage in (program.program, schedule(program.program, device=DEVICES[90]).program):
        (found,) = evaluate(stage, given_to(program, [image]), {}, family="cuda").values()
        assert difference([found], [wanted], 1e-12) == ""
