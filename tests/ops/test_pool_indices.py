"""Places of the maxima of pools: windows of -inf, of padding, of NaN, of equal numbers; as eager has them."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch

from .pool_samples import OF_FLOATS, POOLS, WIDE, inputs


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
)
def test_places(dtype: torch.dtype, tmp_path: Path) -> None:
    pools = POOLS | OF_FLOATS if dtype.is_floating_point else POOLS
    pools = pools | WIDE if dtype in (torch.float32, torch.float64) else pools
    values = inputs(dtype)
    path = mycc.compile(lambda x: [f(x) for f in pools.values()], (values[-1],), out=tmp_path / "p.pkg", verify=False)
    model = mycc.load(path)
    for x in values:
        for (name, f), got in zip(pools.items(), model(x), strict=True):
            torch.testing.assert_close(
                tuple(got) if isinstance(got, (list, tuple)) else got, f(x), rtol=0, atol=0, equal_nan=True, msg=name
            )
