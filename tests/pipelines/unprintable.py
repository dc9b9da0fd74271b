"""Raises what cannot be asked for its text or its code."""


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    @property
    def code(self):
        raise RuntimeError("no code")


def run(model, inputs, job):
    raise Unprintable
