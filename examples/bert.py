"""BERT-base from its transformers configuration, with random weights; batch and sequence length chosen at run time.

    mycc compile examples/bert.py --out bert.pkg
    mycc verify bert.pkg

Needs the transformers library; nothing is downloaded. For trained weights replace the model in get_model() by
BertModel.from_pretrained("bert-base-uncased", attn_implementation="sdpa").
"""

import torch
from torch import nn
from transformers import BertConfig, BertModel

dynamic_shapes = {
    "input_ids": {
        0: torch.export.Dim("batch", min=1, max=64),
        1: torch.export.Dim("seq", min=1, max=512),
    }
}


class Encoder(nn.Module):
    """input_ids i64[batch, seq] -> hidden f32[batch, seq, 768]. All tokens are real: no padding mask."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=input_ids).last_hidden_state


def get_model() -> nn.Module:
    torch.manual_seed(0)
    return Encoder(BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)).eval()


def get_example_inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randint(0, 30522, (1, 128)),)
