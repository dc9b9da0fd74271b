"""What a child is told, as bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from services.gpu_worker.process.frames import HEADER, RESULT_LIMIT_BYTES


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
