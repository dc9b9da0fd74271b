"""Looks for secrets in its own environment and in what the kernel shows of its supervisor; fails if it finds any."""

import os


def run(model, inputs, job):
    assert not [name for name in os.environ if name.startswith(("HEADRACE_", "AWS_"))]
    if os.geteuid() == 0:  # root reads everything
        return {"looked": 1}
    looked = [f"/proc/{os.getppid()}/{name}" for name in ("environ", "mem", "fd", "maps")]
    return {"looked": 1 + len([_sees_nothing(path) for path in looked])}


def _sees_nothing(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        return True
    raise AssertionError(path)
