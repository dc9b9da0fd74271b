"""A pipeline of the GPU checks: takes memory of the card through torch, in the ways that a job may."""

import os
import time


def load(device, prepared):
    import torch

    torch.ones(1, device=device.torch_device)
    return device


def run(device, inputs, job):
    import torch

    what, size = inputs["do"], int(inputs.get("bytes", 0))
    if what == "assert":  # an index beyond the end is found on the card, and is the end of this context
        torch.zeros(2, device=device.torch_device)[torch.tensor([7], device=device.torch_device)].cpu()
    block = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
    block.fill_(1)
    torch.cuda.synchronize()
    if what == "hold":
        job.progress(0, 1)
        while True:  # deaf to cancel
            time.sleep(0.1)
    told = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    del block
    return {**told, "left": torch.cuda.memory_allocated(), "pid": os.getpid(), "total": torch.cuda.mem_get_info()[1]}
