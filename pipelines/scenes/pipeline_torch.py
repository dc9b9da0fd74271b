"""The pictures of `pipeline.py`, drawn by torch: the same weights, the same words, the same phases.

An example for models whose imports are slow: `prepare` takes torch and all numbers into host memory, which the worker
has done while another job still uses the device, and `load` only copies.
"""

from drawing import run, run_batch
from weights import read_weights

__all__ = ["load", "prepare", "run", "run_batch"]

try:
    from torch_runtime import networks_of, scenes_on
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: pip install 'headrace[torch]', or name an `interpreter` that has torch in pipelines.toml"
    ) from error


def prepare():
    """Build the networks in host memory; needs no device."""
    return networks_of(read_weights())


def load(device, prepared):
    """Copy them to the device."""
    return scenes_on(device, prepared)
