"""The frames between a child and its supervisor, as types (child/PROTOCOL.md has it all)."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

HEADER = struct.Struct("!I")
#: The largest frame is a result at its limit; 64 KiB are room for what goes with it.
FRAME_LIMIT_BYTES = 1 << 20
RESULT_LIMIT_BYTES = FRAME_LIMIT_BYTES - (64 << 10)
Memory: TypeAlias = Mapping[str, int]  # bytes requested, free, reserved, as far as the error's text says so
Allocator: TypeAlias = Mapping[str, int]  # of torch on a GPU: bytes reserved, allocated, and reserved at most


class ProtocolError(Exception):
    """The child sent something that is not a frame: it is no longer to be trusted and will be replaced."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The author's file is imported and prepare() is over; the child waits for `load`."""

    ms: float


@dataclass(frozen=True, slots=True)
class Ready:
    """load() is over: the model is resident and the child waits for `run`."""

    ms: float
    allocator: Allocator | None = None
    host: Allocator | None = None  # what went with the result of prepare(): data, resident


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Import, prepare() or load() raised; the child exits by itself."""

    code: str
    message: str
    memory: Memory | None = None  # out_of_memory only
    lost: bool | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A thread of the child got the GIL: a metric, nothing is decided by it."""


@dataclass(frozen=True, slots=True)
class Progress:
    job: str
    fence: int
    done: float | None
    total: float | None
    phase: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Milestone:
    job: str
    fence: int
    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Preview:
    job: str
    fence: int
    name: str
    file: str
    step: int | None


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file in the attempt's scratch directory that author code handed over."""

    job: str
    fence: int
    name: str
    file: str
    kind: str
    variant: str
    width: int | None
    height: int | None


@dataclass(frozen=True, slots=True)
class Done:
    job: str
    fence: int
    result: Mapping[str, Any] | None
    run_ms: float
    dropped_milestones: int
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    job: str
    fence: int
    run_ms: float
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    job: str
    fence: int
    code: str
    message: str
    retryable: bool
    run_ms: float
    retry_after_s: float | None
    resource: str | None
    alone: bool | None = None  # the pass failed, not this member of it: it is to be tried again, alone
    memory: Memory | None = None  # out_of_memory only
    lost: bool | None = None  # no call to the device works in this process any more
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True)
class BatchOver:
    """The pass is over, every member has had its end frame; the key is that of the first member."""

    job: str
    fence: int
    run_ms: float
    allocator: Allocator | None = None


End: TypeAlias = Done | Cancelled | Failed
Telemetry: TypeAlias = Progress | Milestone | Preview | ArtifactFile
Frame: TypeAlias = Prepared | Ready | LoadFailed | Heartbeat | Telemetry | End | BatchOver
