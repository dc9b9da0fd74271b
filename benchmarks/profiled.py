"""A scheduler under cProfile that counts CPU time, not the clock: `python -m benchmarks.profiled FILE`."""

import cProfile
import sys
import time

from services.scheduler.__main__ import main


def run(path: str) -> None:
    """Serve until the signal, then write the profile."""
    profile = cProfile.Profile(time.process_time)
    sys.argv[1:] = []
    profile.runcall(main)
    profile.dump_stats(path)


if __name__ == "__main__":
    run(sys.argv[1])
