"""Returns what is no small JSON object: `what` chooses."""

import datetime

import numpy


def run(model, inputs, job):
    circular = {}
    circular["self"] = circular
    results = {
        "bytes": {"x": b"abc"},
        "set": {"x": {1}},
        "nan": {"x": float("nan")},
        "circular": circular,
        "array": {"x": numpy.zeros(3)},
        "huge_int": {"x": 10**30},
        "surrogate": {"x": "\ud800"},
        "list": [1],
        "large": {"x": "y" * 20_000_000},
        "scalars": {"f": numpy.float32(0.5), "i": numpy.int64(7), "t": datetime.date(2026, 11, 29)},
    }
    return results[inputs["what"]]
