"""What the model asks of its values while it runs."""

from __future__ import annotations

from ...ir.index import ZERO
from ...ir.program import Assert
from .context import Context
from .registry import row
from .tensor import Tensor


@row("mycc.assert_true.default")
def assert_true(ctx: Context, condition: Tensor, text: str) -> None:
    builder = ctx.builder
    flag = builder.map((), "bool", lambda _: condition.at([ZERO] * condition.rank))
    assert flag.strided is not None
    builder.add(Assert((), (), builder.origin, flag.strided.buffer, text))
