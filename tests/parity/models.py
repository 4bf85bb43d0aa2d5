"""The models of the parity suite, in PyTorch.

Constants are chosen so that their float32 value (what an ONNX file holds) and their double value
(what PyTorch computes with) are the same number: epsilons and BatchNorm momenta are powers of two,
heads are 16 wide (scale 1/4), and GELU's sqrt(2) is written as its float32 value where the exporter
spells the function out. Otherwise agreement to 1e-8 would be a matter of luck.
Biases and norm weights start at random values: an exactly zero or one start would hide mistakes.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 2.0**-16
MOMENTUM = 0.125  # ONNX writes 1 - momentum = 0.875
SQRT2_F32 = 1.41421353816986083984375


class SpelledGelu(nn.Module):
    """GELU by erf, as the exporters write it below opset 20."""

    def forward(self, x):
        return x * (1.0 + torch.erf(x / SQRT2_F32)) * 0.5


def layer_norm(width):
    return nn.LayerNorm(width, eps=EPS)


class Mlp(nn.Module):
    """Three layers of odd widths: relu, then sigmoid, then the head."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(13, 29)
        self.fc2 = nn.Linear(29, 17)
        self.head = nn.Linear(17, 7)

    def forward(self, x):
        return self.head(torch.sigmoid(self.fc2(F.relu(self.fc1(x)))))


class LeNet(nn.Module):
    """LeNet-5 with 5x5 kernels: one average and one max pooling, tanh and relu."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 5, padding=2)
        self.conv2 = nn.Conv2d(5, 11, 5)
        self.fc1 = nn.Linear(11 * 5 * 5, 59)
        self.fc2 = nn.Linear(59, 41)
        self.fc3 = nn.Linear(41, 10)

    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(torch.tanh(self.fc2(x)))


def batch_norm(channels):
    return nn.BatchNorm2d(channels, eps=EPS, momentum=MOMENTUM)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = batch_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = batch_norm(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), batch_norm(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """ResNet-18 (basic blocks 2-2-2-2) with a 3x3 stem for 32x32 images and base width 5."""

    def __init__(self, width=5, classes=9):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = batch_norm(width)
        inputs = width
        for stage in range(4):
            outputs = width << stage
            blocks = [BasicBlock(inputs, outputs, 2 if stage else 1),
                      BasicBlock(outputs, outputs, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class BertLayer(nn.Module):
    """Post-norm encoder layer, attention spelled out."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.norm1 = layer_norm(width)
        self.up = nn.Linear(width, inner)
        self.gelu = SpelledGelu()
        self.down = nn.Linear(inner, width)
        self.norm2 = layer_norm(width)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 4.0, dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(x.size(0), x.size(1), -1)
        x = self.norm1(x + self.output(mixed))
        return self.norm2(x + self.down(self.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-like encoder with a masked-language-model head (transform, norm, decoder)."""

    def __init__(self, vocab=37, length=11, width=48, heads=3, inner=75, layers=2):
        super().__init__()
        self.word = nn.Embedding(vocab, width)
        self.position = nn.Embedding(length, width)
        self.norm = layer_norm(width)
        self.layers = nn.ModuleList([BertLayer(width, heads, inner) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.transform_norm = layer_norm(width)
        self.gelu = SpelledGelu()
        self.decoder = nn.Linear(width, vocab)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.norm(self.word(input_ids) + self.position(positions).unsqueeze(0))
        for layer in self.layers:
            x = layer(x)
        return self.decoder(self.transform_norm(self.gelu(self.transform(x))))


class GptBlock(nn.Module):
    """Pre-norm decoder block with fused qkv and causal attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = layer_norm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = layer_norm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class Gpt(nn.Module):
    """Two-layer GPT whose output head is the embedding matrix itself."""

    def __init__(self, vocab=43, length=13, width=32, heads=2, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.ln_f = layer_norm(width)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7, then norm and MLP channels-last, layer scale, residual."""

    def __init__(self, width):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = layer_norm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.down(F.gelu(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Two stages of ConvNeXt blocks with a patchify stem and a strided downsample."""

    def __init__(self, widths=(14, 27), classes=8):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 2, stride=2)
        self.stem_norm = layer_norm(widths[0])
        self.stage1 = nn.Sequential(ConvNextBlock(widths[0]), ConvNextBlock(widths[0]))
        self.down_norm = layer_norm(widths[0])
        self.down = nn.Conv2d(widths[0], widths[1], 2, stride=2)
        self.stage2 = nn.Sequential(ConvNextBlock(widths[1]), ConvNextBlock(widths[1]))
        self.head_norm = layer_norm(widths[1])
        self.head = nn.Linear(widths[1], classes)

    @staticmethod
    def channels_norm(norm, x):
        return norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def forward(self, x):
        x = self.stage1(self.channels_norm(self.stem_norm, self.stem(x)))
        x = self.stage2(self.down(self.channels_norm(self.down_norm, x)))
        return self.head(self.head_norm(x.mean([-2, -1])))


def randomize(model, generator):
    """Moves biases and one-dimensional weights off their zero or one starting values."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.1 * noise)
            elif "wte" in name or "wpe" in name or "word" in name or "position" in name:
                parameter.copy_(0.2 * noise)
