"""mycc behind torch.compile: an MLP is trained for some steps, then `mycc.explain` says what became of it.

python examples/torch_compile.py
"""

from __future__ import annotations

import mycc
import torch
from torch import nn


def main(steps: int = 50) -> tuple[float, float]:
    """Trains on made-up data; gives the first and the last loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    fast = torch.compile(model, backend="mycc")
    x = torch.randn(256, 64)
    labels = (x @ torch.randn(64, 10)).argmax(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(fast(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(mycc.explain(fast, x))
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
