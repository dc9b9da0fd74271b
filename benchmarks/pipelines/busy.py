"""Computes in steps, in turns without and with a report of each, and says how long either took.

A step is `step_us` of counting, measured before; `pieces` pairs of turns of `steps` steps.
"""

import time


def run(model, inputs, job):
    steps, count = inputs["steps"], _count_of(inputs["step_us"] / 1e6)
    plain, told = [], []
    for _ in range(inputs["pieces"]):
        plain.append(_turn(steps, count, lambda step: None))
        told.append(_turn(steps, count, lambda step: job.progress(step, steps + 1)))
    plain_s, plain_cpu_s = zip(*plain, strict=True)
    told_s, told_cpu_s = zip(*told, strict=True)
    return {"plainS": plain_s, "toldS": told_s, "plainCpuS": plain_cpu_s, "toldCpuS": told_cpu_s}


def _turn(steps, count, tell):
    begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
    for step in range(steps):
        for _ in range(count):
            pass
        tell(step)
    return time.perf_counter() - begun_s, time.thread_time() - begun_cpu_s


def _count_of(step_s):
    count, fastest_s = 1_000_000, 1e9
    for _ in range(5):
        begun_s = time.perf_counter()
        for _ in range(count):
            pass
        fastest_s = min(fastest_s, time.perf_counter() - begun_s)
    return max(1, round(count * step_s / fastest_s))
