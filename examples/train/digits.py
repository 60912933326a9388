"""A classifier of handwritten digits with its loss and its optimizer: what `mycc compile --train` compiles.

mycc compile examples/train/digits.py --train --out digits.pkg
python examples/train/train.py digits.pkg
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

example_inputs = (torch.randn(32, 64),)
example_targets = (torch.randint(0, 10, (32,)),)
batch = torch.export.Dim("batch", min=2, max=4096)
dynamic_shapes = {"input": {0: batch}, "target": {0: batch}}
