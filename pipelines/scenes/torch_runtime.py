"""The two networks on torch, with the numbers of the ONNX files.

Promises: a picture is that of onnxruntime but for rounding (mean difference at most 1/255); they run on the device
that was asked for or not at all. What needs no device is apart from what does, so that it can be done in advance.
"""

import numpy as np
import torch
from model import Scenes
from networks import Decoder, Denoiser
from weights import arrays

# Half the digits in convolutions is what NVIDIA cards do unasked; these networks are too small to need the speed.
torch.backends.cudnn.allow_tf32 = False


def networks_of(weights):
    """Return (denoiser, decoder) in host memory."""
    return _with_numbers(Denoiser, weights["denoiser.onnx"]), _with_numbers(Decoder, weights["decoder.onnx"])


def scenes_on(device, networks):
    """Return the model on `device`: all that is done here is to copy."""
    place = torch.device(device.torch_device)
    denoiser, decoder = (network.to(place) for network in networks)
    return Scenes(_on_arrays(denoiser, place), _on_arrays(decoder, place))


def _with_numbers(kind, onnx_file):
    with torch.device("meta"):  # no numbers yet: random ones would only be thrown away
        network = kind()
    numbers = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays(onnx_file).items()}
    network.load_state_dict({name: numbers[name] for name in network.state_dict()}, assign=True)
    return network.eval().requires_grad_(False)


def _on_arrays(network, place):
    """Return the network as a function of numpy arrays."""

    def compute(*inputs):
        with torch.inference_mode():
            return network(*(torch.from_numpy(array).to(place) for array in inputs)).cpu().numpy()

    return compute
