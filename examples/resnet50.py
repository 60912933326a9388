"""ResNet-50 from its transformers configuration, with random weights: images f32[batch, 3, 224, 224] -> logits.

    mycc compile examples/resnet50.py --out resnet50.pkg
    mycc verify resnet50.pkg

Needs the transformers library; nothing is downloaded. For trained weights replace the model in get_model() by
ResNetForImageClassification.from_pretrained("microsoft/resnet-50").
"""

import torch
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

dynamic_shapes = {"image": {0: torch.export.Dim("batch", min=1, max=64)}}


class ImageClassifier(nn.Module):
    """image f32[batch, 3, 224, 224] -> logits f32[batch, 1000]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=image).logits


def set_running_statistics(network: nn.Module, images: torch.Tensor) -> None:
    """Sets the running mean and variance of every batch norm from one batch.

    Untrained norms would leave the signal as random weights make it: it would fade away within 50 layers.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain average over the batches seen: here, this one
        norm.train()
    with torch.no_grad():
        network(images)
    for norm in norms:
        norm.eval()


def get_model() -> nn.Module:
    torch.manual_seed(0)
    model = ImageClassifier(ResNetForImageClassification(ResNetConfig(num_labels=1000))).eval()
    set_running_statistics(model, torch.randn(4, 3, 224, 224))
    return model


def get_example_inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(1, 3, 224, 224),)
