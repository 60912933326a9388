"""Random programs that write to memory under several names: views, slices, transposes, rows that an index names (more
than once), expanded and overlapping memory of arguments, buffers and intermediates, also in branches and loops.

A program is a model file. Its twin for eager torch spells branches and loops in Python: torch's own, run eagerly, take
no bodies that write. Their results have memory of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from hypothesis import strategies as st

from .alias_steps import FRESH, VIEWS, WRITES, Row
from .programs import Draw, Extent, Input, Unfit

SIZES = ({"n": 4}, {"n": 6}, {"n": 3}, {"n": 5})  # of the calls; the first is what it is compiled with
SMALLEST, LARGEST = 3, 16
DRAWN_WITH = 3  # calls: with the least size too no index lies outside, as values that are not used raise nothing
PLACES = 3  # an index names the first so many elements of a dimension
MAGNITUDE = 1e6
DTYPES = ("float32", "float32", "float32", "int64", "float64", "int32")
_TWIN = """
def _cond(flag, then, other, operands):
    return (then(*operands) if flag else other(*operands)).clone()


def _while_loop(test, body, values):
    while test(*values):
        values = body(*values)
    return tuple(x.clone() for x in values)


"""


@dataclass(frozen=True)
class AliasProgram:
    """inputs: the arguments; buffers: name, shape and dtype; lines: of forward, blocks have deeper ones; results: names
    whose values are returned; raises: eager refuses its last line."""

    inputs: tuple[Input, ...]
    buffers: tuple[tuple[str, tuple[int, ...], str], ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    raises: bool = False

    @property
    def symbols(self) -> list[str]:
        return sorted({n for x in self.inputs for n in x.shape if isinstance(n, str)})

    def source(self) -> str:
        """The program as a model file for `mycc compile`."""
        returned = ", ".join(f"{name}.clone()" for name in self.results)
        body = "".join(f"        {line}\n" for line in (*self.lines, f"return ({returned},)"))
        dims = "".join(f'{s} = torch.export.Dim("{s}", min={SMALLEST}, max={LARGEST})\n' for s in self.symbols)
        shapes = ", ".join(
            f'"{x.name}": {{{", ".join(f"{d}: {n}" for d, n in enumerate(x.shape) if isinstance(n, str))}}}'
            for x in self.inputs
        )
        examples = ", ".join(_text(x) for x in self.inputs)
        held = "".join(
            f'        self.register_buffer("{n}", {_first(shape, dtype, i)})\n'
            for i, (n, shape, dtype) in enumerate(self.buffers)
        )
        return (
            "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{held}\n"
            f"    def forward(self, {', '.join(x.name for x in self.inputs)}):\n{body}\n\n"
            f"{dims}model = Model().eval()\nexample_inputs = ({examples},)\n"
            + (f"dynamic_shapes = {{{shapes}}}\n" if self.symbols else "")
        )

    def load(self, tag: str = "") -> dict[str, Any]:
        """The names of the model file; `tag` stands before the names of buffers."""
        return _run(re.sub(r"\bb(\d)\b", rf"{tag}b\1", self.source()))

    def twin(self) -> torch.nn.Module:
        """The model for eager torch."""
        return _run(_TWIN + _in_python(self.source()))["model"]  # type: ignore[no-any-return]

    def examples(self, call: int) -> tuple[torch.Tensor, ...]:
        """The arguments of a call."""
        return tuple(_example(x, call) for x in self.inputs)


def _in_python(text: str) -> str:
    return text.replace("torch.cond(", "_cond(").replace("torch.while_loop(", "_while_loop(")


@lru_cache(maxsize=64)
def _code(text: str) -> Any:
    return compile(text, "model.py", "exec")


def _run(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(_code(text), space)
    return space


def _example(x: Input, call: int) -> torch.Tensor:
    if not x.name.startswith("k"):
        return x.example(SIZES[call], call)
    generator = torch.Generator().manual_seed(call * 10 + int(x.name[1:]))
    return torch.randint(0, PLACES, [n for n in x.shape if isinstance(n, int)], generator=generator)


def _text(x: Input) -> str:
    shape = [SIZES[0][n] if isinstance(n, str) else n for n in x.shape]
    if x.name.startswith("k"):
        return f"torch.randint(0, {PLACES}, {shape})"
    return f"(torch.randint(-24, 25, {shape}) / 8).to(torch.{x.dtype})"


def _first(shape: Sequence[int], dtype: str, seed: int) -> str:
    text = f"torch.randint(-8, 9, {list(shape)}, generator=torch.Generator().manual_seed({seed}))"
    return f"({text} / 2).to(torch.{dtype})"


@dataclass
class Sketch:
    """A program while it is drawn: `known` are its tensors after calls with different sizes."""

    draw: Draw
    inputs: tuple[Input, ...]
    buffers: tuple[tuple[str, tuple[int, ...], str], ...]
    lines: list[str] = field(default_factory=list)
    known: list[dict[str, torch.Tensor]] = field(default_factory=list)
    count: int = 0
    raises: bool = False

    def name(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def pick(self, kinds: str, known: Sequence[dict[str, torch.Tensor]]) -> list[str]:
        """A tensor for each of `kinds`: a(ny), f(loat), s(quare), m(atrix)."""
        return [self._one(kind, known) for kind in kinds]

    def _one(self, kind: str, known: Sequence[dict[str, torch.Tensor]]) -> str:
        fits = {
            "a": lambda t: True,
            "f": lambda t: t.is_floating_point(),
            "m": lambda t: t.dim() >= 2,
            "s": lambda t: t.dim() == 2 and t.shape[0] == t.shape[1],
        }[kind]
        found = [n for n in reversed(known[0]) if not n.startswith("k") and all(fits(k[n]) for k in known)]
        if not found:
            raise Unfit
        return self.draw(st.sampled_from(found))  # type: ignore[no-any-return]

    def try_lines(self, lines: Sequence[str]) -> None:
        """Adds lines, if eager torch takes them and says what they give."""
        program = AliasProgram(self.inputs, self.buffers, (*self.lines, *lines), ())
        try:
            self.known = [_tensors(program, call) for call in range(DRAWN_WITH)]
        except Unfit as unfit:
            if "single memory location" in str(unfit) and self.lines:
                self.lines += lines
                self.raises = True
                return
            raise
        self.lines += lines


def _tensors(program: AliasProgram, call: int) -> dict[str, torch.Tensor]:
    """The tensors that forward has at its end, by name, in the second call with these arguments."""
    text = _TWIN + _in_python(program.source())
    head, _, tail = text.rpartition("        return (,)\n")
    space = _run(f"{head}        return dict(locals())\n{tail}")
    model = space["model"]
    try:
        with torch.no_grad():
            model(*program.examples(call))
            found = model(*program.examples(call))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise Unfit(str(error)) from error
    tensors = {n: v for n, v in found.items() if isinstance(v, torch.Tensor)}
    for t in tensors.values():
        if not 0 < t.numel() <= 2000 or t.dim() > 4 or not bool((t.double().abs() <= MAGNITUDE).all()):
            raise Unfit
    return tensors


def meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share an element."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and bool(_places(a) & _places(b))


def _repeats(t: torch.Tensor) -> bool:
    """Whether elements lie over each other, but for those of `expand`, which torch refuses to write."""
    return 0 not in t.stride() and len(_places(t)) < t.numel()


def _places(t: torch.Tensor) -> set[int]:
    storage = torch.arange(t.untyped_storage().nbytes() // t.element_size())
    return set(storage.as_strided(t.shape, t.stride(), t.storage_offset()).flatten().tolist())


# steps ---------------------------------------------------------------------------------------------------------------
def _written(sketch: Sketch, row: Row, known: Sequence[dict[str, torch.Tensor]]) -> str:
    """The text of a row over known tensors; operands that are taken as they are lie apart from what is written."""
    names = sketch.pick(row.kinds, known)
    if row.writes and any(_repeats(k[names[0]]) for k in known):
        raise Unfit  # what is left in an element that several turns write is the last one's, whichever that is
    if row.raw and any(meet(k[names[0]], k[n]) for k in known for n in names[1:]):
        raise Unfit
    return row.text.format(*names)


def _plain(sketch: Sketch) -> None:
    kind = sketch.draw(st.sampled_from((VIEWS, WRITES, WRITES, FRESH)))
    text = _written(sketch, sketch.draw(st.sampled_from(kind)), sketch.known)
    sketch.try_lines([text if kind is WRITES else f"{sketch.name()} = {text}"])


def _block(sketch: Sketch, depth: str, own: dict[str, torch.Tensor]) -> Iterator[str]:
    """A few lines of a body, with names of their own."""
    known = [{**k, **own} for k in sketch.known]
    for i in range(sketch.draw(st.integers(1, 3))):
        kind = sketch.draw(st.sampled_from((WRITES, WRITES, VIEWS)))
        text = _written(sketch, sketch.draw(st.sampled_from(kind)), known)
        if kind is WRITES:
            yield f"{depth}{text}"
            continue
        name = f"u{i}"
        yield f"{depth}{name} = {text}"
        try:
            for k in known:
                k[name] = eval(text, {"torch": torch}, dict(k))
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise Unfit from error


def _value(sketch: Sketch, carried: str) -> str:
    """A new value of the shape and type of what is carried."""
    like = [k[carried] for k in sketch.known]
    same = [n for n in sketch.known[0] if all(_alike(k[n], x) for k, x in zip(sketch.known, like, strict=True))]
    other = sketch.draw(st.sampled_from(sorted(same)))
    number = f"{sketch.pick('a', sketch.known)[0]}.sum().clamp(-9, 9).to(a.dtype)"
    return sketch.draw(st.sampled_from(("a + 1", f"a - {other}", f"a + {number}", f"{other} + 1")))  # type: ignore[no-any-return]


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _loop(sketch: Sketch) -> None:
    (carried,) = sketch.pick("a", sketch.known)
    name = sketch.name()
    lines = [f"def body_{name}(i, a):", *_block(sketch, "    ", {}), f"    return i + 1, {_value(sketch, carried)}"]
    lines.append(f"def test_{name}(i, a):")
    if sketch.draw(st.integers(0, 3)) == 3:
        lines += _block(sketch, "    ", {})
    lines.append(f"    return i < {sketch.draw(st.sampled_from((2, 3, 1, 0)))}")
    start = "torch.zeros((), dtype=torch.int64)"
    lines.append(f"{name} = torch.while_loop(test_{name}, body_{name}, ({start}, {carried}))[1]")
    sketch.try_lines(lines)


def _branch(sketch: Sketch) -> None:
    (carried,) = sketch.pick("a", sketch.known)
    name = sketch.name()
    lines = []
    for side in ("then", "other"):
        lines.append(f"def {side}_{name}(a):")
        if side == "then" or sketch.draw(st.booleans()):
            lines += _block(sketch, "    ", {})
        lines.append(f"    return {_value(sketch, carried)}")
    flag = sketch.draw(st.sampled_from(("k0.sum() > 3", "k0[0] > 0", f"{carried}.sum() > 0")))
    lines.append(f"{name} = torch.cond({flag}, then_{name}, other_{name}, ({carried},))")
    sketch.try_lines(lines)


@st.composite
def alias_programs(draw: Draw, steps: int = 12) -> AliasProgram:
    """A program of up to `steps` statements, one or two arguments and indices, up to two buffers."""
    arguments = draw(st.lists(_tensor(dynamic=True), min_size=1, max_size=2))
    inputs = [Input(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(arguments)]
    inputs += [Input(f"k{i}", (4,), "int64") for i in range(draw(st.integers(1, 2)))]
    held = draw(st.lists(_tensor(dynamic=False), min_size=0, max_size=2))
    sketch = Sketch(draw, tuple(inputs), tuple((f"b{i}", s, d) for i, (s, d) in enumerate(held)))  # type: ignore[arg-type]
    sketch.try_lines([f"b{i} = self.b{i}" for i in range(len(held))])
    for _ in range(draw(st.integers(2, steps))):
        step = draw(st.sampled_from((*[_plain] * 7, _loop, _branch)))
        try:
            step(sketch)
        except Unfit:
            continue
        if sketch.raises:
            return AliasProgram(sketch.inputs, sketch.buffers, tuple(sketch.lines), (inputs[0].name,), True)
    made = [n for n in reversed(sketch.known[0]) if re.fullmatch(r"[vxb]\d+", n)]
    results = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return AliasProgram(sketch.inputs, sketch.buffers, tuple(sketch.lines), tuple(results))


@st.composite
def _tensor(draw: Draw, dynamic: bool) -> tuple[tuple[Extent, ...], str]:
    extents: list[Extent] = [4, 3, 5, "n"] if dynamic else [4, 3, 5]
    shape = tuple(draw(st.lists(st.sampled_from(extents), min_size=1, max_size=3)))
    return shape, draw(st.sampled_from(DTYPES))
