"""Writes `bytes` into a file of its own, and with `forgives` goes on when there is no room."""


def run(model, inputs, job):
    try:
        with open("large.bin", "wb") as file:
            file.write(bytes(inputs["bytes"]))
    except OSError:
        if not inputs.get("forgives"):
            raise
    return {}
