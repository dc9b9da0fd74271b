"""Swallows everything that is raised in it, also what only a cancel raises; with `term` also SIGTERM."""

import signal
import time


def run(model, inputs, job):
    if inputs.get("term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(0.01)
            job.progress(0, 1)
        except BaseException:
            continue
