"""Prints `mb` megabytes without a pause."""

import sys


def run(model, inputs, job):
    line = "x" * 99_999 + "\n"
    for _ in range(inputs.get("mb", 200) * 10):
        sys.stdout.write(line)
    return {"mb": inputs.get("mb", 200)}
