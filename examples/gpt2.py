"""GPT-2 (124 M) from its transformers configuration, with random weights: next-token logits of whole sequences.

    mycc compile examples/gpt2.py --out gpt2.pkg
    mycc verify gpt2.pkg

Needs the transformers library; nothing is downloaded. For trained weights replace the model in get_model() by
GPT2LMHeadModel.from_pretrained("gpt2", attn_implementation="sdpa").
"""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

dynamic_shapes = {
    "input_ids": {
        0: torch.export.Dim("batch", min=1, max=16),
        1: torch.export.Dim("seq", min=1, max=1024),
    }
}


class LanguageModel(nn.Module):
    """input_ids i64[batch, seq] -> logits f32[batch, seq, 50257]."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=input_ids, use_cache=False).logits


def get_model() -> nn.Module:
    torch.manual_seed(0)
    return LanguageModel(GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa"))).eval()


def get_example_inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randint(0, 50257, (1, 128)),)
