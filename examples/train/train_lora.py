"""Trains the adapters of lora.py on a few lines of text, without torch.

python examples/train/train_lora.py lora.pkg --steps 100 --save adapters.safetensors
"""

import argparse

import mycc
import numpy as np

TEXT = (
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs. "
    "How vexingly quick daft zebras jump. Sphinx of black quartz, judge my vow. "
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save")
    options = parser.parse_args()
    t = mycc.load(options.package)
    text = np.frombuffer((4 * TEXT).encode(), np.uint8).astype(np.int64)
    batch, length = 8, 32  # the sizes of lora.py
    random = np.random.default_rng(0)
    for i in range(options.steps):
        starts = random.integers(0, len(text) - length - 1, batch)
        x, y = (np.stack([text[s + shift : s + shift + length] for s in starts]) for shift in (0, 1))
        loss = float(t.step(x, y))
        if i % 20 == 0 or i == options.steps - 1:
            print(f"step {i}: loss {loss:.3f}")
    trained = sum(value.size for value in t.parameters().values())
    print(f"trained {trained} numbers; all others are constants of the package")
    if options.save:
        t.save(options.save)


if __name__ == "__main__":
    main()
