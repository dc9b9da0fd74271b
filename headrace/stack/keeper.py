"""Wait for the end of a pipe, then end every process that was named in it and not taken back.

Run by path as `python -S -I keeper.py GRACE_S DATA_DIR` with the pipe as standard input; standard library only; the
directory is there to tell keepers apart in a process list. Lines are
`+PID` (a service, leader of its own group, was started) and `-PID` (it was reaped). The pipe ends when its
owner ends, however that happened: SIGTERM to each, and SIGKILL to the groups of those left after the grace.
"""

import contextlib
import os
import signal
import sys
import time

_POLL_S = 0.05


def main(argv: list[str]) -> None:
    """Keep the list until the pipe ends, then end what is on it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the pipe counts: a signalled group must not lose its keeper
    running: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        running.add(pid) if line[0] == "+" else running.discard(pid)
    end(running, float(argv[0]))


def end(pids: set[int], grace_s: float) -> None:
    """SIGTERM, up to `grace_s` to obey, then SIGKILL to the whole groups."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(map(_lives, pids)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # in a container nobody may reap it
    except OSError:
        return True


if __name__ == "__main__":
    main(sys.argv[1:])
