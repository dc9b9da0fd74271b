"""Takes a while to load and little to run; how long is said in pipelines.toml (LOAD_S) and in the job's input."""

import os
import time


def load(device, prepared):
    time.sleep(float(os.environ.get("LOAD_S", "0.5")))


def run(model, inputs, job):
    time.sleep(inputs.get("run_s", 0.05))
