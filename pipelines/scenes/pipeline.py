"""Text to picture: a small latent diffusion model of landscapes, 2.9 MB of weights, about 0.1 s on one core.

An example to copy. The worker calls `prepare` and `load` once in a child process, then `run` for each job, or
`run_batch` for several at once. Nothing of Headrace is imported: `device` and `job` are plain objects.
`pipeline_torch.py` draws the same pictures with torch.
"""

from drawing import run, run_batch
from onnx_runtime import scenes_on
from weights import read_weights

__all__ = ["load", "prepare", "run", "run_batch"]


def prepare():
    """Read the weights and check them; needs no device, so it may run while another job has it."""
    return read_weights()


def load(device, prepared):
    """Put the networks on the device."""
    return scenes_on(device, prepared)
