"""What streams say, whatever carries it: server-sent events or a socket. Pure."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

import orjson

Kind = Literal["snapshot", "event", "preview", "gap", "end"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `id` is where who has it stands, '' for one that moves nobody. `name`: the type of an event."""

    kind: Kind
    data: bytes
    id: str = ""
    name: str = ""
    content: bytes | None = None  # of a preview, if its bytes were asked for
    at_ms: int = 0  # when the event was appended, if it is told as it comes


BEAT = Message("event", b"")  # nothing happened for a while

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"


def snapshot(position: str, data: dict[str, Any]) -> Message:
    """Say how things are at a position."""
    return Message("snapshot", orjson.dumps(data), position)


def gap(requested: str | None, oldest: str | None) -> Message:
    """Say that events behind `requested` will not come; a snapshot follows."""
    return Message("gap", orjson.dumps({"requested": requested, "oldest": oldest}))


def end(reason: str, position: str = "") -> Message:
    """Say that this stream is over; `position`: behind all there will ever be, so that who comes back hears 204."""
    return Message("end", orjson.dumps({"reason": reason}), position)


def as_sse(message: Message) -> bytes:
    """Write a message as a server-sent event.

    >>> as_sse(end("terminal"))
    b'event: end\\ndata: {"reason":"terminal"}\\n\\n'
    """
    if message is BEAT:
        return HEARTBEAT
    name = (message.name or message.kind).encode()
    data = message.data if message.content is None else _with_content(message.data, message.content)
    place = b"id: %s\n" % message.id.encode() if message.id else b""
    return b"event: %s\n%sdata: %s\n\n" % (name, place, data)


def _with_content(data: bytes, content: bytes) -> bytes:
    facts = orjson.loads(data)
    return orjson.dumps(facts | {"inline": f"data:{facts['mime']};base64,{base64.b64encode(content).decode()}"})
