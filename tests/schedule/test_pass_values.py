"""Every pass of the schedule keeps what programs answer: each is evaluated before and after each pass that changed it.

The values are ordinary ones, and such with NaN, infinities and negative zeros; sizes are odd, 1, 0, or dynamic.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import mycc.compiler.schedule
import pytest
import torch
from mycc.compiler.ir.nodes import Map, Store
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import Family
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.pass_order import check_order
from mycc.compiler.schedule import passes as schedule_passes
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.graph import NodeGraph
from mycc.compiler.schedule.loops import interchange_copies, pipeline_samples
from mycc.compiler.schedule.passes import (
    CPU_PASSES,
    GPU_PASSES,
    Context,
    SchedulePass,
    optional_passes,
)
from torch import Tensor, nn
from torch.nn import functional as F

from ..helpers.evaluation import answer, difference, given_to
from ..helpers.passes import Judge, WrongPass, pass_names, special
from ..helpers.programs import call, lowered

BOTH: tuple[Family, ...] = ("cpu", "cuda")
CPU: tuple[Family, ...] = ("cpu",)
GPU: tuple[Family, ...] = ("cuda",)


def draw(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))) * 4 - 2


def ids(*shape: int, n: int) -> Tensor:
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(sum(shape)))


def planes(a: Tensor) -> Tensor:
    """Channels last -> channels first, without moving them."""
    return a.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Case:
    """A function of tensors, and passes that have to change its program for each of the families.

    batches: the first sizes of the inputs in the calls, where that is dynamic.
    """

    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    passes: tuple[str, ...]
    parts: tuple[nn.Module, ...] = ()
    families: tuple[Family, ...] = BOTH
    batches: tuple[int, ...] = ()

    def calls(self) -> Iterator[tuple[list[Tensor], dict[str, int]]]:
        """Inputs and sizes."""
        yield list(self.inputs), {"batch": len(self.inputs[0])} if self.batches else {}
        yield [special(x) for x in self.inputs], {"batch": len(self.inputs[0])} if self.batches else {}
        for batch in self.batches:
            repeated = [x.repeat(-(-batch // len(x)), *[1] * (x.dim() - 1))[:batch] for x in self.inputs]
            yield [x * 0.5 if x.is_floating_point() else x for x in repeated], {"batch": batch}


class Inverted(nn.Module):
    """The convolutions of an inverted residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.project = nn.Conv2d(16, 96, 1), nn.Conv2d(96, 16, 1)
        self.depthwise = nn.Conv2d(96, 96, 3, padding=1, groups=96)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(F.relu6(self.depthwise(F.relu6(self.expand(x)))))  # type: ignore[no-any-return]


def rotary(q: Tensor) -> Tensor:
    return q * torch.cos(q) + torch.cat([-q[..., 16:], q[..., :16]], -1) * torch.sin(q)


def in_blocks(q: Tensor, memory: Tensor, table: Tensor) -> Tensor:
    k, v = (torch.ops.mycc.read_blocks(part, table, 10) for part in memory)
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True) * 2


def cached(q: Tensor, keys: Tensor, key: Tensor, values: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, torch.cat([keys, key], 2), torch.cat([values, value], 2))


def looked_up(x: Tensor, at: Tensor, weight: Tensor) -> Tensor:
    heads = x.t().reshape(2, 32, 50)
    picked = heads.gather(2, at.flatten(1)[:, None].expand(-1, 32, -1)).unflatten(2, (9, 4))
    return (picked * weight[:, None]).sum(-1).reshape(64, 9).t().contiguous()


def gated(up: nn.Module, a: Tensor) -> Tensor:
    gate, value = up(a).chunk(2, -1)
    return F.silu(gate) * value


def output_looked_up(a: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    made = torch.sin(a) * 2 + torch.exp(a)
    return made, made[:, :, at]


def widened(a: Tensor) -> Tensor:
    made = (a.bfloat16() * 2).float()
    return made.sum(0) + made.amax(0)


def rounded(a: Tensor, first: Tensor, second: Tensor) -> Tensor:
    one = first.bfloat16()
    made = a.bfloat16() @ one
    two = second.bfloat16()
    made = made @ two @ two.t() @ one.t()
    first.mul_(2)
    second.mul_(2)
    return made.float()


def updated(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    made = a * weight
    weight.add_(b.sum(0))
    return (made.exp() + b).sum(1)


def counted(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, last = a[0, 0], a[3, 2]
    return first + 1, last * 2, a * 3


def places_kept(a: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    places = (i * 3 + 1) % 50
    return a[places].exp() + places[:, None], places


x = draw(5, 7, 33)
CASES: dict[str, Case] = {
    # pointwise, and what it meets
    "pointwise chain": Case(lambda a: torch.relu(a * 2 + 1).sigmoid() + a, (x,), ("inline",), batches=(1, 2, 64)),
    "views": Case(lambda a: torch.relu(a.flip(1)[:, ::2].transpose(1, 2) * 2).reshape(5, -1) + 1, (x,), ("inline",)),
    "broadcast": Case(lambda a, b: (a * 2 + b.sin()).sum(1), (x, draw(33)), ("inline",)),
    "no rows": Case(lambda a: torch.relu(a * 2).softmax(-1) + a.sum(0), (draw(0, 6),), ("inline",)),
    "one element": Case(lambda a: F.layer_norm(a * 2, (1,)).softmax(-1), (draw(1, 1),), ("inline",)),
    "unread results": Case(lambda a: a.max(1)[1], (x,), ("dead-results",)),
    "concatenation": Case(lambda a, b: torch.cat([a * 2, b.exp()], 1).sum(-1), (x, draw(5, 3, 33)), ()),
    "rotary": Case(rotary, (draw(2, 3, 7, 32),), ("concat-distribution",), families=CPU),
    # reductions
    "reduction": Case(lambda a: torch.relu(a.mean(-1) + 1), (x,), ("epilogues",), batches=(1, 2, 64)),
    "few elements": Case(lambda a: a.softmax(-1), (draw(200, 3),), ("unroll-reductions",), families=CPU),
    "mean asked for twice": Case(
        lambda a: (a - a.mean(-1, keepdim=True)) / (a.std(-1, keepdim=True) + a.mean(-1, keepdim=True)),
        (x,),
        ("reduction-cse", "fuse-rows"),
    ),
    "reductions side by side": Case(
        lambda a, b: F.cosine_similarity(a, b, -1), (x, x.flip(0)), ("horizontal",), families=CPU, batches=(1, 3)
    ),
    "largest and smallest": Case(lambda a: (a.amax(-1) - a.amin(-1), a.sum(-1)), (x,), ()),
    "long sum": Case(lambda a: (a * 2).sum((0, 2)), (draw(64, 3, 2000),), ("rfactor",), families=CPU),
    "long sum on GPUs": Case(lambda a: (a * 2).sum((0, 2)), (draw(64, 3, 2000),), ("rfactor",), families=GPU),
    "variance of columns": Case(
        lambda a: a.var(0), (draw(4096, 48),), ("blocked-variance", "fuse-columns"), families=CPU
    ),
    "variance in one reading": Case(lambda a: a.var(1), (draw(17, 96, 128),), ("welford",), families=CPU),
    "exponentials of columns": Case(
        lambda a: torch.logsumexp(a, 0), (draw(4096, 64),), ("online-softmax", "pipeline-columns"), families=CPU
    ),
    "pooling": Case(lambda a: F.max_pool2d(a, 8, 8), (draw(2, 3, 32, 32),), ("separable-windows",), families=CPU),
    "pooling with borders": Case(
        lambda a: F.avg_pool2d(a, 7, 3, 2), (draw(2, 3, 32, 32),), ("separable-windows",), families=CPU
    ),
    "pooling of channels last": Case(
        lambda a: F.max_pool2d(planes(a), 5, 1, 2), (draw(1, 12, 12, 32),), ("separable-windows",), families=CPU
    ),
    "places of maxima": Case(lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), (draw(2, 3, 9, 11),), ()),
    # rows
    "softmax": Case(lambda a: a.softmax(-1), (draw(4, 6, 64),), ("fuse-rows",), batches=(1, 3, 64)),
    "softmax with terms": Case(lambda a: a.softmax(-1), (draw(9, 1000),), ("terms",), families=CPU),
    "log-softmax over the middle": Case(
        lambda a: a.log_softmax(1), (draw(16, 20, 32),), ("fuse-columns",), families=CPU
    ),
    "softmax of GPU rows": Case(
        lambda a: a.softmax(-1).flip(-1) + a.softmax(-1), (draw(5, 70),), ("separate-rows",), families=GPU
    ),
    "layer norm": Case(
        lambda norm, a, b: norm(a + b),
        (draw(4, 6, 32), draw(4, 6, 32)),
        ("recompute", "fuse-rows"),
        (nn.LayerNorm(32),),
        batches=(1, 3, 64),
    ),
    "pipelined rows": Case(
        lambda norm, e, i: norm(e(i)),
        (ids(3, 7, n=50),),
        ("pipeline-rows",),
        (nn.LayerNorm(32), nn.Embedding(50, 32)),
        families=CPU,
    ),
    "group norm": Case(
        lambda a: F.silu(F.group_norm(a, 4)), (draw(2, 8, 5, 16),), ("groups", "fuse-rows"), families=CPU
    ),
    "scan of rows": Case(lambda a: a.softmax(-1).cumsum(-1), (draw(5, 70),), ("fuse-rows",)),
    "norms of samples": Case(
        lambda a: F.silu(F.group_norm(planes(a), 8)).permute(0, 2, 3, 1),
        (draw(18, 24, 24, 64),),
        ("blocked-variance", "pipeline-samples"),
        families=CPU,
    ),
    "reductions of samples": Case(
        lambda a: a - a.mean((1, 2), keepdim=True),
        (draw(18, 24, 24, 32),),
        ("rfactor-samples", "pipeline-samples"),
        families=CPU,
    ),
    # products
    "product with bias and activation": Case(
        lambda up, a: a + F.gelu(up(a)),
        (draw(5, 7, 32),),
        ("epilogues",),
        (nn.Linear(32, 32),),
        batches=(1, 3, 64),
    ),
    "gated product": Case(gated, (draw(4, 6, 32),), ("glu",), (nn.Linear(32, 64),)),
    "long product": Case(
        lambda up, a: torch.relu(up(a) * 2),
        (draw(8, 18432),),
        ("split-k",),
        (nn.Linear(18432, 10),),
        families=CPU,
    ),
    "product in parts on GPUs": Case(
        lambda up, norm, a: norm(up(a) + 1),
        (draw(16, 3072),),
        ("split-k",),
        (nn.Linear(3072, 768), nn.LayerNorm(768)),
        families=GPU,
    ),
    "computed operand": Case(
        lambda a, b: torch.relu(a + 1) @ b, (draw(64, 256), draw(256, 64)), ("prologues",), families=GPU
    ),
    "product of strided operands": Case(lambda a, b: (a.mT @ b[:, ::2].mT) * 2, (draw(3, 9, 5), draw(3, 14, 9)), ()),
    "attention": Case(
        lambda q, k: F.scaled_dot_product_attention(q * 2, k, k, is_causal=True) + 1,
        (draw(2, 3, 7, 16), draw(2, 3, 7, 16)),
        ("inline",),
    ),
    "cached keys": Case(
        cached, (draw(1, 3, 1, 16), *[draw(1, 3, n, 16) for n in (20, 1, 20, 1)]), ("kv-concat",), families=CPU
    ),
    "keys in blocks": Case(
        in_blocks, (draw(2, 4, 3, 16), draw(2, 9, 2, 4, 16), torch.tensor([[7, 2, 0], [3, 3, 8]])), ("kv-blocks",)
    ),
    # convolutions
    "convolution": Case(
        lambda conv, norm, a: torch.relu(norm(conv(planes(a))) + planes(a)).permute(0, 2, 3, 1),
        (draw(2, 6, 7, 8),),
        ("epilogues",),
        (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)),
        batches=(1, 3),
    ),
    "inverted residual": Case(
        lambda block, a: block(a),
        (draw(1, 16, 28, 28).to(memory_format=torch.channels_last),),
        ("conv-chains",),
        (Inverted(),),
        families=CPU,
    ),
    "convolution in planes": Case(
        lambda conv, a: F.silu(conv(a)),
        (draw(2, 3, 11, 13),),
        ("epilogues",),
        (nn.Conv2d(3, 6, 3, 2, 1),),
        families=CPU,
    ),
    # lookups, moves
    "embedding": Case(lambda e, i: e(i) * 2 + 1, (ids(3, 7, n=50),), ("inline",), (nn.Embedding(50, 20),)),
    "resized image": Case(
        lambda a: F.interpolate(a, size=(31, 27), mode="bilinear"),
        (draw(2, 3, 15, 16),),
        ("lookups",),
        families=CPU,
    ),
    "output that is looked up": Case(output_looked_up, (draw(2, 20, 16), torch.tensor([3, 1, 0, 2, 5])), ()),
    "computed places": Case(
        lambda a, i: a[(((i * 2 + 1) % 50 * 3 + 2) % 50 * 7 + 1) % 50] * 2,
        (draw(50, 20), ids(30, n=50)),
        ("inline-lookups",),
        families=GPU,
    ),
    "maps of the same": Case(
        lambda a, b: (a * 2 + b, (a * 2 + b) * torch.exp(b), b - a),
        (draw(2, 9, 31), draw(2, 9, 31)),
        ("join-maps",),
        families=GPU,
    ),
    "sums of columns": Case(
        lambda a, b: (a.var(0), (b * (a - a.mean(0))).sum(0), b.sum(0)),
        (draw(2048, 6), draw(2048, 6)),
        ("column-sums",),
        families=GPU,
    ),
    "numbers that are widened": Case(
        widened,
        (draw(9, 31),),
        ("narrow-results",),
        families=GPU,
    ),
    "a small parameter": Case(updated, (draw(40, 9), draw(40, 9), draw(9)), ("late-updates",), families=GPU),
    "weights that are rounded": Case(
        rounded, (draw(9, 16), draw(16, 16), draw(16, 16)), ("early-casts",), families=GPU
    ),
    "one of a row": Case(
        lambda at: torch.where(torch.arange(50) == at[:, None], 3.0, 0.0).sum(1),
        (ids(7, n=60),),
        ("one-hot",),
        families=GPU,
    ),
    "counters": Case(counted, (draw(4, 3),), ("join-numbers",), families=GPU),
    "rows of no whole lines": Case(
        lambda a, b: F.softmax(a, -1) @ b, (draw(9, 131), draw(131, 8)), ("padded-rows",), families=GPU
    ),
    "places that are results": Case(places_kept, (draw(50, 20), ids(30, n=50)), ()),
    "rows looked up": Case(
        looked_up, (draw(50, 64), ids(2, 9, 4, n=50), draw(2, 9, 4)), ("interchange-stores",), families=CPU
    ),
    "operand across the lanes": Case(
        lambda a: F.max_pool2d(planes(a), 7, 3, 2),
        (draw(2, 12, 12, 32),),
        ("interchange-reductions", "operand-layout"),
        families=CPU,
    ),
    "moved lines": Case(
        lambda a: a.transpose(1, 2).contiguous(), (draw(4, 128, 24, 64),), ("interchange-copies",), families=CPU
    ),
    "scatter": Case(lambda a, i: (a * 2).scatter_add(0, i, a.exp()) + 1, (draw(5, 6), ids(5, 6, n=5)), ("recompute",)),
    "sort": Case(lambda a: (a * 2).sort(-1)[0] + 1, (draw(5, 9),), ()),
    "found rows": Case(lambda a: (a[a > 0] * 2 + 1).sin().cumsum(0), (draw(5, 9),), ("inline",)),
    # control flow
    "branch": Case(
        lambda a: torch.cond(a.sum() > 0, lambda y: (y * 2).softmax(-1), lambda y: (y - 1).exp() + y, (a * 2,)) + 1,
        (draw(5, 9),),
        ("fuse-rows",),
    ),
    "loop": Case(
        lambda a: (
            torch.while_loop(
                lambda i, y: i < 3,
                lambda i, y: (i + 1, (y * 0.5).softmax(-1) + i),
                (torch.zeros((), dtype=torch.int64), a * 2),
            )[1]
            + 1
        ),
        (draw(5, 9),),
        ("fuse-rows",),
    ),
}
#: limits of passes that few samples of few elements stay under
SMALL = {(pipeline_samples, "BEYOND_L3"): 1 << 16, (interchange_copies, "BEYOND_L2"): 1 << 20}


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, limit), value in SMALL.items():
        monkeypatch.setattr(module, limit, value)


@pytest.mark.parametrize(("name", "family"), [(name, family) for name, c in CASES.items() for family in c.families])
@pytest.mark.usefixtures("small_limits")
def test_values_stay(name: str, family: Family) -> None:
    case = CASES[name]
    program = lowered(case.function, *case.inputs, parts=case.parts, dynamic=bool(case.batches), family=family)
    calls = [(given_to(program, inputs), sizes) for inputs, sizes in case.calls()]
    judge = Judge(program.program, calls, family)
    judge.follow()
    assert set(case.passes) <= set(judge.changed), f"changed by {', '.join(judge.changed)} alone"


@pytest.mark.parametrize("family", BOTH)
def test_every_pass_has_a_case(family: Family) -> None:
    """And every case says which passes it is for."""
    named = {p for case in CASES.values() if family in case.families for p in case.passes}
    assert named >= set(pass_names(family))
    assert named <= {*pass_names("cpu"), *pass_names("cuda")}


@pytest.mark.parametrize("passes", [CPU_PASSES, GPU_PASSES])
def test_passes_have_what_they_need(passes: tuple[SchedulePass, ...]) -> None:
    check_order(passes)
    with pytest.raises(AssertionError, match="needs EPILOGUES"):
        check_order([p for p in passes if p.name != "epilogues"])


@pytest.mark.parametrize("name", optional_passes())
def test_a_pass_can_be_left_out(name: str) -> None:
    """The case of a pass has the same answer without it."""
    case = next(case for case in CASES.values() if name in case.passes)
    family = case.families[0]
    program = lowered(case.function, *case.inputs, parts=case.parts, dynamic=bool(case.batches), family=family)
    inputs, sizes = next(case.calls())
    device = DEVICES[90] if family == "cuda" else None
    left = schedule(program.program, ScheduleOptions(off=(name,)), device).program
    verify_program(left, name)
    given = given_to(program, inputs)
    found, wanted = (answer(p, given, sizes, family) for p in (left, program.program))
    assert not difference(found, wanted)


def test_a_wrong_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that loses a node, and one that computes something else."""
    program = lowered(lambda a: (a.softmax(-1).sin(), a.exp().sum(0)), draw(5, 7))
    calls = [(given_to(program, [draw(5, 7)]), {})]

    def loses(graph: NodeGraph, _: Context) -> None:
        graph.remove(graph.nodes[-1])

    def computes(graph: NodeGraph, _: Context) -> None:
        node = next(n for n in graph.nodes if isinstance(n, Map))
        graph.replace(node, replace(node, stores=tuple(_doubled(s) for s in node.stores)))

    for wrong, message in ((loses, "is never written"), (computes, "result 0 is off by")):
        with monkeypatch.context() as patch:
            patch.setattr(schedule_passes, "CPU_PASSES", (SchedulePass("wrong", wrong), *CPU_PASSES))
            with pytest.raises(WrongPass, match=f"wrong.*{message}"):
                Judge(program.program, calls).follow()


def _doubled(store: Store) -> Store:
    return replace(store, value=call("add", store.value, store.value))


def schedule_modules() -> list[str]:
    folder = mycc.compiler.schedule
    return [m.name for m in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}.")]


@pytest.mark.parametrize("name", schedule_modules())
def test_modules_say_what_they_do(name: str) -> None:
    assert importlib.import_module(name).__doc__
