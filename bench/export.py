"""Writes a benchmark model as ONNX, its data as .npy and the strategy that trains it.

    export.py MODEL OUTPUT_FOLDER
"""
import pathlib
import sys
import warnings

import numpy as np
import torch

import models

STRATEGY = """\
version: 1
model:
  dims: {{batch: {batch}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {optimizer}
  micro_batches: 1
data:
  kind: npy
  path: {folder}
  shuffle: false
  inputs:
    {input}: {{file: inputs.npy}}
    labels: {{file: labels.npy}}
run: {{dir: {folder}/run, steps: 24, log_every: 1}}
"""

OPTIMIZERS = {
    "resnet18": "{kind: momentum, lr: 0.01, momentum: 0.9}",
    "gpt2": "{kind: adamw, lr: 1e-4, betas: [0.9, 0.95], weight_decay: 0.1}",
}


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    model, inputs, labels, batch, input_name = models.make(name)
    np.save(folder / "inputs.npy", inputs)
    np.save(folder / "labels.npy", labels)
    warnings.filterwarnings("ignore")
    torch.onnx.export(
        model, (torch.from_numpy(inputs[:batch]),), str(folder / "model.onnx"), dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17,
        input_names=[input_name], output_names=["logits"], dynamic_axes={input_name: {0: "batch"}})
    (folder / "strategy.yaml").write_text(STRATEGY.format(
        batch=batch, optimizer=OPTIMIZERS[name], folder=folder, input=input_name))


main()
