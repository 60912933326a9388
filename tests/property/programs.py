"""Random programs: graphs of operators over random shapes, element types and dynamic sizes, drawn by hypothesis.

A program is the text of a small model file. While it is drawn, every step runs with two sets of sizes: two dimensions
are the same size where they agree in both, and a dimension is fixed where it does not change between them. It also runs
with the least sizes: a program has an answer there too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

SIZES = ({"n": 7, "m": 5}, {"n": 4, "m": 9})  # while a program is drawn
LEAST = {"n": 1, "m": 1}
LARGEST = 24  # of a dynamic size
ELEMENTS, RANK, MAGNITUDE = 20_000, 5, 1e4
FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
WHOLE = ("int64", "int32", "uint8", "bool")
Extent = int | str
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Unfit(Exception):
    """A step that cannot stand here."""


@dataclass(frozen=True)
class Value:
    """A name of the program, its tensors with both sets of sizes and with the least ones, and whether rounding cannot
    have touched them."""

    name: str
    pair: tuple[torch.Tensor, torch.Tensor]
    least: torch.Tensor
    exact: bool

    @property
    def dtype(self) -> torch.dtype:
        return self.pair[0].dtype

    @property
    def rank(self) -> int:
        return self.pair[0].dim()

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    def size(self, d: int) -> tuple[int, int]:
        """The size of a dimension in both sets."""
        return self.pair[0].shape[d], self.pair[1].shape[d]

    def fixed(self, d: int) -> int | None:
        """The size, where it is the same in both."""
        a, b = self.size(d)
        return a if a == b else None


@dataclass(frozen=True)
class Input:
    name: str
    shape: tuple[Extent, ...]
    dtype: str

    def example(self, sizes: dict[str, int], seed: int = 0) -> torch.Tensor:
        """Values with few digits, so that sums and comparisons of them are exact."""
        generator = torch.Generator().manual_seed(seed + sum(map(ord, self.name)))
        shape = [sizes[n] if isinstance(n, str) else n for n in self.shape]
        dtype = getattr(torch, self.dtype)
        if dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool()
        if not dtype.is_floating_point:
            return torch.randint(0 if dtype is torch.uint8 else -9, 10, shape, generator=generator).to(dtype)
        return (torch.randint(-24, 25, shape, generator=generator) / 8).to(dtype)


@dataclass(frozen=True)
class Program:
    """Inputs, parameters (name -> shape and seed), lines `v3 = torch.relu(v1)`, and the names of the results."""

    inputs: tuple[Input, ...]
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def symbols(self) -> list[str]:
        return sorted({n for x in self.inputs for n in x.shape if isinstance(n, str)})

    def source(self) -> str:
        """The program as a model file for `mycc compile`, with example inputs of the first sizes."""
        declared = "".join(
            f"        self.{n} = nn.Parameter({_parameter(shape, i, dtype)})\n"
            for i, (n, shape, dtype) in enumerate(self.parameters)
        )
        body = "".join(f"        {line}\n" for line in self.lines)
        dims = "".join(f'{s} = torch.export.Dim("{s}", min=1, max={LARGEST})\n' for s in self.symbols)
        examples = ", ".join(_example(x) for x in self.inputs)
        shapes = ", ".join(
            f'"{x.name}": {{{", ".join(f"{d}: {n}" for d, n in enumerate(x.shape) if isinstance(n, str))}}}'
            for x in self.inputs
        )
        return (
            "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
            "class Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{declared}\n"
            f"    def forward(self, {', '.join(x.name for x in self.inputs)}):\n"
            f"{body}        return ({', '.join(self.results)},)\n\n\n"
            f"{dims}model = Model().eval()\nexample_inputs = ({examples},)\n"
            + (f"dynamic_shapes = {{{shapes}}}\n" if self.symbols else "")
        )

    def load(self) -> dict[str, Any]:
        """The names of the model file."""
        space: dict[str, Any] = {}
        exec(self.source(), space)
        return space

    def examples(self, sizes: dict[str, int], seed: int = 0) -> tuple[torch.Tensor, ...]:
        return tuple(x.example(sizes, seed) for x in self.inputs)


def _parameter(shape: Sequence[int], i: int, dtype: str) -> str:
    text = f"torch.randn({list(shape)}, generator=torch.Generator().manual_seed({i})) / 2"
    return text if dtype == "float32" else f"({text}).to(torch.{dtype})"


def _example(x: Input) -> str:
    shape = [SIZES[0][n] if isinstance(n, str) else n for n in x.shape]
    if x.dtype == "bool":
        return f"torch.randint(0, 2, {shape}).bool()"
    if x.dtype in WHOLE:
        return f"torch.randint({0 if x.dtype == 'uint8' else -9}, 10, {shape}).to(torch.{x.dtype})"
    return f"(torch.randint(-24, 25, {shape}) / 8).to(torch.{x.dtype})"


@dataclass
class Sketch:
    """A program while it is drawn."""

    draw: Draw
    values: list[Value] = field(default_factory=list)
    parameters: list[tuple[str, tuple[int, ...], str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def pick(self, fits: Callable[[Value], bool]) -> Value:
        """One of the values that fit; the latest are the simplest choice, so that graphs grow deep."""
        found = [v for v in reversed(self.values) if fits(v)]
        if not found:
            raise Unfit
        return self.draw(st.sampled_from(found))  # type: ignore[no-any-return]

    def choose(self, options: Sequence[Any]) -> Any:
        if not options:
            raise Unfit
        return self.draw(st.sampled_from(list(options)))

    def dim(self, v: Value, fits: Callable[[int], bool] = lambda d: True) -> int:
        return int(self.choose([d for d in range(v.rank) if fits(d)]))

    def parameter(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        name = f"w{len(self.parameters)}"
        self.parameters.append((name, tuple(shape), str(dtype).removeprefix("torch.")))
        return f"self.{name}"

    def step(self, text: str, exact: bool) -> None:
        """Adds a line, if what it gives is fit to go on with."""
        pair = tuple(_fit(self._run(text, lambda v, i=i: v.pair[i])) for i in (0, 1))
        least = self._run(text, lambda v: v.least)
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values.append(Value(name, pair, least, exact))  # type: ignore[arg-type]

    def _run(self, text: str, given: Callable[[Value], torch.Tensor]) -> torch.Tensor:
        holder = type("Parameters", (), {})()
        for j, (name, shape, dtype) in enumerate(self.parameters):
            setattr(holder, name, eval(_parameter(shape, j, dtype), {"torch": torch}))
        space = {"torch": torch, "F": torch.nn.functional, "self": holder, **{v.name: given(v) for v in self.values}}
        try:
            result = eval(text, space)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            raise Unfit from error
        if not isinstance(result, torch.Tensor):
            raise Unfit
        return result


def _fit(result: torch.Tensor) -> torch.Tensor:
    if result.dim() > RANK or not 0 < result.numel() <= ELEMENTS:
        raise Unfit
    if result.is_floating_point() and not bool((result.double().abs() <= MAGNITUDE).all()):
        raise Unfit
    return result


@st.composite
def programs(draw: Draw, steps: int = 20, reducing: bool = False) -> Program:
    """A program of up to `steps` operators, one to three inputs and one to three results.

    reducing: most of them reduce, and there are some of them.
    """
    from .operators import OPERATORS, REDUCING

    operators = REDUCING if reducing else OPERATORS

    inputs = draw(st.lists(_inputs(), min_size=1, max_size=3))
    inputs = [Input(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(inputs)]
    sketch = Sketch(draw)
    sketch.values = [Value(x.name, (x.example(SIZES[0]), x.example(SIZES[1])), x.example(LEAST), True) for x in inputs]
    for _ in range(draw(st.integers(steps // 2 if reducing else 1, steps))):
        kept = len(sketch.parameters)
        try:
            draw(st.sampled_from(operators))(sketch)
        except Unfit:
            del sketch.parameters[kept:]
    made = [v.name for v in sketch.values[len(inputs) :]]
    if not made:
        made = [f"v{len(sketch.lines)}"]
        sketch.lines.append(f"{made[0]} = {inputs[0].name}.clone()")
    results = [made[-1], *(draw(st.sampled_from(made)) for _ in range(draw(st.integers(0, 2))))]
    return _trimmed(
        Program(tuple(inputs), tuple(sketch.parameters), tuple(sketch.lines), tuple(dict.fromkeys(results)))
    )


@st.composite
def _inputs(draw: Draw) -> tuple[tuple[Extent, ...], str]:
    extents = st.sampled_from([4, "n", "m", 1, 2, 3, 8, 16, 17])
    shape = tuple(draw(st.lists(extents, min_size=1, max_size=4)))
    dtype = draw(st.sampled_from(FLOATS)) if draw(st.integers(0, 3)) < 3 else draw(st.sampled_from(WHOLE))
    return shape, dtype


def _trimmed(program: Program) -> Program:
    """The program without lines that no result needs. Inputs stay."""
    import re

    needed, kept = set(program.results), []
    for line in reversed(program.lines):
        name, _, text = line.partition(" = ")
        if name in needed:
            kept.append(line)
            needed |= set(re.findall(r"\b[vxw]\d+\b", text))
    parameters = tuple((n, s, d) if n in needed else (n, (1,), d) for n, s, d in program.parameters)
    return Program(program.inputs, parameters, tuple(reversed(kept)), program.results)
