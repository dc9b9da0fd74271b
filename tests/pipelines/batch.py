"""Runs several jobs in one pass, in steps; `how` of a job says what becomes of it, or of all."""

import os
import signal
import time


def run(model, inputs, job):
    if inputs.get("how") == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"size": 1}


def run_batch(model, inputs, jobs):
    hows = [one.get("how") for one in inputs]
    steps = inputs[0].get("steps", 3)
    for job in jobs:
        job.milestone("prompt.encoded", tokens=len(jobs))
    print("together", len(jobs), flush=True)
    for step in range(steps):
        time.sleep(inputs[0].get("step_s", 0.01))
        for job in jobs:
            job.progress(step + 1, steps, phase="denoising")
    if "crash" in hows:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "raise" in hows:
        raise ValueError("nobody's in particular")
    if "oom" in hows:
        raise MemoryError
    if "rate" in hows:
        raise jobs[0].RateLimited("moderation", retry_after_s=2)
    if "hang" in hows:
        time.sleep(600)
    if "short" in hows:
        return []
    ends = {"reject": jobs[0].Reject("no such word"), "retry": jobs[0].Retry(after_s=0), "error": KeyError("x")}
    for number, job in enumerate(jobs):
        job.artifact("number.txt", str(number).encode())
    return [ends.get(how, {"size": len(jobs), "number": number}) for number, how in enumerate(hows)]
