"""Writes half a frame where only its runtime may write; then it dies, or its next words look like the other half."""

import os
import sys


def run(model, inputs, job):
    os.write(int(sys.argv[1]), (64).to_bytes(4, "big") + b'{"ev":')
    if inputs.get("then") == "dies":
        os._exit(4)
    return {}
