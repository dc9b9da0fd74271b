"""A load that will never end: it stands at the end of its slice and does nothing. Pure.

Some libraries answer a thread that cannot be started by waiting for it for ever (onnxruntime's pool, at its end), so
nobody says that memory ran out. Promises: what computes, reads from a disk, or has room for one more thread is not
taken for that. A load that waits for another host with its slice full is: it is tried again alone, with room.
"""

from typing import NamedTuple

ROOM_BYTES = (1 << 20) + (64 << 10)  # a thread's stack in a child, and what lies around it
LOOKS = 8  # in the time that it may stand still
MOST_CPU_S = 0.05  # in that time: the heartbeat's thread goes on


class Doing(NamedTuple):
    """What a process is doing now."""

    cpu_s: float  # so far
    is_waiting: bool  # its main thread, for something that is no disk
    room_bytes: int  # below its limit


class Stillness:
    """Looks on; `is_over` after `still_s` of standing still."""

    def __init__(self, still_s: float) -> None:
        self._still_s = still_s
        self._since_s: float | None = None
        self._cpu_s = 0.0

    def is_over(self, doing: Doing | None, now_s: float) -> bool:
        """Take a look at `now_s`; None: nothing can be seen.

        >>> full, stillness = Doing(1.0, True, 0), Stillness(10)
        >>> [stillness.is_over(full, at_s) for at_s in (0, 9, 10)]
        [False, False, True]
        """
        if doing is None or not doing.is_waiting or doing.room_bytes >= ROOM_BYTES:
            self._since_s = None
        elif self._since_s is None or doing.cpu_s > self._cpu_s + MOST_CPU_S:
            self._since_s, self._cpu_s = now_s, doing.cpu_s
        return self._since_s is not None and now_s - self._since_s >= self._still_s
