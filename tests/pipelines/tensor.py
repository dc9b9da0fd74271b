"""Returns a tensor where JSON was expected."""

import torch


def run(model, inputs, job):
    return {"x": torch.zeros(3)}
