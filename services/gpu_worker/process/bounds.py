"""How far a child may go."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long each step may take before the next one, and how large a result may be."""

    cancel_grace_s: float = 1.0
    term_grace_s: float = 0.5
    reap_s: float = 10.0
    load_s: float = 600.0
    still_s: float = 10.0  # that a load with its slice full may do nothing
    back_s: float = 5.0  # for the bytes of a process that is gone to be free again
    room_s: float = 30.0  # that an attempt waits for room which nothing of ours will make
    host_s: float = 60.0  # that a prepared child stays which nobody wants any more
    result_bytes: int = 64 << 10
    scratch_bytes: int = 1 << 30  # that one file may have, of author code and of its helpers
