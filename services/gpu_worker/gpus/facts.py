"""What is known of a GPU and of its memory. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG slice of it: hard partitions are devices of their own."""

    kind: str  # cuda or rocm
    index: int  # among those of its kind, as the driver counts
    uuid: str
    model: str
    driver: str
    bytes_total: int  # that processes can have: what the driver keeps for itself is not in it


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device at one moment; `used` is everybody's."""

    total_bytes: int
    free_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Activity:
    """How a device does; None where it does not tell."""

    utilization_percent: int | None = None
    temperature_c: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs of this host, and for each kind without any the reason."""

    gpus: tuple[Gpu, ...] = ()
    why_not: tuple[str, ...] = ()


def visible(gpus: tuple[Gpu, ...], wanted: str | None) -> tuple[Gpu, ...]:
    """Return those that `CUDA_VISIBLE_DEVICES` leaves to this process: unset leaves all, empty none.

    >>> gpu = Gpu("cuda", 1, "GPU-8f6", "NVIDIA L4", "570", 1)
    >>> visible((gpu,), "0,1") == visible((gpu,), "GPU-8f") == visible((gpu,), None) == (gpu,), visible((gpu,), "0")
    (True, ())
    """
    if wanted is None:
        return gpus
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    return tuple(gpu for gpu in gpus if any(is_named(gpu, word) for word in words))


def is_named(gpu: Gpu, word: str) -> bool:
    """Tell whether `word` is its index or the beginning of its UUID."""
    return int(word) == gpu.index if word.isdecimal() else bool(word) and gpu.uuid.lower().startswith(word.lower())


def foreign_bytes(
    memory: Memory, holders: Mapping[int, int | None], ours: frozenset[int], booked_bytes: int
) -> int:  # fmt: skip
    """Return what processes of others hold.

    Args:
        holders: bytes by process, None where the driver does not tell.
        ours: processes of our children and of their helpers.
        booked_bytes: what our books give to children that hold memory now or may at any moment.

    The driver names our processes: what they do not hold is foreign. It does not (a container has its own process
    numbers, another driver model tells no bytes): then only what is beyond our books is foreign for sure, so that
    nothing of our own is ever counted as somebody else's.
    """
    told = [size for pid, size in holders.items() if pid in ours]
    if told and None not in told:
        return max(0, memory.used_bytes - sum(size or 0 for size in told))
    if not booked_bytes:
        return memory.used_bytes
    others = sum(size or 0 for pid, size in holders.items() if pid not in ours) if told else 0
    return max(others, memory.used_bytes - booked_bytes, 0)
