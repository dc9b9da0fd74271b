"""The two networks on onnxruntime.

Promises: they run on the device that was asked for or not at all; a core without work is left alone.
"""

import os

import onnxruntime
from model import DeviceUnavailable, Scenes

PROVIDERS = {"cpu": "CPUExecutionProvider", "sim": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def scenes_on(device, weights):
    """Return the model on `device`. Raises DeviceUnavailable."""
    denoiser = open_session(weights["denoiser.onnx"], device)
    decoder = open_session(weights["decoder.onnx"], device)
    return Scenes(
        lambda latents, levels, words: denoiser.run(None, {"latents": latents, "levels": levels, "words": words})[0],
        lambda latents: decoder.run(None, {"latents": latents})[0],
    )


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
