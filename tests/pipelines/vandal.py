"""Takes away the folder it works in; with `link` there is a link to another one in its place."""

import os
import shutil


def run(model, inputs, job):
    shutil.rmtree(job.dir)
    if "link" in inputs:
        os.symlink(inputs["link"], job.dir)
    return {}
