"""The smallest pipeline: gives back what it was asked. A plain file that imports nothing of Headrace."""


def load(device, prepared):
    """Called once in each child process; what it returns is handed to every run."""
    return {"device": device.kind}


def run(model, inputs, job):
    """Called once for each attempt; `inputs` fit inputs.schema.json already."""
    job.progress(1, 1, phase="finalizing")  # tells the caller; also where a cancel is noticed
    return {"echo": inputs, **model}
