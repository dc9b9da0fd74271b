"""Ends as a C++ library does that gets no memory where nobody catches it."""

import ctypes


def run(model, inputs, job):
    ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv()
