"""Prints a line at each step."""

import time

print("loaded", flush=True)


def run(model, inputs, job):
    steps = inputs.get("steps", 3)
    for step in range(steps):
        print(f"step {step}: ü", flush=True)
        job.progress(step + 1, steps)
        time.sleep(inputs.get("step_s", 0.1))
    return {}
