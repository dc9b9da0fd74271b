"""Does nothing and says when: the clock is the system's own, so two jobs on one host can be compared."""

import time


def run(model, inputs, job):
    begun_ns = time.monotonic_ns()
    return {"begunNs": begun_ns, "endedNs": time.monotonic_ns()}
