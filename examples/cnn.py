"""A small convolutional network with a residual block that classifies 32 x 32 images.

    mycc compile examples/cnn.py --out cnn.pkg
    mycc run cnn.pkg

Each convolution becomes one kernel together with its batch norm and ReLU.
"""

import torch
from torch import nn


class ConvNorm(nn.Module):
    """Convolution, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(image)))


class CNN(nn.Module):
    """image f32[batch, 3, 32, 32] -> probability f32[batch, 10]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32)
        self.down = ConvNorm(32, 64, stride=2)
        self.block = nn.Sequential(ConvNorm(64, 64), ConvNorm(64, 64))
        self.pool = nn.MaxPool2d(2)
        self.classify = nn.Linear(64, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.down(self.stem(image))
        x = self.pool(x + self.block(x))
        return torch.softmax(self.classify(x.mean(dim=(2, 3))), dim=-1)


def with_running_statistics(network: nn.Module, images: torch.Tensor) -> nn.Module:
    """Sets the running mean and variance of every batch norm from one batch, as training would have done."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain average over the batches seen: here, this one
    network.train()
    with torch.no_grad():
        network(images)
    return network.eval()


torch.manual_seed(0)
model = with_running_statistics(CNN(), torch.randn(16, 3, 32, 32))
example_inputs = (torch.randn(2, 3, 32, 32),)
dynamic_shapes = {"image": {0: torch.export.Dim("batch", min=1, max=256)}}
