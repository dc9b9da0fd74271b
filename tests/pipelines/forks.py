"""Starts helpers that outlive their parent, then works, crashes or returns."""

import os
import subprocess
import time


def run(model, inputs, job):
    helpers = [subprocess.Popen(["sleep", "600"]).pid for _ in range(2)]
    forked = os.fork()
    if forked == 0:
        time.sleep(600)
    job.milestone("helpers.started", pids=[*helpers, forked])
    if inputs.get("then") == "crash":
        os._exit(1)
    while inputs.get("then") == "work":
        time.sleep(0.01)
        job.progress(0, 1)
