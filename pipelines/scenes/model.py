"""The way from noise to a picture, whatever computes the two networks; plain numpy.

A latent is 24 x 8 x 8 numbers. The denoiser was trained as a rectified flow: it tells in which direction a
latent at noise level t (1 = noise, 0 = clean) has to move; drawing is walking that way in steps.
Promises: the same noise gives the same picture on the same machine and runtime, beside as many others.
"""

import numpy as np
from vocabulary import WORDS

LATENT_SHAPE = (24, 8, 8)


class Scenes:
    """A denoiser and a decoder, each a function of numpy arrays: (latents, levels, words) and (latents)."""

    def __init__(self, denoiser, decoder):
        self._denoiser, self._decoder = denoiser, decoder

    def denoise(self, scenes, guidances, noise, steps):
        """Walk from `noise` to a clean latent for each scene (its words); yield (step, estimates) after each step.

        An estimate is where the line from here would end: it sharpens from step to step, and the last one is
        the clean latent itself.
        """
        latents, levels = noise, noise_levels(steps)
        conditions = np.zeros((2 * len(scenes), len(WORDS)), np.float32)  # the second half stays empty: "any scene"
        for row, words in enumerate(scenes):
            conditions[row, [WORDS.index(word) for word in words]] = 1
        strengths = np.array(guidances, np.float32).reshape(-1, 1, 1, 1)
        for step in range(steps):
            level, next_level = levels[step], levels[step + 1]
            directions = self._directions(latents, level, conditions, strengths)
            yield step + 1, latents - level * directions
            latents = latents + (next_level - level) * directions

    def decode(self, latents):
        """Return the pictures of latents, each a 64 x 64 x 3 array of bytes."""
        pixels = self._decoder(latents.astype(np.float32))
        return ((pixels.clip(-1, 1) + 1) * 127.5).round().astype(np.uint8).transpose(0, 2, 3, 1)

    def _directions(self, latents, level, conditions, strengths):
        """Ask once with the words and once without, and exaggerate what the words changed."""
        noise_level = np.full(len(conditions), level, np.float32)
        asked, anything = np.split(self._denoiser(np.concatenate([latents, latents]), noise_level, conditions), 2)
        return anything + strengths * (asked - anything)


def noise_levels(steps):
    """Return steps + 1 levels falling from 1 to 0, closer together near the noise, where most is decided."""
    even = np.linspace(1, 0, steps + 1, dtype=np.float32)
    return even / (even + (1 - even) / np.float32(1.6))
