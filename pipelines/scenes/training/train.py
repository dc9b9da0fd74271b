"""Train the model: `python -m training.train CHECKPOINT`, in the folder above this one; needs torch, numpy and Pillow.

Two stages: encoder and decoder learn to keep a picture in a latent, then the denoiser learns the flow from noise to the
latents. Run again with the same checkpoint it goes on from there. Promises: so many steps, from a seed; the checkpoint
is replaced in one piece. Does not promise the shipped weights: those had 24,000 pictures and 15,615 steps of the second
stage, an hour and a half on two shared cores.
"""

import argparse
import copy
import math
import os
import random
from pathlib import Path

import numpy as np
import torch
from networks import Decoder, Denoiser, Encoder
from training.pictures import render
from vocabulary import GROUPS, WORDS

PICTURES_AT_ONCE, LATENTS_AT_ONCE = 16, 32
LATENT_NOISE = 0.1  # the decoder must bear what the denoiser leaves
DROPPED_GROUP, DROPPED_ALL = 0.12, 0.1  # so that the denoiser learns "any", which guidance needs
AVERAGE = 0.999  # of the weights over steps: what is exported
GROUP_OF_WORD = torch.tensor([number for number, words in enumerate(GROUPS.values()) for _ in words])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--pictures", type=int, default=24_000)
    parser.add_argument("--autoencoder-steps", type=int, default=6_000)
    parser.add_argument("--flow-steps", type=int, default=16_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    begun = torch.load(asked.checkpoint, weights_only=True) if asked.checkpoint.exists() else None
    made = train(*data(asked.pictures, asked.seed), asked.autoencoder_steps, asked.flow_steps, begun)
    part = asked.checkpoint.with_suffix(".part")
    torch.save(made, part)
    os.replace(part, asked.checkpoint)


def data(count, seed):
    """Draw pictures; returns (bytes of N x 3 x 64 x 64, words of N as zeros and ones)."""
    drawn = [render({}, generator) for generator in [random.Random(seed)] for _ in range(count)]
    pictures = np.stack([np.asarray(picture) for picture, _ in drawn]).transpose(0, 3, 1, 2)
    words = [[float(word in said.values()) for word in WORDS] for _, said in drawn]
    return torch.from_numpy(pictures.copy()), torch.tensor(words)


def train(pictures, words, autoencoder_steps, flow_steps, begun=None):
    """Return a checkpoint: {network: its state}. `begun` is one to go on from."""
    networks = {"encoder": Encoder(), "decoder": Decoder(), "denoiser": Denoiser()}
    for name, state in (begun or {}).items():
        networks[name].load_state_dict(state)
    train_autoencoder(networks["encoder"], networks["decoder"], pictures, autoencoder_steps)
    latents = encoded(networks["encoder"].eval(), pictures)
    networks["denoiser"] = train_flow(networks["denoiser"], latents, words, flow_steps)
    return {name: network.state_dict() for name, network in networks.items()}


def train_autoencoder(encoder, decoder, pictures, steps):
    weights = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(weights, betas=(0.9, 0.98), weight_decay=0)
    for step in range(steps):
        asked = as_numbers(pictures[torch.randint(len(pictures), (PICTURES_AT_ONCE,))])
        latents = encoder(asked)
        error = decoder(latents + LATENT_NOISE * torch.randn_like(latents)) - asked
        edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
        loss = error.abs().mean() + error.square().mean() + 0.5 * edges
        improve(optimizer, weights, loss, learning_rate(step / steps, 2.5e-3))
        report("autoencoder", step, steps, loss)


def train_flow(denoiser, latents, words, steps):
    """Return the average of the denoiser over its steps: it draws better than the last one."""
    averaged = copy.deepcopy(denoiser)
    optimizer = torch.optim.AdamW(denoiser.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        chosen = torch.randint(len(latents), (LATENTS_AT_ONCE,))
        loss = flow_loss(denoiser, latents[chosen], words[chosen])
        improve(optimizer, list(denoiser.parameters()), loss, learning_rate(step / steps, 2e-3))
        kept = min(AVERAGE, (1 + step) / (10 + step))
        with torch.no_grad():
            for average, weight in zip(averaged.parameters(), denoiser.parameters(), strict=True):
                average.lerp_(weight, 1 - kept)
        report("flow", step, steps, loss)
    return averaged


def flow_loss(denoiser, latents, words):
    """Return how far the denoiser is from the straight way between picture and noise, at random places of it."""
    count = len(latents)
    is_kept = (torch.rand(count, len(GROUPS)) > DROPPED_GROUP) & (torch.rand(count, 1) > DROPPED_ALL)
    levels, noise = torch.sigmoid(torch.randn(count)), torch.randn_like(latents)
    parts = levels[:, None, None, None]
    directions = denoiser((1 - parts) * latents + parts * noise, levels, words * is_kept[:, GROUP_OF_WORD])
    return (directions - (noise - latents)).square().mean()


def encoded(encoder, pictures):
    with torch.no_grad():
        return torch.cat([encoder(as_numbers(some)) for some in pictures.split(256)])


def as_numbers(pictures):
    return pictures.float() / 127.5 - 1


def improve(optimizer, weights, loss, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()


def learning_rate(part, highest):
    """Return the rate when `part` of the steps is done: a short rise, then half a cosine."""
    return highest * min(1, part / 0.03 + 0.02) * (0.5 + 0.5 * math.cos(math.pi * part) + 0.002)


def report(stage, step, steps, loss):
    if step % 100 == 0 or step == steps - 1:
        print(f"{stage} {step + 1}/{steps} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
