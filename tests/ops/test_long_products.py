"""Products of a long k and few elements: cut into parts for threads, of the same bits at any number of them."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ..helpers.programs import BATCH, Call1

K = 18432


Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


def head(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Case:
    return nn.Linear(K, columns).to(dtype), (torch.randn(rows, K).to(dtype),)


CASES: dict[str, Case] = {
    "one_row": head(1, 10),
    "one_row_of_panels": head(1, 64),
    "rows": head(8, 10),
    "more_rows": head(40, 33),
    "weights_of_16_bits": head(4, 16, torch.bfloat16),
    "softmax_behind": (Call1(lambda up, a: torch.softmax(up(a), -1), nn.Linear(K, 10)), (torch.randn(8, K),)),
    "norm_before": (Call1(lambda n, up, a: up(n(a)), nn.LayerNorm(K), nn.Linear(K, 10)), (torch.randn(8, K),)),
    "gate": (
        Call1(lambda g, up, a: F.silu(g(a)) * up(a), nn.Linear(K, 16), nn.Linear(K, 16)), (torch.randn(4, K),)
    ),
    "added": (Call1(lambda up, a, b: up(a) + b, nn.Linear(K, 10)), (torch.randn(8, K), torch.randn(8, 10))),
    "read_twice": (
        Call1(lambda up, down, a: down(up(a)) + up(a).sum(-1, True), nn.Linear(K, 16), nn.Linear(16, 7)),
        (torch.randn(3, K),),
    ),
    "two_operands": (Call1(lambda a, b: a @ b), (torch.randn(4, 16384), torch.randn(16384, 40))),
    "columns_of_two_operands": (Call1(lambda a, b: a @ b.t()), (torch.randn(3, K), torch.randn(20, K))),
    "gram": (Call1(lambda a: torch.bmm(a, a.transpose(1, 2))), (torch.randn(2, 16, K),)),
}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {name: (module.eval(), inputs) for name, (module, inputs) in CASES.items()}
    return mycc.compile(entries, out=tmp_path_factory.mktemp("long") / "long.pkg", verify=False)


@pytest.mark.parametrize("case", CASES)
def test_long_products(case: str, package: Path) -> None:
    module, inputs = CASES[case]
    results = [torch.as_tensor(mycc.load(package, threads=n).entry(case)(*inputs)) for n in (1, 2, 3)]
    want = module.double()(*(x.double() for x in inputs))
    limit = 1e-2 if inputs[0].dtype == torch.bfloat16 else 2e-6
    assert (results[0].double() - want).abs().max() <= limit * want.abs().max()
    assert all(torch.equal(results[0], r) for r in results)


def test_long_products_of_any_number_of_rows(tmp_path: Path) -> None:
    module, (x,) = head(64, 10)
    path = mycc.compile(module, (x[:8],), out=tmp_path / "rows.pkg", dynamic_shapes={"input": {0: BATCH}}, verify=False)
    model = mycc.load(path, threads=2)
    assert len(model.manifest["entry_points"][0]["kernels"]) == 2
    wants = module.double()(x.double())
    for rows in (1, 7, 64):
        got, want = torch.as_tensor(model(x[:rows])), wants[:rows]
        assert (got.double() - want).abs().max() <= 2e-6 * want.abs().max()
