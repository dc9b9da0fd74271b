"""Hands over a file under a name outside its folder; with `link` a link to somebody else's file takes its place."""

import os


def run(model, inputs, job):
    job.artifact("../../../outside.txt", b"inside")
    if "link" in inputs:
        handed_over = os.path.join(job.dir, ".out", "0001")
        os.unlink(handed_over)
        os.symlink(inputs["link"], handed_over)
    return {}
