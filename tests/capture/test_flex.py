"""torch.nn.attention.flex_attention: the values of torch's own in float64, and steps that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

SIZE = 16


class Flex(torch.nn.Module):
    """score and mask are called with the module first."""

    def __init__(self, score: Callable[..., Any] | None = None, mask: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.score = score
        self.register_buffer("slopes", torch.tensor([0.1, 0.2, 0.3, 0.4]))
        self.register_buffer("documents", torch.arange(SIZE) // 5)
        self.block = None
        if mask is not None:
            shown = lambda b, h, i, j: mask(self, b, h, i, j)  # noqa: E731
            self.block = create_block_mask(shown, None, None, SIZE, SIZE, device="cpu")

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        score = None if self.score is None else lambda s, b, h, i, j: self.score(self, s, b, h, i, j)
        out, aux = flex_attention(
            q, k, v, score, self.block, enable_gqa=q.shape[1] != k.shape[1], return_aux=AuxRequest(lse=True)
        )
        return out, aux.lse


FORMS = {
    "plain": (None, None),
    "alibi": (lambda m, s, b, h, i, j: s + m.slopes[h] * (j - i), None),
    "softcap": (lambda m, s, b, h, i, j: 20 * torch.tanh(s / 20), None),
    "where": (lambda m, s, b, h, i, j: torch.where(i >= j, s + (j - i) * 0.1, -float("inf")), None),
    "documents": (None, lambda m, b, h, i, j: (m.documents[i] == m.documents[j]) & (i >= j)),
    "both": (lambda m, s, b, h, i, j: s * m.slopes[h] - b, lambda m, b, h, i, j: (i >= j) & (i - j < 4)),
    "nothing seen": (None, lambda m, b, h, i, j: (i >= 8) & (j < 3)),
}


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("form", FORMS)
def test_values(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Flex(*FORMS[form]).eval()
    heads = 2 if form == "documents" else 4
    inputs = (torch.randn(2, 4, SIZE, 8), torch.randn(2, heads, SIZE, 8), torch.randn(2, heads, SIZE, 8))
    package = mycc.compile(module, inputs, out=tmp_path / "flex.pkg", verify=False)
    found = mycc.load(package)(*inputs)
    for own, wanted in zip(found, module.double()(*(x.double() for x in inputs)), strict=True):
        torch.testing.assert_close(own.double(), wanted.double(), rtol=1e-5, atol=1e-5)


def test_what_is_no_function_of_single_numbers(tmp_path: Path) -> None:
    inputs = tuple(torch.randn(1, 4, SIZE, 8) for _ in range(3))
    for score in (lambda m, s, b, h, i, j: s + m.slopes.sum(), lambda m, s, b, h, i, j: s + m.table[h].amax()):
        module = Flex(score)
        module.register_buffer("table", torch.ones(4, 3))
        with pytest.raises(mycc.CompileError, match=r"score_mod of flex_attention calls (sum|getitem)"):
            mycc.compile(module, inputs, out=tmp_path / "flex.pkg")
