"""Become another program that the kernel ends when our parent ends (Linux).

Run by path as `python -S -I leash.py PARENT_PID PROGRAM ARGUMENT...`; standard library only. A program of its
own, because code between fork and exec is not safe in a process with threads. The signal is SIGTERM, so the
program may finish what it does; `keeper.py` ends those that take too long.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Tie this process to its parent, then replace it by the program."""
    parent, program = int(argv[0]), argv[1:]
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we were tied to it: no signal will ever come
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
