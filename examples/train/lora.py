"""Adapters of low rank (LoRA) on a small frozen language model: what `mycc compile --train` compiles.

mycc compile examples/train/lora.py --train --out lora.pkg
python examples/train/train_lora.py lora.pkg

A model that peft has wrapped (`peft.get_peft_model`) compiles in the same way.
"""

import torch
from torch import nn

LENGTH, WIDTH, RANK = 32, 64, 4


class Adapted(nn.Module):
    """A frozen linear beside a trained product of two thin matrices."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, base.in_features) / RANK)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * (x @ self.lora_a.t()) @ self.lora_b.t()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = Adapted(nn.Linear(WIDTH, 3 * WIDTH)), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = Adapted(nn.Linear(WIDTH, 4 * WIDTH)), Adapted(nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Bytes(nn.Module):
    """The next byte of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embedding(text) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


torch.manual_seed(0)
model = Bytes()
for name, parameter in model.named_parameters():
    parameter.requires_grad_("lora" in name)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

example_inputs = (torch.randint(0, 256, (8, LENGTH)),)
example_targets = (torch.randint(0, 256, (8, LENGTH)),)
