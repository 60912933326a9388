"""Trains a package on scikit-learn's digits, 8x8 pixels each. No torch takes part.

    python examples/train/train.py digits.pkg --epochs 20 --save digits.safetensors
    python examples/train/train.py digits.pkg --epochs 40 --resume digits.safetensors --save digits.safetensors

A run that is stopped and resumed gives the same parameters, to the bit, as one that was not.
"""

import argparse
import math

import mycc
import numpy as np
from sklearn.datasets import load_digits

BATCH, PEAK = 64, 3e-3


def learning_rate(epoch: int, epochs: int) -> float:
    """Down along a cosine: schedules live outside of the package."""
    return PEAK * 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("--epochs", type=int, default=20, help="of the whole training")
    parser.add_argument("--stop", type=int, help="stop after this epoch")
    parser.add_argument("--resume", help="a file that --save wrote")
    parser.add_argument("--save", help="where parameters and the optimizer's state go")
    chosen = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1437], order[1437:]

    t = mycc.load(chosen.package)
    if chosen.resume:
        t.load(chosen.resume)
    steps = math.ceil(len(train) / BATCH)
    for epoch in range(t.steps // steps, chosen.stop or chosen.epochs):
        mixed = np.random.default_rng(epoch).permutation(train)
        for i in range(0, len(train), BATCH):
            rows = mixed[i : i + BATCH]
            t.step(images[rows], labels[rows], lr=learning_rate(epoch, chosen.epochs))
        loss, scores = t.evaluate(images[test], labels[test])
        accuracy = (scores.argmax(1) == labels[test]).mean()
        print(f"epoch {epoch + 1:2}  loss {float(loss):.4f}  accuracy {accuracy:.1%}")
    if chosen.save:
        t.save(chosen.save)


if __name__ == "__main__":
    main()
