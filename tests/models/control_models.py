"""Models with branches and loops, an entry point each."""

import torch
from torch import nn
from torch._higher_order_ops import associative_scan, cond, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

SIZE = 8


class Branch(nn.Module):
    """Parameters and a buffer in the branches, one of which does nothing to its operand."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)
        self.register_buffer("shift", torch.linspace(0, 1, SIZE))

    def forward(self, x):
        y = torch.relu(x) + self.shift
        a = cond(y.sum() > SIZE * x.shape[0], lambda t: self.linear(t).tanh(), lambda t: t.clone(), (y,))
        b = cond(x[0, 0] > 0, lambda t, u: (t + u, t[0].sum()), lambda t, u: (t * self.shift, u.max()), (a, x))
        return b[0] * y, b[1]


class Steps(nn.Module):
    """A loop whose number of steps is an input: a power iteration that may stop at once."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(SIZE, SIZE) / SIZE)

    def forward(self, x, n):
        def body(i, x, old):
            new = x @ self.matrix
            return i + 1, new / new.norm(), x.clone()

        start = torch.zeros((), dtype=torch.int64)
        i, x, old = while_loop(lambda i, x, old: i < n, body, (start, x, torch.zeros_like(x)))
        return x - old, i


class Fill(nn.Module):
    """A loop that fills a table row by row: each time it writes one row of it."""

    def forward(self, table, x):
        def body(i, table):
            row = table.index_select(0, (i - 1).reshape(1))[0] * 0.5 + x
            return i + 1, table.index_copy(0, i.reshape(1), row[None])

        return while_loop(lambda i, table: i < table.shape[0], body, (torch.ones((), dtype=torch.int64), table))[1]


class Recurrent(nn.Module):
    """A gated recurrence by scan, over a sequence of any length."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(2 * SIZE, SIZE)
        self.gate = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x):
        def step(h, x):
            both = torch.cat([h, x], -1)
            gate = torch.sigmoid(self.gate(both))
            h = gate * h + (1 - gate) * torch.tanh(self.cell(both))
            return h, (h * x).sum(-1)

        last, rows = scan(step, torch.zeros_like(x[0]), x)
        return last, rows


class Rows(nn.Module):
    def forward(self, x, w):
        halves = map_rows(lambda row, w: (torch.softmax(row, -1) @ w, row.max()), x, w)
        return (*halves, associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"))


class Nested(nn.Module):
    """A branch in a loop in a scan."""

    def forward(self, x, limit):
        def halve(i, row):
            return i + 1, cond(row.sum() > 1, lambda r: r * 0.5, lambda r: r - 1, (row,))

        def step(total, row):
            start = torch.zeros((), dtype=torch.int64)
            count, row = while_loop(lambda i, r: (r.abs().max() > limit) & (i < 20), halve, (start, row))
            return total + count, row

        return scan(step, torch.zeros((), dtype=torch.int64), x)


class Counting(nn.Module):
    """State beside control flow: the branch depends on what earlier calls have left."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("best", torch.full((SIZE,), -10.0))

    def forward(self, x):
        self.calls += 1
        new = cond(self.calls % 2 == 0, lambda b, x: torch.maximum(b, x), lambda b, x: b + 0 * x, (self.best, x))
        self.best.copy_(new)
        return new * self.calls


class Noisy(nn.Module):
    """Random numbers before, in and behind a branch, a scan and a loop."""

    def forward(self, x, n):
        x = x + torch.rand(SIZE)
        x = cond(x.sum() > SIZE / 2, lambda x: x + torch.randn(SIZE), lambda x: x * torch.rand(3).sum(), (x,))
        last, rows = scan(lambda c, row: (c + row * torch.rand(SIZE), c.clone()), x[0], x)
        start = torch.zeros((), dtype=torch.int64)
        _, x = while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x + torch.randn_like(x)), (start, x))
        return last, rows, x, torch.rand(3)


class Numbers(nn.Module):
    """Numbers of tensors, of operands and of values of its own, in branches; sizes of numbers from outside of them."""

    def forward(self, x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        y = cond(x.sum() > 0, lambda x, n: x * (n.item() * 2 + 1), lambda x, n: x - x.max().item() + n.item(), (x, n))
        return y, cond(y.mean() > 0, lambda y: y[:k].sum(0), lambda y: y.sum(0) * k, (y,))


class Found(nn.Module):
    """Sizes that branches find, one inside of another, between sizes that the run finds outside."""

    def forward(self, x, n):
        rows = x[torch.nonzero(x[:, 0] > 0)[:, 0]]

        def first(x, n):
            k = n.item()
            torch._check(k >= 0)
            torch._check(k <= x.shape[0])
            ones = x.new_ones(k, SIZE)

            def kept(x, ones):
                return x[x > 0.1].sum() + ones.cumsum(0).sum(0)

            return cond(x[0, 0] > 0, kept, lambda x, ones: x.sum(0) + ones.shape[0], (x, ones)) + x[:k].sum(0)

        y = cond(n > 1, first, lambda x, n: x[x.sum(1) > 0].cumsum(0).sum(0) * 2, (x, n))
        places = torch.nonzero(y > 0)[:, 0]
        return rows + y, y[places] * 2, places


class FoundInLoops(nn.Module):
    """Sizes that each turn of a loop finds anew."""

    def forward(self, x, n):
        def step(i, total):
            k = i.item()
            torch._check(k >= 0)
            torch._check(k <= x.shape[0])
            return i + 1, total + x[:k].sum(0) * torch.ones(k).sum() + x[x > i / 4].sum()

        return while_loop(lambda i, total: i < n, step, (torch.zeros_like(n), x[0].clone()))[1]


class FoundInScans(nn.Module):
    """Sizes that each step of a scan finds anew."""

    def forward(self, x):
        return scan(lambda c, r: (c + r[r > 0].sum(), r[r > 0].cumsum(0).sum() + c), x.new_zeros(()), x)


MODELS = {
    "branch": (Branch, (torch.randn(3, SIZE),)),
    "steps": (Steps, (torch.randn(4, SIZE), torch.tensor(3))),
    "fill": (Fill, (torch.zeros(6, SIZE), torch.randn(SIZE))),
    "recurrent": (Recurrent, (torch.randn(5, 2, SIZE),)),
    "rows": (Rows, (torch.randn(5, SIZE), torch.randn(SIZE, 3))),
    "nested": (Nested, (torch.randn(3, 4) * 5, torch.tensor(1.0))),
    "counting": (Counting, (torch.randn(SIZE),)),
    "numbers": (Numbers, (torch.randn(6, SIZE), torch.tensor(3))),
    "found": (Found, (torch.randn(6, SIZE), torch.tensor(3))),
    "found_in_loops": (FoundInLoops, (torch.randn(6, SIZE), torch.tensor(3))),
    "found_in_scans": (FoundInScans, (torch.randn(6, SIZE),)),
    "noisy": (Noisy, (torch.randn(4, SIZE), torch.tensor(3))),
}
if torch.__version__ < "2.12":  # eager's own scan raises InternalTorchDynamoError there
    del MODELS["found_in_scans"]
DYNAMIC = {
    "branch": {"x": {0: torch.export.Dim("batch", min=1, max=64)}},
    "recurrent": {"x": {0: torch.export.Dim("length", min=2, max=64)}},
}


def make(name):
    torch.manual_seed(0)
    return MODELS[name][0]().eval()


def entries():
    return {name: (make(name), inputs, None, DYNAMIC.get(name)) for name, (_, inputs) in MODELS.items()}
