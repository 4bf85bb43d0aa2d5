"""The benchmark's models as people write them in PyTorch, and their data."""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    """Pre-norm transformer block with PyTorch's fused attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, seq, width = x.shape
        q, k, v = (
            t.view(batch, seq, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(self.ln_1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 small: tied embedding and output head, learned positions, no dropout."""

    def __init__(self, vocab=50257, width=768, layers=12, heads=12, context=1024):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


BATCHES = 4  # distinct batches in the data files, used in turn


def make(name):
    """Returns (model in training mode, inputs [BATCHES * batch, ...], labels, batch, input name)."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    if name == "resnet18":
        from torchvision.models import resnet18
        model = resnet18(num_classes=1000)
        batch = 16
        inputs = rng.standard_normal((BATCHES * batch, 3, 224, 224), dtype=np.float32)
        labels = rng.integers(0, 1000, (BATCHES * batch,), dtype=np.int64)
        return model.train(), inputs, labels, batch, "image"
    if name == "gpt2":
        model = Gpt2()
        batch = 4
        tokens = rng.integers(0, 50257, (BATCHES * batch, 257), dtype=np.int64)
        return (model.train(), np.ascontiguousarray(tokens[:, :-1]),
                np.ascontiguousarray(tokens[:, 1:]), batch, "input_ids")
    raise SystemExit(f"unknown model {name}; there are resnet18 and gpt2")


def loss_of(model, inputs, labels):
    logits = model(inputs)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
