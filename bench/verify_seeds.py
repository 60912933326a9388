"""How often verification refuses right packages: every model of the list, with several weights and seeds of inputs.

    python bench/verify_seeds.py [--runs 300] [NAME ...]

A compile that fails for one seed of a hundred fails by chance, which is a fault of the verification. Each model is
compiled once for each set of weights; its package is then compared with the model for many seeds of inputs, exactly as
a compile does it. Exit code 1: something was refused.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mycc
import torch
from mycc.compiler.capture import capture
from mycc.compiler.package.assemble import run_torch
from mycc.compiler.verify import verify
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
Example = tuple[Any, tuple[torch.Tensor, ...]]


def scalar() -> Example:
    """A regression with one number as its output."""
    layers = (nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1), nn.Flatten(0))
    return nn.Sequential(*layers).eval(), (torch.randn(1, 64),)


def energy() -> Example:
    """An energy and its forces: messages between atoms, and their gradient."""
    embedding, out = nn.Embedding(10, 16), nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
    filters = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 16))
    linear, centers = nn.Linear(16, 16), torch.linspace(0, 5, 8)

    def forces(z: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = positions.detach().requires_grad_(True)
        i, j = edges
        distance = (positions[i] - positions[j]).norm(dim=1)
        smooth = 0.5 * (torch.cos(distance * math.pi / 5) + 1)
        weight = filters(torch.exp(-2 * (distance[:, None] - centers) ** 2)) * smooth[:, None]
        x = embedding(z)
        total = out(x + torch.zeros_like(x).index_add(0, i, linear(x)[j] * weight)).sum()
        return total.detach(), -torch.autograd.grad(total, positions)[0]

    i = torch.randint(0, 6, (20,))
    edges = torch.stack([i, (i + torch.randint(1, 6, (20,))) % 6])
    arguments = (torch.randint(0, 10, (6,)), torch.randn(6, 3) * 2, edges)
    return make_fx(forces)(*arguments), arguments


def ties() -> Example:
    """Places of equal elements, as outputs and on the way."""

    def forward(ids: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor, table: torch.Tensor) -> Any:
        top = scores.round().topk(5, 1)
        first = mask.long().argsort(dim=1, descending=True)
        return ids.topk(5, 1), ids.argsort(1), top, first, table[top.indices], ids.median(1), ids.kthvalue(3, 1)

    mask = torch.rand(4, 128) > 0.5
    return forward, (torch.randint(0, 3, (4, 40)), torch.randn(4, 40) * 2, mask, torch.randn(40, 8))


def experts() -> Example:
    """A router: which expert a token gets is a matter of rounding where two are nearly as good."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(32, 16)
            self.weight = nn.Parameter(torch.randn(16, 32, 32) / 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores, chosen = self.router(x).softmax(-1).topk(2, -1)
            return (torch.einsum("nd,nked->nke", x, self.weight[chosen]) * scores[..., None]).sum(1)

    return Experts().bfloat16().eval(), (torch.randn(64, 32).bfloat16(),)


def interpolation() -> Example:
    """A table with sorted places."""

    def forward(v: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        i = torch.searchsorted(places, v).clamp(1, 7)
        share = (v - places[i - 1]) / (places[i] - places[i - 1])
        return torch.lerp(values[i - 1], values[i], share)

    return forward, (torch.rand(64), torch.linspace(0, 1, 8), torch.randn(8))


CASES: Mapping[str, Callable[[], Example]] = {
    "scalar": scalar, "energy": energy, "ties": ties, "experts": experts, "interpolation": interpolation,
}  # fmt: skip
#: sets of weights of a model; the zoo's are seeded by themselves
WEIGHTS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="comparisons in all")
    parser.add_argument("names", nargs="*", help="models; all without")
    options = parser.parse_args()
    import small_zoo

    zoo = {name: getattr(small_zoo, name) for name in small_zoo.NAMES}
    models = {n: f for n, f in {**zoo, **CASES}.items() if not options.names or n in options.names}
    each, refused, done = -(-options.runs // len(models)), 0, 0
    for name, factory in models.items():
        weights = WEIGHTS if name in CASES else 1
        found = [line for w in range(weights) for line in _refusals(factory, w, -(-each // weights))]
        done += -(-each // weights) * weights
        refused += len(found)
        print(f"{name}: {len(found)} of {-(-each // weights) * weights} refused", *found, sep="\n  ", flush=True)
    print(f"{refused} of {done} refused")
    return 1 if refused else 0


def _refusals(factory: Callable[[], Example], weights: int, seeds: int) -> list[str]:
    """What is said of each seed at which the package is refused."""
    torch.manual_seed(weights)
    model, arguments = factory()
    with tempfile.TemporaryDirectory() as folder:
        package = mycc.compile(model, arguments, out=Path(folder) / "model.pkg", verify=False)
        entry = mycc.load(package).entry("forward")
        graph, found = capture(model, arguments), []
        for seed in range(seeds):
            try:
                verify(graph, run_torch(entry), seed=seed)
            except mycc.CompileError as error:
                found.append(f"weights {weights}, seed {seed}: {'; '.join(error.details)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
