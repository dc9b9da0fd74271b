"""Asks for `mib` of memory, writes to it and gives it back; with `at` = load it does so in load()."""

import os


def load(device, prepared):
    return bytearray(int(os.environ.get("LOAD_MIB", "0")) << 20)


def run(model, inputs, job):
    block = bytearray(int(inputs.get("mib", 1 << 20)) << 20)
    block[::4096] = b"x" * len(range(0, len(block), 4096))
    return {"bytes": len(block)}
