"""A multilayer perceptron that classifies rows of 512 features, with a batch size chosen at run time.

    mycc compile examples/mlp.py --out mlp.pkg
    mycc run mlp.pkg

One package serves every batch size from 1 to 1024.
"""

from itertools import pairwise

import torch
from torch import nn


class MLP(nn.Module):
    """features f32[batch, 512] -> scores f32[batch, 10]."""

    def __init__(self, features: int = 512, hidden: int = 512, layers: int = 4, classes: int = 10) -> None:
        super().__init__()
        sizes = [features] + [hidden] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.classify = nn.Linear(hidden, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for layer in self.hidden:
            features = nn.functional.gelu(layer(features))
        return self.classify(features)


torch.manual_seed(0)
model = MLP().eval()
example_inputs = (torch.randn(2, 512),)
dynamic_shapes = {"features": {0: torch.export.Dim("batch", min=1, max=1024)}}
