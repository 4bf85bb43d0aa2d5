"""The cases of the parity suite: model, data, exporter, optimizers.

Data is synthetic and seeded. Every case has five distinct batches, stored one after another in
one .npy file per input; step s (from 0) trains on batch s % 5, without shuffling.
"""

import dataclasses
from typing import Callable, Optional

import numpy as np

import models

BATCHES = 5
STEPS = 20
IGNORE = -100


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    build: Callable
    data: Callable  # (generator, rows) -> (input array, label array)
    input_name: str
    batch: int
    exporter: str  # "torchscript" (training mode) or "dynamo"
    opset: int
    momentum_lr: float
    adamw_lr: float
    seed: int
    symbolic_batch: bool = True
    ignore_index: Optional[int] = None
    equal_norms: bool = False  # starts pairs of norms at equal values, which exporters merge


def features(rng, rows):
    """Seven clusters in 13 dimensions."""
    labels = rng.integers(0, 7, rows)
    centres = rng.standard_normal((7, 13))
    x = centres[labels] + 0.5 * rng.standard_normal((rows, 13))
    return x.astype(np.float32), labels.astype(np.int64)


def images(channels, size, classes):
    """Noisy smooth prototypes, one per class."""

    def make(rng, rows):
        labels = rng.integers(0, classes, rows)
        coarse = rng.standard_normal((classes, channels, 4, 4))
        prototypes = coarse.repeat(size // 4, axis=2).repeat(size // 4, axis=3)
        x = prototypes[labels] + 0.7 * rng.standard_normal((rows, channels, size, size))
        return x.astype(np.float32), labels.astype(np.int64)

    return make


def walks(rng, rows, vocab, length):
    """Token sequences that step by 1, 2 or 3: predictable in part."""
    steps = rng.choice(3, size=(rows, length), p=[0.7, 0.2, 0.1]) + 1
    return (rng.integers(0, vocab, (rows, 1)) + np.cumsum(steps, axis=1)) % vocab


def next_tokens(rng, rows, vocab=43, length=13):
    tokens = walks(rng, rows, vocab, length + 1)
    return tokens[:, :-1].astype(np.int64), tokens[:, 1:].astype(np.int64)


def masked_tokens(rng, rows, vocab=37, length=11):
    """Token 0 is the mask; labels are ignored elsewhere. Rows hold unequal numbers of masks."""
    tokens = walks(rng, rows, vocab - 1, length) + 1
    masked = rng.random((rows, length)) < 0.3
    masked[:, 0] = True
    labels = np.where(masked, tokens, IGNORE)
    return np.where(masked, 0, tokens).astype(np.int64), labels.astype(np.int64)


# Seed and learning rates of resnet18 are chosen so that no ReLU input of the first steps lies within
# rounding distance of zero: otherwise float32 gradients differ by 1e-3 between memory formats.
CASES = [
    Case("mlp", models.Mlp, features, "features", 11, "torchscript", 9, 0.2, 0.02, 11),
    Case("lenet", models.LeNet, images(1, 28, 10), "image", 6, "torchscript", 11, 0.05, 0.003, 12,
         symbolic_batch=False),
    Case("resnet18", models.ResNet18, images(3, 32, 9), "image", 4, "torchscript", 17, 0.005, 5e-4,
         147),
    Case("bert", models.Bert, masked_tokens, "input_ids", 7, "torchscript", 17, 0.05, 0.003, 14,
         ignore_index=IGNORE, equal_norms=True),
    Case("gpt", models.Gpt, next_tokens, "input_ids", 6, "dynamo", 20, 0.05, 0.003, 15),
    Case("convnext", models.ConvNext, images(3, 20, 8), "image", 5, "dynamo", 20, 0.05, 0.001, 16),
]
