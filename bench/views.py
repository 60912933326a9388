"""Operators behind views of their operand (transposed, channels last, cropped, flipped), beside eager torch.

    python bench/views.py [--threads 1] [--only padding] [--worst 40]

Each form is an entry point of one package, checked against torch when it is compiled; mycc and torch are timed in turn,
the least of the rounds. torch may give a result that is a view, or lies as its operand does, where mycc writes it in
order. GB/s count the operand and the results, each once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mycc
import torch
from torch import Tensor, nn
from view_forms import IMAGES, OF_IMAGES, OF_SIGNALS, SIGNALS, Operator, View

ROUNDS = 10


class Form(nn.Module):
    def __init__(self, view: View, operator: Operator) -> None:
        super().__init__()
        self.view, self.operator = view, operator

    def forward(self, x: Tensor) -> Any:
        return self.operator(self.view.view(x))


@dataclass(frozen=True)
class Row:
    name: str
    eager: float
    mycc: float
    bytes: int

    def __str__(self) -> str:
        rate = f"{1e3 * self.mycc:8.3f} ms {self.bytes / self.mycc / 1e9:6.1f} GB/s"
        return f"{self.name:48} {self.eager / self.mycc:7.2f}  mycc {rate}  eager {1e3 * self.eager:8.3f} ms"


def forms(only: str) -> Iterator[tuple[str, Form]]:
    for kind, views, operators in (("signal", SIGNALS, OF_SIGNALS), ("image", IMAGES, OF_IMAGES)):
        for view in views:
            for name, operator in operators.items():
                title = f"{kind}, {view.name}: {name}"
                if any(text in title for text in only.split(",")):
                    yield title, Form(view, operator).eval()


def operand(view: View) -> Tensor:
    if view.dtype == torch.uint8:
        return torch.randint(0, 256, view.shape, dtype=torch.uint8)
    return torch.randn(view.shape)


def measure(name: str, form: Form, entry: Any, x: Tensor) -> Row:
    eager, own = float("inf"), float("inf")
    for _ in range(ROUNDS):
        result = form(x)  # the caches are as warm as in a profile, whose first run does not count
        begin = time.perf_counter()
        form(x)
        eager = min(eager, time.perf_counter() - begin)
        own = min(own, sum(entry.profile([x], 1)) / 1e9)
    results = result if isinstance(result, (tuple, list)) else [result]
    return Row(name, eager, own, sum(t.numel() * t.element_size() for t in (x, *results)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="forms whose name contains one of these, with commas between")
    parser.add_argument("--worst", type=int, default=1000, help="rows to show, the slowest beside torch first")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    chosen = dict(forms(options.only))
    given = {name: operand(form.view) for name, form in chosen.items()}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        out = Path(folder) / "views.pkg"
        mycc.compile({f"form{i}": (form, (given[name],)) for i, (name, form) in enumerate(chosen.items())}, out=out)
        model = mycc.load(out, threads=options.threads)
        rows = [measure(n, form, model.entry(f"form{i}"), given[n]) for i, (n, form) in enumerate(chosen.items())]
    rows.sort(key=lambda row: row.eager / row.mycc)
    print(f"{len(rows)} forms, {sum(r.eager < r.mycc for r in rows)} slower than eager torch; eager / mycc:")
    for row in rows[: options.worst]:
        print(row)


if __name__ == "__main__":
    main()
