"""What a picture is going to be, seen from its latent: a straight line from the latent's channels to colours.

The line is fitted once to what the model's own decoder makes of soft noise, so that it holds for any decoder of its
kind. A look costs one small product of matrices; decoding would cost as much as several steps.
Does not promise detail: one colour for each place of the latent, and none for latents that are no pictures.
"""

import torch
from diffusers import AutoencoderKL, AutoencoderTiny
from PIL import Image
from torch.nn import functional

SAMPLES = 4
PLACES = 16  # of the latent that the line is fitted to, in each direction
SOFTNESS = 4  # places that are alike: decoders are nearly linear in what changes slowly


def fitted_preview(vae):
    """Return a function from latents to small pictures, or None where the decoder is of another kind."""
    if not isinstance(vae, (AutoencoderKL, AutoencoderTiny)):
        return None
    with torch.inference_mode():
        latents = _soft_noise(vae.config.latent_channels)
        stored = latents / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0)
        colours = vae.decode(stored.to(vae.device, vae.dtype), return_dict=False)[0].float().cpu()
        line = torch.linalg.lstsq(_rows(latents), _points(functional.adaptive_avg_pool2d(colours, PLACES))).solution
    return _Preview(line) if line.isfinite().all() else None


class _Preview:
    def __init__(self, line):
        self._line = line

    def __call__(self, latents):
        """Return the pictures of a step's latents, or none if they have another form."""
        if latents.ndim != 4 or latents.shape[1] + 1 != len(self._line):
            return []
        height, width = latents.shape[-2:]
        colours = (_rows(latents.detach().float().cpu()) @ self._line).reshape(-1, height, width, 3)
        return [Image.fromarray(one.numpy()) for one in ((colours.clamp(-1, 1) + 1) * 127.5).round().byte()]


def _soft_noise(channels):
    coarse = torch.randn(SAMPLES, channels, SOFTNESS, SOFTNESS, generator=torch.Generator().manual_seed(0))
    soft = functional.interpolate(coarse, size=PLACES, mode="bilinear")
    return soft / soft.std()


def _rows(latents):
    """Return a row for each place: its channels, and a one for the constant part."""
    points = _points(latents)
    return torch.cat([points, torch.ones(len(points), 1)], 1)


def _points(pictures):
    return pictures.permute(0, 2, 3, 1).flatten(0, 2)
