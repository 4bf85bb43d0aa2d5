"""The architectures of the zoo (README.md, "The zoo"): torchvision's own classes at tiny widths, and
the sequence models that it lacks. Constants are powers of two, as in models.py."""

import functools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.models import convnext, efficientnet, mobilenetv3, resnet, vision_transformer

import models

EPS = models.EPS


def resnet18():
    """torchvision's forward and blocks, width 4 instead of 64, the first stride 1 for 32x32 images."""
    return tiny_resnet(resnet.BasicBlock, [2, 2, 2, 2], 4)


def resnet50():
    """The last norm of each block starts small, as torchvision's zero_init_residual intends: with 50
    layers of full gain PyTorch's own float32 gradients lie 1e-4 off."""
    model = tiny_resnet(resnet.Bottleneck, [3, 4, 6, 3], 4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bn3.weight"):
                parameter.mul_(0.2)
    return model


def tiny_resnet(block, layers, width):
    class Tiny(resnet.ResNet):
        def __init__(self):
            nn.Module.__init__(self)
            self._norm_layer = nn.BatchNorm2d
            self.inplanes, self.dilation, self.groups, self.base_width = width, 1, 1, 64
            self.conv1 = nn.Conv2d(3, width, 7, 1, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = self._make_layer(block, width, layers[0])
            self.layer2 = self._make_layer(block, width * 2, layers[1], stride=2)
            self.layer3 = self._make_layer(block, width * 4, layers[2], stride=2)
            self.layer4 = self._make_layer(block, width * 8, layers[3], stride=2)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(width * 8 * block.expansion, 9)

    return Tiny()


def mobilenet_v3():
    config = functools.partial(mobilenetv3.InvertedResidualConfig, width_mult=1.0)
    settings = [config(8, 3, 8, 8, True, "RE", 2, 1), config(8, 3, 24, 16, False, "RE", 2, 1),
                config(16, 3, 32, 16, False, "RE", 1, 1), config(16, 5, 32, 16, True, "HS", 2, 1),
                config(16, 5, 48, 16, True, "HS", 1, 1), config(16, 5, 32, 24, True, "HS", 1, 2)]
    return mobilenetv3.MobileNetV3(settings, 40, num_classes=9)


def efficientnet_b0():
    config = functools.partial(efficientnet.MBConvConfig, width_mult=0.2, depth_mult=0.5)
    settings = [config(1, 3, 1, 32, 16, 1), config(6, 3, 2, 16, 24, 2), config(6, 5, 2, 24, 40, 2),
                config(6, 3, 2, 40, 80, 3), config(6, 5, 1, 80, 112, 3)]
    return efficientnet.EfficientNet(settings, dropout=0.0, stochastic_depth_prob=0.0,
                                     num_classes=9, last_channel=48)


def convnext_tiny():
    block = convnext.CNBlockConfig
    return convnext.ConvNeXt([block(12, 20, 1), block(20, 28, 1), block(28, None, 2)],
                             num_classes=9)


def vit_b_16():
    return vision_transformer.VisionTransformer(
        image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=48,
        num_classes=9)


class UNet(nn.Module):
    """Two levels down and up; one Resize is nearest, one linear; logits are channels-last."""

    def __init__(self, width=5, classes=4):
        super().__init__()

        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                                 nn.BatchNorm2d(outputs), nn.SiLU())

        self.down1, self.down2 = block(3, width), block(width, 2 * width)
        self.bottom = block(2 * width, 3 * width)
        self.up2, self.up1 = block(5 * width, 2 * width), block(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.bottom(F.avg_pool2d(b, 2))
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.up2(torch.cat([y, b], 1))
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(self.up1(torch.cat([y, a], 1))).permute(0, 2, 3, 1)


class Cnn3d(nn.Module):
    """Convolutions, norms behind the activation, pools over volumes."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv3d(2, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm3d(6)
        self.conv2 = nn.Conv3d(6, 9, 3, stride=(1, 2, 2), dilation=(2, 1, 1), padding=(2, 1, 1))
        self.bn2 = nn.BatchNorm3d(9)
        self.head = nn.Linear(9, classes)

    def forward(self, x):
        x = F.max_pool3d(self.bn1(F.silu(self.conv1(x))), 2)
        x = F.avg_pool3d(self.bn2(F.silu(self.conv2(x))), (1, 2, 2))
        return self.head(x.mean([2, 3, 4]))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class LlamaBlock(nn.Module):
    """Grouped-query attention (2 heads share one key and value), then SwiGLU."""

    def __init__(self, width=32, heads=4, groups=2, head=16, inner=40):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, head
        self.input_norm, self.post_norm = RmsNorm(width), RmsNorm(width)
        self.q = nn.Linear(width, heads * head, bias=False)
        self.k = nn.Linear(width, groups * head, bias=False)
        self.v = nn.Linear(width, groups * head, bias=False)
        self.o = nn.Linear(heads * head, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        y = self.input_norm(x)
        q = self.q(y).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k(y).view(batch, length, self.groups, self.head).transpose(1, 2)
        v = self.v(y).view(batch, length, self.groups, self.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        shape = (batch, self.groups, self.heads // self.groups, length, self.head)
        k = k[:, :, None].expand(shape).reshape(batch, self.heads, length, self.head)
        v = v[:, :, None].expand(shape).reshape(batch, self.heads, length, self.head)
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.25 + mask, -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(batch, length, -1))
        y = self.post_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocab=43, length=13, width=32, layers=2, head=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([LlamaBlock(width, head=head) for _ in range(layers)])
        self.norm = RmsNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        frequencies = 1.0 / 10000 ** (torch.arange(0, head, 2).float() / head)
        angles = torch.arange(length).float()[:, None] * frequencies
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        mask = torch.full((length, length), -65536.0).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.lm_head(self.norm(x))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory, causal):
        def split(t):
            return t.view(t.size(0), t.size(1), self.heads, -1).transpose(1, 2)

        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(memory)),
                                           split(self.v(memory)), is_causal=causal)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class EncoderDecoder(nn.Module):
    """One encoder and one decoder layer; the decoder attends to itself and to the encoder."""

    def __init__(self, vocab=29, width=32, heads=2, inner=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Embedding(16, width)
        self.encoder, self.decoder = Attention(width, heads), Attention(width, heads)
        self.cross = Attention(width, heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(6)])
        self.up = nn.ModuleList([nn.Linear(width, inner) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(inner, width) for _ in range(2)])
        self.head = nn.Linear(width, vocab)

    def embedded(self, ids):
        return self.embed(ids) + self.position(torch.arange(ids.size(1)))

    def mlp(self, index, x):
        return self.down[index](F.gelu(self.up[index](x)))

    def forward(self, source, target):
        norms = self.norms
        x = self.embedded(source)
        y = norms[0](x)
        x = x + self.encoder(y, y, False)
        memory = x + self.mlp(0, norms[1](x))
        x = self.embedded(target)
        y = norms[2](x)
        x = x + self.decoder(y, y, True)
        x = x + self.cross(norms[3](x), memory, False)
        x = x + self.mlp(1, norms[4](x))
        return self.head(norms[5](x))


class LstmClassifier(nn.Module):
    def __init__(self, vocab=31, width=18, hidden=13, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, input_ids):
        return self.head(self.lstm(self.embed(input_ids))[0].mean(1))


class GruLm(nn.Module):
    def __init__(self, vocab=31, width=18, hidden=22):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.gru = nn.GRU(width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, input_ids):
        return self.head(self.gru(self.embed(input_ids))[0])


def prepare(model, seed):
    """Constants that are exact in float32; no Dropout; values off zero and one."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)):
            module.eps = EPS
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = models.MOMENTUM
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape,
                                                        generator=generator))
            module.running_var.copy_(1 + 0.5 * torch.rand(module.running_var.shape,
                                                          generator=generator))
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "layer_scale" in name:
                parameter.copy_(0.5 + 0.1 * noise)
            elif parameter.dim() == 1 or "embed" in name or "position" in name:
                if parameter.dim() > 1:
                    parameter.mul_(0.3)
                parameter.add_(0.1 * noise)
            elif float(parameter.std()) < 1e-3 or "class_token" in name:
                parameter.copy_(noise / math.sqrt(parameter.shape[-1]))
    return model
