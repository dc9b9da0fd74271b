"""Sleeps in C with the interpreter lock held: no other thread of this process gets a turn."""

import ctypes


def run(model, inputs, job):
    job.progress(0, 1)
    ctypes.PyDLL(None).sleep(int(inputs.get("seconds", 600)))
    return {"slept": True}
