#!/usr/bin/env python3
"""Exports the language model of this recipe to model.onnx (PyTorch's TorchScript exporter).

Run it in the environment that `scripts/setup.sh --oracle` makes. Training mode without constant
folding keeps what training needs: the embedding stays one tensor that is also the output head, and
tensors that start equal (norms, zero biases) stay apart. The newer exporter (dynamo=True) folds
transposed copies of weights, the head's among them, and merges tensors of equal value.
"""

import io
import pathlib

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 256, 128, 128, 4, 3


class Block(nn.Module):
    """Pre-norm decoder block: causal attention, then a four times wider GELU network."""

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        length = x.size(1)
        q, k, v = self.qkv(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(-1, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(-1, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class Gpt(nn.Module):
    """A GPT over bytes with learned positions; the embedding is the output head: 0.64 M values."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.05 / (2 * LAYERS) ** 0.5 if residual else 0.05)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, input_ids):
        positions = torch.arange(CONTEXT, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def main():
    torch.manual_seed(1)
    stream = io.BytesIO()
    torch.onnx.export(
        Gpt().train(), (torch.zeros(2, CONTEXT, dtype=torch.int64),), stream, dynamo=False,
        opset_version=20, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        input_names=["input_ids"], output_names=["logits"],
        dynamic_axes={"input_ids": {0: "batch"}, "logits": {0: "batch"}})
    result = onnx.load_from_string(stream.getvalue())
    for part in [result, result.graph, *result.graph.node]:
        part.ClearField("doc_string")
    onnx.checker.check_model(result, full_check=True)
    path = pathlib.Path(__file__).resolve().parent / "model.onnx"
    path.write_bytes(result.SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
