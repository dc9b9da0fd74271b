"""Says when it ran, by the monotonic clock that all processes of a host share; `ms` is how long it takes."""

import time


def run(model, inputs, job):
    began_ns = time.monotonic_ns()
    if inputs.get("ms"):
        time.sleep(inputs["ms"] / 1000)
    return {"beganNs": began_ns, "endedNs": time.monotonic_ns()}
