"""Write the weights that ship: `python -m training.export CHECKPOINT FOLDER`, in the folder above this one.

Makes denoiser.onnx and decoder.onnx with any number of pictures at once, and prints their sha256 for weights.py. Large
weights are stored in half precision and computed with in single: half the size for a difference nobody sees.
Promises: the same checkpoint and torch give the same bytes. Needs torch only, not the onnx package.
"""

import argparse
import hashlib
import io
import warnings
from pathlib import Path

import torch
from model import LATENT_SHAPE
from networks import Decoder, Denoiser
from torch import nn
from vocabulary import WORDS

OPSET = 17
SMALL = 256  # numbers: norms and biases keep their precision


def stored_in_half(network):
    """Keep large weights of a network in half precision and widen them whenever it is called."""
    stored = [
        (module, name, nn.Parameter(weight.detach().half(), requires_grad=False))
        for module in network.modules()
        for name, weight in module.named_parameters(recurse=False)
        if weight.numel() > SMALL
    ]

    def widen(*_):
        for module, name, weight in stored:
            module._parameters[name] = weight.float()  # in place: the exporter finds a weight by its position

    def narrow(*_):
        for module, name, weight in stored:
            module._parameters[name] = weight

    narrow()
    network.register_forward_pre_hook(widen)
    network.register_forward_hook(narrow)
    return network


def exported(network, example):
    """Return the ONNX file of a network. `example` names its inputs and shows what they look like."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the tracing exporter's age: the newer one wants two more packages
        torch.onnx.export(
            stored_in_half(network).eval(),
            tuple(example.values()),
            file,
            input_names=list(example),
            output_names=["output"],
            dynamic_axes={name: {0: "count"} for name in [*example, "output"]},
            opset_version=OPSET,
            do_constant_folding=False,  # it would drop the names of the weights; onnxruntime folds when it loads
            dynamo=False,
        )
    return file.getvalue()


def exported_files(checkpoint):
    """Return {file name: content} of a checkpoint of training."""
    denoiser, decoder = Denoiser(), Decoder()
    denoiser.load_state_dict(checkpoint["denoiser"])
    decoder.load_state_dict(checkpoint["decoder"])
    latents = torch.zeros(2, *LATENT_SHAPE)
    asked = {"latents": latents, "levels": torch.zeros(2), "words": torch.zeros(2, len(WORDS))}
    return {"denoiser.onnx": exported(denoiser, asked), "decoder.onnx": exported(decoder, {"latents": latents})}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, content in exported_files(torch.load(arguments.checkpoint, weights_only=True)).items():
        (arguments.folder / name).write_bytes(content)
        print(f"{name} {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
