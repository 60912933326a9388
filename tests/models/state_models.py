"""A package with state: one counter and one cache that two entry points share, and an argument that is written to."""

import torch
from torch import nn

ROWS, SIZE = 8, 4


class Memory(nn.Module):
    """What the entry points share."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, ROWS, SIZE))
        self.register_buffer("count", torch.tensor(5))
        self.scale = nn.Parameter(torch.linspace(1, 2, SIZE))


class Write(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def forward(self, x, place):
        self.memory.cache[:, place] = x * self.memory.scale
        self.memory.cache[0, 1:3] += 1
        self.memory.count += place.shape[0]
        return self.memory.cache.sum(1) + self.memory.count


class Read(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.memory = memory

    def forward(self, i):
        return self.memory.cache[:, i], self.memory.count * 1


class Bump(nn.Module):
    def forward(self, x, y):
        old = x * 2
        x.add_(y)
        return old


class Half(nn.Module):
    """State in a dtype that numpy lacks."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.full((4,), 0.5, dtype=torch.bfloat16))

    def forward(self, x):
        self.total += x
        return self.total * 2


def entries(memory):
    place = torch.tensor([1, 4, 6])
    return {
        "write": (Write(memory), (torch.randn(2, 3, SIZE), place)),
        "read": (Read(memory), (place,)),
        "half": (Half(), (torch.randn(4, dtype=torch.bfloat16),)),
        "bump": (Bump(), (torch.randn(3, 5), torch.randn(5))),
    }


def make_entries():
    torch.manual_seed(0)
    return entries(Memory())
