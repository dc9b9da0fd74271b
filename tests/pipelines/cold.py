"""Takes a while to load and little to run, and holds memory; how much is said in pipelines.toml and in the input."""

import os
import time


def load(device, prepared):
    time.sleep(float(os.environ.get("LOAD_S", "0.5")))
    return bytearray(int(os.environ.get("HOLD_MIB", "0")) << 20)


def run(model, inputs, job):
    time.sleep(inputs.get("run_s", 0.05))
