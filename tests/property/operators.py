"""The steps of random programs: a row of text for most operators, a function for what a row cannot say.

A step is exact when its result has no rounding error for exact operands. Operators that jump (comparisons, rounding,
casts to whole numbers, places of elements) take exact operands only: else a last bit would change everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from .programs import Sketch, Value

Step = Callable[[Sketch], None]


# rows ----------------------------------------------------------------------------------------------------------------
def _rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip() for part in line.split("|", 2)) for line in table.strip().splitlines()]


#: operand kinds: f(loat), i(nteger), b(ool), n(umber: f or i), a(ny), e(xact number); result: exact, keeps, rounds
UNARY = _rows(
    """
    n | keeps  | -{0}
    n | keeps  | {0}.abs()
    n | keeps  | torch.relu({0})
    n | keeps  | {0}.clamp(-1, 2)
    f | keeps  | F.hardtanh({0})
    f | keeps  | F.relu6({0})
    e | exact  | torch.sign({0})
    e | exact  | torch.floor({0})
    e | exact  | torch.round({0})
    e | exact  | torch.trunc({0})
    f | rounds | F.gelu({0})
    f | rounds | F.gelu({0}, approximate="tanh")
    f | rounds | F.silu({0})
    f | rounds | F.mish({0})
    f | rounds | F.elu({0})
    f | rounds | F.selu({0})
    f | rounds | F.softplus({0})
    f | rounds | F.hardswish({0})
    f | rounds | F.hardsigmoid({0})
    f | rounds | F.leaky_relu({0}, 0.1)
    f | rounds | F.logsigmoid({0})
    n | rounds | torch.tanh({0})
    n | rounds | torch.sigmoid({0})
    n | rounds | torch.exp({0}.clamp(-3, 3))
    n | rounds | torch.expm1({0}.clamp(-3, 3))
    n | rounds | torch.log({0}.abs() + 0.5)
    n | rounds | torch.log1p({0}.abs())
    n | rounds | torch.sqrt({0}.abs() + 0.25)
    n | rounds | torch.rsqrt({0}.abs() + 0.5)
    n | rounds | torch.sin({0}.clamp(-30, 30))
    n | rounds | torch.cos({0}.clamp(-30, 30))
    n | rounds | torch.atan({0})
    n | rounds | torch.erf({0})
    n | rounds | torch.reciprocal({0}.abs() + 1)
    n | rounds | {0}.square()
    f | rounds | {0}.clamp(-3, 3) ** 3
    f | rounds | ({0}.abs() + 0.25) ** 0.75
    n | rounds | {0} * 3 + 1
    n | rounds | {0} / 4
    n | rounds | 2.5 * {0}
    n | rounds | 1 - {0}
    i | exact  | {0} // 3
    i | exact  | {0} % 4
    i | exact  | ~{0}
    b | exact  | ~{0}
    e | exact  | {0} > 0
    e | exact  | {0} == 0
    e | exact  | {0} != 1
    a | exact  | torch.isnan({0})
    b | exact  | {0}.to(torch.float32)
    b | exact  | {0}.to(torch.int64)
    i | exact  | {0}.to(torch.float32)
    i | exact  | {0}.to(torch.int32)
    i | exact  | {0}.to(torch.uint8)
    i | exact  | {0}.to(torch.int64)
    e | exact  | {0}.clamp(-99, 99).to(torch.int64)
    e | exact  | {0}.clamp(-99, 99).to(torch.int32)
    e | exact  | {0}.clamp(0, 99).to(torch.uint8)
    e | exact  | {0}.to(torch.bool)
    f | rounds | {0}.float()
    f | rounds | {0}.double()
    f | rounds | {0}.to(torch.bfloat16)
    f | rounds | {0}.half()
    a | keeps  | {0}.clone()
    a | keeps  | {0}.contiguous()
    a | keeps  | torch.zeros_like({0})
    n | keeps  | torch.full_like({0}, 2)
    """
)
BINARY = _rows(
    """
    n n | rounds | {0} + {1}
    n n | rounds | {0} - {1}
    n n | rounds | {0} * {1}
    n n | keeps  | torch.maximum({0}, {1})
    n n | keeps  | torch.minimum({0}, {1})
    n n | rounds | {0} / ({1}.abs() + 1)
    n n | rounds | torch.atan2({0}, {1}.abs() + 1)
    f f | rounds | torch.lerp({0}, {1}, 0.25)
    f f | rounds | torch.addcmul({0}, {1}, {1}, value=0.5)
    f f | rounds | torch.hypot({0}, {1}.abs() + 1)
    i i | exact  | {0} // ({1}.abs() + 1)
    i i | exact  | {0} % ({1}.abs() + 1)
    i i | exact  | torch.div({0}, {1}.abs() + 1, rounding_mode="trunc")
    i i | exact  | {0} & {1}
    i i | exact  | {0} ^ {1}
    e e | exact  | {0} < {1}
    e e | exact  | {0} >= {1}
    e e | exact  | {0} == {1}
    b b | exact  | {0} & {1}
    b b | exact  | {0} | {1}
    b b | exact  | torch.logical_xor({0}, {1})
    b n | keeps  | torch.where({0}, {1}, 0)
    b f | keeps  | {1}.masked_fill({0}, -1.5)
    a a | keeps  | torch.where({0} == {0}, {0}, {1})
    n n | rounds | torch.addcdiv({0}.float(), {0}.float(), {1}.float().abs() + 1)
    n n | rounds | torch.logaddexp({0}.double().clamp(-9, 9), {1}.double().clamp(-9, 9))
    n n | rounds | F.mse_loss({0}.float(), {1}.float().expand_as({0} + {1}) - {0} * 0, reduction="none")
    i i | exact  | torch.fmod({0}, {1}.abs() + 1)
    i i | exact  | torch.gcd({0}.int(), {1}.int())
    i i | exact  | {0} << ({1} % 3)
    e e | exact  | torch.eq({0}, {1}).sum()
    e e | exact  | torch.isclose({0}.double(), {1}.double())
    e e | exact  | torch.searchsorted({0}.double().flatten().sort().values, {1}.double())
    n n | rounds | torch.cdist({0}.float().flatten(0, -2), {1}.float().expand({0}.shape).flatten(0, -2))
    n n | rounds | torch.einsum("...i,...j->...ij", {0}.float(), {1}.float().expand({0}.shape))
    """
)
#: over one dimension {d}
REDUCTIONS = _rows(
    """
    n | rounds | {0}.sum({d})
    n | rounds | {0}.sum({d}, keepdim=True)
    f | rounds | {0}.mean({d})
    f | rounds | {0}.mean({d}, keepdim=True)
    n | keeps  | {0}.amax({d})
    n | keeps  | {0}.amin({d}, keepdim=True)
    n | keeps  | {0}.max({d}).values
    e | exact  | {0}.argmax({d})
    e | exact  | {0}.argmin({d}, keepdim=True)
    a | exact  | ({0} != 0).any({d})
    a | exact  | ({0} == {0}).all({d})
    f | rounds | {0}.var({d}, correction=0)
    f | rounds | {0}.std({d}, correction=0, keepdim=True)
    f | rounds | torch.logsumexp({0}, {d})
    f | rounds | torch.softmax({0}, {d})
    f | rounds | torch.log_softmax({0}, {d})
    f | rounds | F.normalize({0}, dim={d}, eps=0.1)
    f | rounds | torch.linalg.vector_norm({0}, dim={d})
    n | rounds | torch.cumsum({0}, {d})
    n | rounds | ({0}.clamp(-1, 1)).prod({d})
    e | exact  | torch.sort({0}, {d}).values
    e | exact  | {0}.cummax({d}).values
    i | exact  | {0}.sum({d}, dtype=torch.int32)
    n | rounds | {0}.sum()
    f | rounds | {0}.mean()
    n | keeps  | {0}.max()
    e | exact  | torch.argsort({0}, dim={d}, stable=True)
    e | exact  | torch.sort({0}, dim={d}, descending=True, stable=True).indices
    e | exact  | {0}.cummin({d}).indices
    e | exact  | {0}.count_nonzero({d})
    e | exact  | {0}.median({d}).values
    e | exact  | {0}.kthvalue(1, {d}).values
    e | exact  | {0}.max({d}, keepdim=True).indices
    e | keeps  | {0}.diff(dim={d}, prepend={0}.narrow({d}, 0, 1))
    n | keeps  | {0}.aminmax(dim={d}).max
    n | rounds | {0}.flip({d}).cumsum({d}).flip({d})
    f | rounds | torch.cumprod({0}.clamp(-1, 1), {d})
    f | rounds | torch.logcumsumexp({0}, {d})
    f | rounds | torch.softmax({0}, {d}, dtype=torch.float64)
    f | rounds | torch.var_mean({0}, {d}, correction=0)[0]
    f | rounds | {0}.norm(p=1, dim={d})
    f | rounds | {0}.float().nanmean({d})
    f | rounds | torch.trapezoid({0}, dim={d})
    f | rounds | F.glu(torch.cat([{0}, {0}], {d}), {d})
    f | rounds | F.softmin({0}, {d})
    f | rounds | torch.cosine_similarity({0}, {0} + 1, {d}, 0.1)
    e | exact  | {0}.sum() % 3 if not {0}.is_floating_point() else {0}.sign()
    """
)
#: views and movements of elements over dimensions {d} and {e}, or a fixed one {f}: torch.export fixes how many parts
#: there are
MOVEMENTS = _rows(
    """
    a | {0}.transpose({d}, {e})
    a | {0}.unsqueeze({d})
    a | {0}.flip({d})
    a | {0}.roll(1, {d})
    a | {0}.roll(-2, {d})
    a | {0}.select({d}, 0)
    a | {0}.select({d}, -1)
    a | {0}.narrow({d}, 0, 1)
    a | {0}.movedim({d}, {e})
    a | {0}.repeat_interleave(2, {d})
    a | torch.cat([{0}, {0}], {d})
    a | torch.stack([{0}, {0}], {d})
    a | {0}.flatten({d})
    a | {0}.flatten(0, {d})
    a | {0}.squeeze({d})
    a | {0}.reshape(-1)
    a | {0}.reshape({0}.shape[0], -1)
    a | {0}.reshape(-1, {0}.shape[-1])
    a | {0}.unsqueeze(0).expand(3, *{0}.shape)
    a | {0}[..., ::2]
    a | {0}[..., 1:]
    a | {0}[:-1]
    a | {0}[..., None, :]
    a | F.pad({0}, (1, 2))
    n | F.pad({0}, (0, 1), value=2)
    a | F.pad({0}, (0, -1))
    a | torch.tril({0})
    a | torch.triu({0}, 1)
    a | torch.diagonal({0}, dim1={d}, dim2={e})
    a | {0}.repeat(*([1] * ({0}.dim() - 1)), 2)
    a | torch.take_along_dim({0}, torch.zeros_like({0}, dtype=torch.int64), {d})
    a | {0}.index_select({d}, torch.tensor([0, 0]))
    a | {0} * torch.ones({0}.shape[{d}]).sum().to({0}.dtype)
    a | torch.arange({0}.shape[{d}])
    a | torch.arange({0}.shape[{d}]) * 2 + {0}.shape[{e}]
    a | torch.full(({0}.shape[{d}], 3), 1.5)
    a | torch.eye({0}.shape[{d}])
    a | torch.ones({0}.shape[{d}], {0}.shape[{e}]).triu(1).bool()
    a | torch.linspace(-1, 1, {0}.shape[{d}])
    a | torch.linspace(0, 2, {0}.shape[{d}] * 2 + 1)
    a | {0}.unfold({d}, 1, 1)
    a | {0}.narrow({d}, {0}.shape[{d}] // 2, 1)
    a | {0}.chunk(2, {f})[0]
    a | {0}.split(2, {f})[-1]
    a | {0}.unbind({f})[0]
    a | {0}.tile(2)
    a | {0}[..., {0}.shape[-1] // 2 :]
    a | {0}[..., : max({0}.shape[-1] // 2, 1)]
    a | {0}.rot90(1, ({d}, {e}))
    a | torch.cat([{0}, torch.zeros_like({0})], {d})
    a | torch.zeros_like({0}).copy_({0}.transpose({d}, {d}))
    a | {0}.new_zeros({0}.shape[{d}] + 1, {0}.shape[{e}])
    a | torch.full_like({0}, 1).cumsum({d})
    a | torch.meshgrid(torch.arange({0}.shape[{d}]), torch.arange({0}.shape[{e}]), indexing="ij")[0]
    a | torch.diag_embed({0})
    a | {0}.flip(0).flip({d})
    a | {0}.view({0}.shape).permute(*range({0}.dim() - 1, -1, -1)).contiguous()
    a | {0}.expand(2, *{0}.shape).reshape(-1, *{0}.shape[1:])
    a | torch.block_diag({0}.reshape(-1, {0}.shape[-1])[:2], torch.ones(1, 2, dtype={0}.dtype))
    """
)


def _fits(kind: str) -> Callable[[Value], bool]:
    def fits(v: Value) -> bool:
        whole = not v.is_float and v.dtype is not torch.bool
        return {
            "f": v.is_float, "i": whole, "b": v.dtype is torch.bool, "n": v.is_float or whole, "a": True,
            "e": v.exact and (v.is_float or whole),
        }[kind]  # fmt: skip

    return fits


def _unary(row: tuple[str, ...]) -> Step:
    kind, rule, text = row
    return lambda s: _apply(s, text, rule, s.pick(_fits(kind)))


def _binary(row: tuple[str, ...]) -> Step:
    kinds, rule, text = row
    first, second = kinds.split()

    def step(s: Sketch) -> None:
        a = s.pick(_fits(first))
        _apply(s, text, rule, a, s.pick(lambda v: _fits(second)(v) and _broadcasts(a, v)))

    return step


def _broadcasts(a: Value, b: Value) -> bool:
    pairs = [(a.size(-1 - d), b.size(-1 - d)) for d in range(min(a.rank, b.rank))]
    return all(x == y or (1, 1) in (x, y) for x, y in pairs)


def _reduction(row: tuple[str, ...]) -> Step:
    kind, rule, text = row

    def step(s: Sketch) -> None:
        v = s.pick(lambda v: _fits(kind)(v) and v.rank > 0)
        _apply(s, text.replace("{d}", str(s.dim(v))), rule, v)

    return step


def _movement(row: tuple[str, ...]) -> Step:
    kind, text = row

    def step(s: Sketch) -> None:
        v = s.pick(lambda v: _fits(kind)(v) and v.rank > 0)
        if "{f}" in text:
            f = s.dim(v, lambda d: v.fixed(d) is not None)
            _apply(s, text.replace("{f}", str(f)), "keeps", v)
            return
        d, e = s.dim(v), s.dim(v)
        _apply(s, text.replace("{d}", str(d)).replace("{e}", str(e)), "keeps", v)

    return step


def _apply(s: Sketch, text: str, rule: str, *operands: Value) -> None:
    for i, v in enumerate(operands):
        text = text.replace(f"{{{i}}}", v.name)
    whole = not any(v.is_float for v in operands)  # and so is the result, unless the operator rounds
    exact = rule == "exact" or (rule == "keeps" and (whole or all(v.exact for v in operands)))
    s.step(text, exact)
    if whole and not s.values[-1].is_float:
        s.values[-1] = replace(s.values[-1], exact=True)


# functions -----------------------------------------------------------------------------------------------------------
def _matmul(s: Sketch) -> None:
    a = s.pick(lambda v: v.is_float and v.rank >= 1)
    b = s.pick(lambda v: v.dtype == a.dtype and v.rank >= 1 and v.size(-2 if v.rank > 1 else -1) == a.size(-1))
    s.step(f"{a.name} @ {b.name}", False)


def _product_with_itself(s: Sketch) -> None:
    a = s.pick(lambda v: v.is_float and v.rank >= 2)
    s.step(s.choose([f"{a.name} @ {a.name}.mT", f"{a.name}.mT @ {a.name}"]), False)


def _fixed_last(s: Sketch, least: int = 1) -> tuple[Value, int]:
    v = s.pick(lambda v: v.is_float and v.rank >= least and v.fixed(-1) is not None)
    size = v.fixed(-1)
    assert size is not None
    return v, size


def _linear(s: Sketch) -> None:
    v, size = _fixed_last(s)
    out = s.choose([8, 1, 3, 17, 32])
    bias = f", {s.parameter([out], v.dtype)}" if s.choose([True, False]) else ""
    s.step(f"F.linear({v.name}, {s.parameter([out, size], v.dtype)}{bias})", False)


def _layer_norm(s: Sketch) -> None:
    v, size = _fixed_last(s)
    w, b = s.parameter([size], v.dtype), s.parameter([size], v.dtype)
    s.step(f"F.layer_norm({v.name}, [{size}], {w}, {b}, 0.1)", False)


def _rms_norm(s: Sketch) -> None:
    v, size = _fixed_last(s)
    w = s.parameter([size], v.dtype)
    s.step(f"{v.name} * torch.rsqrt({v.name}.pow(2).mean(-1, keepdim=True) + 0.1) * {w}", False)


def _channels(s: Sketch, ranks: tuple[int, ...]) -> tuple[Value, int]:
    v = s.pick(lambda v: v.is_float and v.rank in ranks and v.fixed(1) is not None)
    channels = v.fixed(1)
    assert channels is not None
    return v, channels


def _conv(s: Sketch) -> None:
    v, channels = _channels(s, (3, 4))
    n, kernel = v.rank - 2, s.choose([3, 1, 2])
    groups = s.choose([1, channels])
    out = groups * s.choose([1, 4])
    options = s.choose(["", ", padding=1", ", stride=2, padding=1", ", dilation=2, padding=2"])
    bias = s.parameter([out], v.dtype) if s.choose([True, False]) else "None"
    w = s.parameter([out, channels // groups, *[kernel] * n], v.dtype)
    s.step(f"F.conv{n}d({v.name}, {w}, {bias}{options}, groups={groups})", False)


def _group_norm(s: Sketch) -> None:
    v, channels = _channels(s, (3, 4))
    groups = s.choose([g for g in (1, 2, 4) if channels % g == 0])
    s.step(f"F.group_norm({v.name}, {groups}, eps=0.1)", False)


def _batch_norm(s: Sketch) -> None:
    v, channels = _channels(s, (2, 3, 4))
    mean, scale = s.parameter([channels], v.dtype), s.parameter([channels], v.dtype)
    s.step(f"F.batch_norm({v.name}, {mean}, {scale}.abs() + 0.5, eps=0.1)", False)


def _pool(s: Sketch) -> None:
    v, _ = _channels(s, (3, 4))
    n = v.rank - 2
    pools = [
        f"F.max_pool{n}d({v.name}, 2)",
        f"F.avg_pool{n}d({v.name}, 3, 1, 1)",
        f"F.adaptive_avg_pool{n}d({v.name}, 1)",
    ]
    s.step(s.choose(pools), False)


def _resize(s: Sketch) -> None:
    v, _ = _channels(s, (3, 4))
    smooth = ["linear"] if v.rank == 3 else ["bilinear", "bicubic"]
    mode = s.choose(["nearest", *smooth, "nearest-exact", "area"])
    small = [n for n in (v.fixed(d) for d in range(2, v.rank)) if n is None or n < 2]
    how = s.choose(["scale_factor=2", "scale_factor=1.5", "size=3"] + ([] if small else ["scale_factor=0.6"]))
    align = ", align_corners=True" if mode in smooth and s.choose([False, True]) else ""
    s.step(f'F.interpolate({v.name}, {how}, mode="{mode}"{align})', False)


def _attention(s: Sketch) -> None:
    q = s.pick(lambda v: v.is_float and v.rank in (3, 4))
    k = s.pick(
        lambda v: v.dtype == q.dtype and v.rank == q.rank and v.size(-1) == q.size(-1) and v.size(0) == q.size(0)
    )
    causal = ", is_causal=True" if s.choose([False, True]) else ""
    s.step(f"F.scaled_dot_product_attention({q.name}, {k.name}, {k.name}{causal})", False)


def _places(v: Value) -> bool:
    return v.dtype in (torch.int64, torch.int32)


def _embedding(s: Sketch) -> None:
    i = s.pick(_places)
    s.step(f"F.embedding({i.name} % 5, {s.parameter([5, s.choose([4, 8, 3])], torch.float32)})", False)


def _gather(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0)
    i = s.pick(lambda i: i.dtype is torch.int64 and i.rank == v.rank and i is not v)
    d = s.dim(v)
    s.step(f"torch.gather({v.name}, {d}, {i.name} % {v.name}.shape[{d}])", v.exact)


def _index(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0)
    i = s.pick(lambda i: i.dtype is torch.int64)
    s.step(f"{v.name}[{i.name} % {v.name}.shape[0]]", v.exact)


def _scatter(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0)
    i = s.pick(lambda i: i.dtype is torch.int64 and i.rank == v.rank)
    u = s.pick(lambda u: u.dtype == v.dtype and u.rank == v.rank)
    d = s.dim(v)
    s.step(f"{v.name}.scatter_add({d}, {i.name} % {v.name}.shape[{d}], {u.name})", False)


def _put(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0)
    text = s.choose(
        [
            "torch.slice_scatter({0}, {0}[1:] * 1, 0, 1)",
            "torch.select_scatter({0}, {0}[0] * 1, 0, -1)",
            "{0}.index_fill(0, torch.tensor([0]), 1)",
            "{0}.index_add(0, torch.tensor([0]), {0}[:1])",
        ]
    )
    s.step(text.replace("{0}", v.name), v.exact and "add" not in text)


def _cat(s: Sketch) -> None:
    a = s.pick(lambda v: v.rank > 0)
    d = s.dim(a)

    def fits(v: Value) -> bool:
        return v.rank == a.rank and all(v.size(e) == a.size(e) for e in range(a.rank) if e != d)

    b = s.pick(fits)
    s.step(f"torch.cat([{a.name}, {b.name}], {d})", a.exact and b.exact)


def _unflatten(s: Sketch) -> None:
    v = s.pick(lambda v: any((v.fixed(d) or 1) % 2 == 0 for d in range(v.rank)))
    d = s.dim(v, lambda d: (v.fixed(d) or 1) % 2 == 0)
    s.step(f"{v.name}.unflatten({d}, (2, -1))", v.exact)


def _permute(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank >= 2)
    order = list(range(v.rank))
    order = order[::-1] if s.choose([True, False]) else [*order[1:], 0]
    s.step(f"{v.name}.permute({', '.join(map(str, order))})", v.exact)


def _topk(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0 and v.exact and v.dtype is not torch.bool and min(v.size(-1)) >= 2)
    s.step(f"torch.topk({v.name}, {s.choose([1, 2])}).values", True)


def _written(s: Sketch) -> None:
    """Writes in place, through views of a copy."""
    v = s.pick(lambda v: v.rank > 0 and v.dtype is not torch.bool)
    d = s.dim(v)
    texts = [
        "{0}.clone().add_(1)",
        "{0}.clone().mul_({0})",
        "(lambda y: (y[0].add_(1), y)[1])({0}.clone())",
        "(lambda y: (y[..., ::2].mul_(2), y)[1])({0}.clone())",
        "(lambda y: (y.transpose(0, {d})[-1:].zero_(), y)[1])({0}.clone())",
        "(lambda y: (y.select({d}, 0).copy_(y.select({d}, -1)), y)[1])({0}.clone())",
        "(lambda y: (y.flatten()[1:].fill_(3), y)[1])({0}.clone())",
        "(lambda y: (y.__setitem__((..., 0), 1), y)[1])({0}.clone())",
        "(lambda y: (y.__setitem__(slice(1, None), y[:-1].clone()), y)[1])({0}.clone())",
        "(lambda y: (y.__setitem__(y > 1, 0), y)[1])({0}.clone())",
        "(lambda y, i: (y.__setitem__(i, 2), y)[1])({0}.clone(), torch.arange({0}.shape[0]).max())",
        "(lambda y, i: (y.__setitem__(slice(i, None), 2), y)[1])({0}.clone(), torch.arange({0}.shape[0]).max())",
        "{0}.clone().index_copy_({d}, torch.tensor([0]), {0}.narrow({d}, -1, 1))",
        "{0}.clone().masked_fill_({0} < 0, 0)",
    ]
    s.step(s.choose(texts).replace("{0}", v.name).replace("{d}", str(d)), False)


BRANCHES = _rows(
    """
    {0}.sum() > 0    | lambda x: x.sin() | lambda x: x.cos() + 1
    ({0} > 0).any()  | lambda x: x.softmax(-1) | lambda x: x * 2
    ({0} > 0).all()  | lambda x: (x - 1).abs() | lambda x: torch.cond(x.max() > 2, torch.sin, lambda y: y - 1, (x,))
    """
)
LOOPS = _rows(
    """
    i < 3                    | x * 0.5 + i
    (i < 5) & (x.sum() < 50) | x + x.abs().mean(-1, keepdim=True)
    """
)


def _branch(s: Sketch) -> None:
    v = s.pick(lambda v: v.is_float and v.exact)
    test, yes, no = s.choose(BRANCHES)
    s.step(f"torch.cond({test}, {yes}, {no}, ({v.name},))".replace("{0}", v.name), False)


def _loop(s: Sketch) -> None:
    v = s.pick(lambda v: v.is_float and v.exact)
    test, step = s.choose(LOOPS)
    first = "torch.zeros((), dtype=torch.int64)"
    s.step(f"torch.while_loop(lambda i, x: {test}, lambda i, x: (i + 1, {step}), ({first}, {v.name}))[1]", False)


def _found_rows(s: Sketch) -> None:
    """Sizes that the run finds, and what comes back to sizes that are known."""
    v = s.pick(lambda v: v.rank > 0 and v.exact)
    texts = [
        "{0}[{0} > 0].sum()",
        "({0} != 0).nonzero().sum(0)",
        "torch.unique({0}).sum()",
        "{0}[torch.arange({0}.shape[0]) % 2 == 0].sum(0)",
        "torch.masked_select({0}, {0} > 1).cumsum(0).sum()",
        "{0}[torch.arange({0}.shape[0]).max()]",
        "torch.repeat_interleave({0}, torch.arange({0}.shape[0]) % 3, 0).sum(0)",
    ]
    s.step(s.choose(texts).replace("{0}", v.name), False)


def _bag(s: Sketch) -> None:
    i = s.pick(lambda v: _places(v) and v.rank == 2)
    s.step(
        f"F.embedding_bag({i.name} % 5, {s.parameter([5, 4], torch.float32)}, mode={s.choose(['sum', 'mean'])!r})",
        False,
    )


def _segment(s: Sketch) -> None:
    v = s.pick(lambda v: v.rank > 0 and v.is_float)
    text = s.choose(
        [
            "torch.zeros(3, *{0}.shape[1:], dtype={0}.dtype).index_add_(0, torch.arange({0}.shape[0]) % 3, {0})",
            "torch.zeros_like({0}).scatter_reduce(0, torch.zeros_like({0}, dtype=torch.int64), {0}, 'amax')",
            "torch.zeros_like({0}).index_put((torch.arange({0}.shape[0]),), {0}, accumulate=True)",
            "torch.bincount(torch.arange({0}.shape[0]) % 4, minlength=5)",
            "F.one_hot(torch.arange({0}.shape[0]) % 4, 6)",
        ]
    )
    s.step(text.replace("{0}", v.name), False)


def _transposed_conv(s: Sketch) -> None:
    v, channels = _channels(s, (3, 4))
    n = v.rank - 2
    w = s.parameter([channels, s.choose([2, 5]), *[s.choose([2, 3])] * n], v.dtype)
    s.step(f"F.conv_transpose{n}d({v.name}, {w}, stride={s.choose([1, 2])})", False)


WINDOWED = _rows(
    """
    F.unfold({0}, 2)
    F.pixel_unshuffle({0}, 1)
    F.max_pool2d({0}, 2, 1, 1)
    F.lp_pool2d({0}.abs() + 1, 2, 2)
    F.adaptive_max_pool2d({0}, (1, 2))
    F.pad({0}, (1, 1, 1, 0), mode="reflect")
    F.pad({0}, (1, 0, 0, 1), mode="replicate")
    """
)


def _windowed(s: Sketch) -> None:
    v, _ = _channels(s, (4,))
    (text,) = s.choose(WINDOWED)
    s.step(text.replace("{0}", v.name), False)


def _stays_small(s: Sketch) -> None:
    """The next steps start from small numbers again."""
    v = s.pick(lambda v: v.is_float)
    s.step(f"torch.tanh({v.name})", False)


FUNCTIONS = (
    *(_matmul, _product_with_itself, _linear, _linear, _layer_norm, _rms_norm, _conv, _conv, _group_norm, _batch_norm),
    *(_pool, _resize, _attention, _embedding, _gather, _index, _scatter, _put, _cat, _unflatten, _permute, _topk),
    *(_written, _written, _branch, _loop, _found_rows, _bag, _segment, _transposed_conv, _windowed, _stays_small),
)
#: simplest first: a failure shrinks towards the front. Functions come twice, for they are few.
OPERATORS: list[Step] = [
    *map(_unary, UNARY),
    *map(_binary, BINARY),
    *map(_binary, BINARY),
    *map(_movement, MOVEMENTS),
    *map(_reduction, REDUCTIONS),
    *FUNCTIONS,
    *FUNCTIONS,
]
#: for programs of reductions, norms and windows, and of what stands between them
REDUCING: list[Step] = [
    *map(_unary, UNARY[::4]),
    *map(_binary, BINARY[::4]),
    *map(_movement, MOVEMENTS[::2]),
    *map(_reduction, REDUCTIONS),
    *map(_reduction, REDUCTIONS),
    *[_layer_norm, _rms_norm, _group_norm, _batch_norm, _pool, _resize, _cat, _linear] * 3,
]
