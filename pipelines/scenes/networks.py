"""The three networks in torch: the denoiser and the decoder that draw, and the encoder that training needs.

A picture is 3 x 64 x 64 numbers in [-1, 1], a latent 24 x 8 x 8. The convolutions work on the 8 x 8 grid as far as
they can: on a CPU a layer at 32 x 32 costs more than all of the denoiser.
"""

import math

import torch
from model import LATENT_SHAPE
from torch import nn
from torch.nn import functional
from vocabulary import WORDS

LATENT_CHANNELS, GRID, _ = LATENT_SHAPE
HIGHEST_FREQUENCY = 200  # of the waves a noise level is told in
WAVES = 32
ATTENTION_HEADS = 4
NORM_GROUPS = 8
SLOPE = 0.1  # of leaky ReLU below zero


class Denoiser(nn.Module):
    """Tells the direction from noise to picture: (latents, noise levels, words) -> as many latents."""

    def __init__(self, channels=104, width=128):
        super().__init__()
        self.level = nn.Sequential(nn.Linear(2 * WAVES, width), nn.SiLU(), nn.Linear(width, width))
        self.words = nn.Linear(len(WORDS), width)
        self.entry = conv3(LATENT_CHANNELS, channels)
        self.places = nn.Parameter(torch.zeros(1, channels, GRID, GRID))
        self.blocks = nn.ModuleList(ConditionedBlock(channels, width) for _ in range(4))
        self.attentions = nn.ModuleList(Attention(channels) for _ in range(3))
        self.norm = nn.GroupNorm(NORM_GROUPS, channels)
        self.exit = conv3(channels, LATENT_CHANNELS)
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, math.log(HIGHEST_FREQUENCY), WAVES)))

    def forward(self, latents, levels, words):
        angles = levels[:, None] * self.frequencies[None] * 3.0
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        condition = functional.silu(self.level(waves) + self.words(words))
        hidden = self.entry(latents) + self.places
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, condition)
            if number < len(self.attentions):
                hidden = self.attentions[number](hidden)
        return self.exit(functional.silu(self.norm(hidden)))


class ConditionedBlock(nn.Module):
    """A residual block whose middle is scaled and shifted by what was asked for."""

    def __init__(self, channels, width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(NORM_GROUPS, channels), conv3(channels, channels)
        self.norm2, self.conv2 = nn.GroupNorm(NORM_GROUPS, channels), silent(conv3(channels, channels))
        self.condition = nn.Linear(width, 2 * channels)

    def forward(self, hidden, condition):
        scale, shift = self.condition(condition)[:, :, None, None].chunk(2, 1)
        middle = self.norm2(self.conv1(functional.silu(self.norm1(hidden)))) * (1 + scale) + shift
        return hidden + self.conv2(functional.silu(middle))


class Attention(nn.Module):
    """Lets each of the 64 places look at all others."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(NORM_GROUPS, channels)
        self.query_key_value = nn.Conv2d(channels, 3 * channels, 1)
        self.exit = silent(nn.Conv2d(channels, channels, 1))

    def forward(self, hidden):
        count, channels, height, width = hidden.shape
        split = (count, 3, ATTENTION_HEADS, channels // ATTENTION_HEADS, height * width)
        query, key, value = self.query_key_value(self.norm(hidden)).reshape(split).transpose(-1, -2).unbind(1)
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(channels // ATTENTION_HEADS), -1)
        seen = (weights @ value).transpose(-1, -2).reshape(count, channels, height, width)
        return hidden + self.exit(seen)


class Decoder(nn.Module):
    """Latents -> pictures."""

    def __init__(self, channels=96, channels16=64, channels32=32):
        super().__init__()
        self.entry = conv3(LATENT_CHANNELS, channels)
        self.block8 = PlainBlock(channels)
        self.grow16, self.block16 = nn.Conv2d(channels, 4 * channels16, 1), PlainBlock(channels16)
        self.grow32, self.conv32 = nn.Conv2d(channels16, 4 * channels32, 1), conv3(channels32, channels32)
        self.exit = conv3(channels32, 12)

    def forward(self, latents):
        hidden = self.block8(self.entry(latents))
        hidden = self.block16(functional.pixel_shuffle(self.grow16(hidden), 2))
        hidden = functional.pixel_shuffle(self.grow32(hidden), 2)
        hidden = hidden + leaky(self.conv32(leaky(hidden)))
        return functional.pixel_shuffle(self.exit(hidden), 2)


class Encoder(nn.Module):
    """Pictures -> latents of mean 0 and variance 1, which the flow needs; only training has a use for it."""

    def __init__(self, channels=96):
        super().__init__()
        self.entry, self.shrink = conv3(48, 48), nn.Conv2d(192, channels, 1)
        self.blocks = nn.Sequential(PlainBlock(channels), PlainBlock(channels))
        self.exit, self.norm = conv3(channels, LATENT_CHANNELS), nn.BatchNorm2d(LATENT_CHANNELS, affine=False)

    def forward(self, pictures):
        hidden = leaky(self.entry(functional.pixel_unshuffle(pictures, 4)))
        hidden = self.shrink(functional.pixel_unshuffle(hidden, 2))
        return self.norm(self.exit(self.blocks(hidden)))


class PlainBlock(nn.Module):
    """A residual block without normalisation: fast on a CPU, and enough for pictures."""

    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = conv3(channels, channels), silent(conv3(channels, channels))

    def forward(self, hidden):
        return hidden + self.conv2(leaky(self.conv1(leaky(hidden))))


def conv3(channels_in, channels_out):
    return nn.Conv2d(channels_in, channels_out, 3, padding=1)


def silent(layer):
    """Let a residual branch begin by adding nothing: training starts from the identity."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def leaky(hidden):
    return functional.leaky_relu(hidden, SLOPE)
