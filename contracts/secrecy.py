"""Keeping a process's environment and memory, which hold credentials, from other processes of the same user.

Promises: on Linux nobody but root reads `/proc/<pid>/environ`, `mem` or `fd` of this process, or traces it; author code
runs as the same user, in children that this does not touch. Does not promise anything about files of that user, nor
about what could be read before the call. Elsewhere it does nothing.
"""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def hide_this_process() -> bool:
    """Do it; returns whether the kernel did. It also ends core dumps of this process, which would hold the same."""
    if sys.platform != "linux":
        return False
    try:
        return int(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (OSError, AttributeError):  # a C library without it
        return False
