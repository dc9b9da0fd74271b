"""Cannot be loaded."""


def load(device, prepared):
    raise OSError("the weights are not there")


def run(model, inputs, job):
    return None
