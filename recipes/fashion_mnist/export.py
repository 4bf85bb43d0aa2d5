#!/usr/bin/env python3
"""Exports the network of this recipe to model.onnx (PyTorch's TorchScript exporter).

Run it in the environment that `scripts/setup.sh --oracle` makes. Training mode without constant
folding keeps BatchNormalization and Dropout as they are trained. (The newer exporter, dynamo=True,
knows evaluation mode only.)
"""

import io
import pathlib

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import numpy_helper


class Net(nn.Module):
    """Three 3x3 convolutions with BatchNorm and pooling, then two linear layers: 0.17 M values."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(64)
        self.fc1 = nn.Linear(64 * 3 * 3, 256)
        self.dropout = nn.Dropout(0.25)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.max_pool2d(F.relu(self.bn3(self.conv3(x))), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(self.dropout(x))


def main():
    torch.manual_seed(1)
    model = Net().train()
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    stream = io.BytesIO()
    torch.onnx.export(
        model, (torch.zeros(2, 1, 28, 28),), stream, dynamo=False, opset_version=17,
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        input_names=["image"], output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}})
    result = onnx.load_from_string(stream.getvalue())
    # Tracing in training mode moves the running statistics; store the fresh ones.
    for tensor in result.graph.initializer:
        if tensor.name in fresh:
            tensor.CopyFrom(numpy_helper.from_array(fresh[tensor.name].numpy(), tensor.name))
    for part in [result, result.graph, *result.graph.node]:
        part.ClearField("doc_string")
    onnx.checker.check_model(result, full_check=True)
    path = pathlib.Path(__file__).resolve().parent / "model.onnx"
    path.write_bytes(result.SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
