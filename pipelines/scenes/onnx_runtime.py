"""The two networks on onnxruntime: `device.onnx_session` runs them on the device that was asked for, or not at all."""

import os

import onnxruntime
from model import Scenes


def scenes_on(device, weights):
    """Return the model on `device`; its two sessions divide the slice."""
    denoiser, decoder = (
        device.onnx_session(weights[name], session_options(), share=0.5) for name in ("denoiser.onnx", "decoder.onnx")
    )
    return Scenes(
        lambda latents, levels, words: denoiser.run(None, {"latents": latents, "levels": levels, "words": words})[0],
        lambda latents: decoder.run(None, {"latents": latents})[0],
    )


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
