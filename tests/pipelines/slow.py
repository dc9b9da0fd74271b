"""Works in steps and reports each; a cancel is noticed at the next one."""

import time


def load(device, prepared):
    return {"kind": device.kind}


def run(model, inputs, job):
    steps, step_s = inputs.get("steps", 10), inputs.get("step_s", 0.1)
    job.milestone("prompt.encoded", tokens=len(inputs.get("prompt", "").split()))
    for step in range(steps):
        time.sleep(step_s)
        job.progress(step + 1, steps, phase="denoising")
    return {"steps": steps, "device": model["kind"]}
