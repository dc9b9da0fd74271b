"""What a child sends, from bytes to typed frames.

Promises: it is either one of the types of `frames`, with fields of the declared types and sizes, or a ProtocolError;
file names are digits only, so none can leave its folder. Does not promise that a frame is still of interest: whoever
reads compares (job, fence) with the running attempt.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import orjson

from services.gpu_worker.process.frames import (
    FRAME_LIMIT_BYTES,
    HEADER,
    Allocator,
    ArtifactFile,
    BatchOver,
    Cancelled,
    Done,
    Failed,
    Frame,
    Heartbeat,
    LoadFailed,
    Memory,
    Milestone,
    Prepared,
    Preview,
    Progress,
    ProtocolError,
    Ready,
)

_FILE_NAME = re.compile(r"\d{4,8}")
_FIGURES = frozenset({"requested", "free", "reserved"})
_ALLOCATOR = frozenset({"reserved", "allocated", "peak"})
_HOST = frozenset({"data", "resident"})
_MOST_BYTES = 1 << 62
T = TypeVar("T")


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
