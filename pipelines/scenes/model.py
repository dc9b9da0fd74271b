"""The two networks of the model on onnxruntime, and the way from noise to a picture.

A latent is 24 x 8 x 8 numbers. The denoiser was trained as a rectified flow: it tells in which direction a
latent at noise level t (1 = noise, 0 = clean) has to move; drawing is walking that way in steps.
Promises: runs on the device that was asked for or not at all; the same noise gives the same picture on the
same machine, beside as many others; a core without work is left alone.
"""

import os

import numpy as np
import onnxruntime
from vocabulary import WORDS

LATENT_SHAPE = (24, 8, 8)
PROVIDERS = {"cpu": "CPUExecutionProvider", "sim": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class DeviceUnavailable(RuntimeError):
    """The device that was asked for cannot be used by this onnxruntime."""

    code = "device_unavailable"


class Scenes:
    """Denoiser and decoder, loaded on one device."""

    def __init__(self, weights, device):
        self._denoiser = open_session(weights["denoiser.onnx"], device)
        self._decoder = open_session(weights["decoder.onnx"], device)

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
        (pixels,) = self._decoder.run(None, {"z": latents.astype(np.float32)})
        return ((pixels.clip(-1, 1) + 1) * 127.5).round().astype(np.uint8).transpose(0, 2, 3, 1)

    def _directions(self, latents, level, conditions, strengths):
        """Ask once with the words and once without, and exaggerate what the words changed."""
        noise_level = np.full(len(conditions), level, np.float32)
        batch = {"z": np.concatenate([latents, latents]), "t": noise_level, "w": conditions}
        asked, anything = np.split(self._denoiser.run(None, batch)[0], 2)
        return anything + strengths * (asked - anything)


def noise_levels(steps):
    """Return steps + 1 levels falling from 1 to 0, closer together near the noise, where most is decided."""
    even = np.linspace(1, 0, steps + 1, dtype=np.float32)
    return even / (even + (1 - even) / np.float32(1.6))


def open_session(weights, device):
    """Load a network on `device`. Raises DeviceUnavailable where onnxruntime would quietly take the CPU."""
    provider = PROVIDERS.get(device.kind)
    if provider not in onnxruntime.get_available_providers():
        raise DeviceUnavailable(
            f"device_unavailable: no provider for a {device.kind} device here; install headrace[gpu]"
        )
    session = onnxruntime.InferenceSession(
        weights, session_options(), providers=[(provider, provider_options(provider, device))]
    )
    # The GPU build falls back to the CPU without an exception when a CUDA library or the driver is missing.
    if session.get_providers()[0] != provider:
        raise DeviceUnavailable(
            f"device_unavailable: asked for {provider}, got {session.get_providers()[0]}; "
            "check the driver and that CUDA and cuDNN fit this onnxruntime-gpu"
        )
    return session


def session_options():
    """Return options of a good neighbour: as many threads as the worker allows, none of them spinning."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = allowed_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.use_deterministic_compute = True
    # A spinning thread waits for a partner that the kernel has put aside: ten times slower on busy cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def allowed_threads():
    """Return the number of threads the worker gave this child, 1 when it said nothing usable."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(text)) if text.isdecimal() else 1


def provider_options(provider, device):
    """Return what keeps a CUDA session inside its slice; the worker makes only our own card visible."""
    if provider != "CUDAExecutionProvider":
        return {}
    options = {"arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "HEURISTIC"}
    if device.bytes:
        options["gpu_mem_limit"] = str(device.bytes // 2)  # counts per session, and there are two
    return options
