"""The parent's half of the child language: bytes to typed frames and back (child/PROTOCOL.md has it all).

Promises: what a child sends is either one of the types below, with fields of the declared types and sizes, or
a ProtocolError; file names are digits only, so none can leave its folder. Does not promise that a frame is
still of interest: whoever reads compares (job, fence) with the running attempt.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import orjson

HEADER = struct.Struct("!I")
#: The largest frame is a result at its limit; 64 KiB are room for what goes with it.
FRAME_LIMIT_BYTES = 1 << 20
RESULT_LIMIT_BYTES = FRAME_LIMIT_BYTES - (64 << 10)
_FILE_NAME = re.compile(r"\d{4,8}")
_FIGURES = frozenset({"requested", "free", "reserved"})
_ALLOCATOR = frozenset({"reserved", "allocated", "peak"})
_HOST = frozenset({"data", "resident"})
_MOST_BYTES = 1 << 62
Memory: TypeAlias = Mapping[str, int]  # bytes requested, free, reserved, as far as the error's text says so
Allocator: TypeAlias = Mapping[str, int]  # of torch on a GPU: bytes reserved, allocated, and reserved at most
T = TypeVar("T")


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


class Decoder:
    """Cuts a byte stream into frames; keeps at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames completed by `data`, in order. Raises ProtocolError for what is not a frame."""
        self._buffer += data
        while (body := self._next_body()) is not None:
            yield decode(body)

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(self._buffer)
        if size > FRAME_LIMIT_BYTES:
            raise ProtocolError(f"a frame of {size} bytes, the limit is {FRAME_LIMIT_BYTES}")
        if len(self._buffer) < HEADER.size + size:
            return None
        body = bytes(self._buffer[HEADER.size : HEADER.size + size])
        del self._buffer[: HEADER.size + size]
        return body


def decode(body: bytes) -> Frame:
    """Return the frame in `body`. Raises ProtocolError if it is none."""
    try:
        fields = orjson.loads(body)
        return _PARSERS[fields["ev"]](fields)
    except ProtocolError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"undecodable frame: {type(error).__name__}: {error}") from None


def encode(frame: Mapping[str, Any]) -> bytes:
    body = orjson.dumps(frame)
    return HEADER.pack(len(body)) + body


def encode_load(kind: str, index: int, budget_bytes: int, result_bytes: int, context_bytes: int | None = None) -> bytes:
    """Return the frame that gives a child its device. `context_bytes`: of a GPU, what a process takes by itself."""
    device = {"kind": kind, "index": index, "bytes": budget_bytes}
    device |= {} if context_bytes is None else {"context_bytes": context_bytes}
    return encode({"op": "load", "device": device, "result_bytes": min(result_bytes, RESULT_LIMIT_BYTES)})


def encode_run(job: str, fence: int, inputs: Mapping[str, Any], scratch: str) -> bytes:
    return encode({"op": "run", "job": job, "fence": fence, "dir": scratch, "inputs": inputs})


def encode_run_batch(members: Iterable[tuple[str, int, Mapping[str, Any], str]]) -> bytes:
    """Return the frame that runs several attempts in one pass: job, fence, inputs, scratch directory of each."""
    orders = [{"job": job, "fence": fence, "dir": scratch, "inputs": inputs} for job, fence, inputs, scratch in members]
    return encode({"op": "run_batch", "members": orders})


def encode_slice(slice_bytes: int, context_bytes: int) -> bytes:
    """Return the frame that gives a child another slice of its GPU."""
    return encode({"op": "slice", "bytes": slice_bytes, "context_bytes": context_bytes})


def encode_cancel(job: str, fence: int) -> bytes:
    return encode({"op": "cancel", "job": job, "fence": fence})


def encode_close() -> bytes:
    return encode({"op": "close"})


def _take(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise ProtocolError(f"field {name} of {fields['ev']} is {type(value).__name__}, not {kind.__name__}")
    return value


def _maybe(fields: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    return None if fields.get(name) is None else _take(fields, name, kind)


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return value if isinstance(value, int) else _maybe(fields, name, float)


def _key(fields: Mapping[str, Any]) -> tuple[str, int]:
    return _take(fields, "job", str), _take(fields, "fence", int)


def _file(fields: Mapping[str, Any]) -> str:
    name = _take(fields, "file", str)
    if not _FILE_NAME.fullmatch(name):
        raise ProtocolError(f"file name {name[:40]!r}")
    return name


def _progress(fields: Mapping[str, Any]) -> Progress:
    done, total = _number(fields, "done"), _number(fields, "total")
    return Progress(*_key(fields), done, total, _maybe(fields, "phase", str), _maybe(fields, "data", dict) or {})


def _preview(fields: Mapping[str, Any]) -> Preview:
    step = _number(fields, "step")
    whole = None if step is None else int(step)
    return Preview(*_key(fields), _take(fields, "name", str), _file(fields), whole)


def _artifact(fields: Mapping[str, Any]) -> ArtifactFile:
    labels = (_take(fields, "kind", str), _take(fields, "variant", str))
    sides = (_maybe(fields, "width", int), _maybe(fields, "height", int))
    return ArtifactFile(*_key(fields), _take(fields, "name", str), _file(fields), *labels, *sides)


def _memory(fields: Mapping[str, Any], field: str = "memory", known: frozenset[str] = _FIGURES) -> Memory | None:
    figures = _maybe(fields, field, dict)
    for name, size in (figures or {}).items():
        if name not in known or type(size) is not int or not 0 <= size <= _MOST_BYTES:
            raise ProtocolError(f"figure {str(name)[:40]!r} of {fields['ev']}")
    return figures


def _allocator(fields: Mapping[str, Any]) -> Allocator | None:
    return _memory(fields, "allocator", _ALLOCATOR)


def _load_failed(fields: Mapping[str, Any]) -> LoadFailed:
    code, message = _take(fields, "code", str), _take(fields, "message", str)
    return LoadFailed(code, message, _memory(fields), _maybe(fields, "lost", bool))


def _failed(fields: Mapping[str, Any]) -> Failed:
    job, fence = _key(fields)
    code, message = _take(fields, "code", str), _take(fields, "message", str)
    after_s, resource = _number(fields, "retry_after_s"), _maybe(fields, "resource", str)
    run_ms, retryable = _number(fields, "run_ms") or 0, _take(fields, "retryable", bool)
    alone, lost = _maybe(fields, "alone", bool), _maybe(fields, "lost", bool)
    memory, allocator = _memory(fields), _allocator(fields)
    return Failed(job, fence, code, message, retryable, run_ms, after_s, resource, alone, memory, lost, allocator)


_PARSERS: dict[str, Callable[[Mapping[str, Any]], Frame]] = {
    "prepared": lambda f: Prepared(_number(f, "ms") or 0),
    "ready": lambda f: Ready(_number(f, "ms") or 0, _allocator(f), _memory(f, "host", _HOST)),
    "load_failed": _load_failed,
    "heartbeat": lambda f: Heartbeat(),
    "progress": _progress,
    "milestone": lambda f: Milestone(*_key(f), _take(f, "name", str), _maybe(f, "data", dict) or {}),
    "preview": _preview,
    "artifact": _artifact,
    "done": lambda f: Done(
        *_key(f),
        _maybe(f, "result", dict),
        _number(f, "run_ms") or 0,
        _maybe(f, "dropped_milestones", int) or 0,
        _allocator(f),
    ),
    "cancelled": lambda f: Cancelled(*_key(f), _number(f, "run_ms") or 0, _allocator(f)),
    "failed": _failed,
    "batch_over": lambda f: BatchOver(*_key(f), _number(f, "run_ms") or 0, _allocator(f)),
}
