"""Fails on the first attempt and works on the next: `marker` names a file that remembers."""

from pathlib import Path


def run(model, inputs, job):
    marker = Path(inputs["marker"])
    if marker.exists():
        return {"attempts": 2}
    marker.touch()
    raise RuntimeError("only this once")
