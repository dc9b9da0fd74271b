"""How events are written down: flat stream fields, JSON data, version tag, upcasters.

Fields of an entry: `t` type (with `/2` and so on from version 2), `j` subject (job, worker, delivery, tenant),
`n` sequence in the job, `f` fence, `p` position of the job's previous event, `h` set when somebody subscribes,
`d` data. Unknown types and unknown fields survive reading. Nothing is decoded before it is asked for.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import orjson
from pydantic import ValidationError

from contracts.errors import Corrupt
from contracts.events import CATALOGUE, Event

Data = dict[str, object]
# (type, version) -> data of that version to data of the next; looked up until the current version is reached
UPCASTERS: dict[tuple[str, int], Callable[[Data], Data]] = {}


class Entry(NamedTuple):
    """One entry of a log. `position` is the stream id; `data` is JSON as it was written."""

    position: str
    type: str
    subject: str
    data: bytes
    version: int = 1
    sequence: int = 0
    fence: int = 0
    previous: str = ""
    hooked: bool = False

    def event(self) -> Event | None:
        """Decode the data; None for a type this version does not know. Raises Corrupt."""
        model = CATALOGUE.get(self.type)
        if model is None or self.version > model.VERSION:
            return None
        try:
            if self.version == model.VERSION:
                return model.model_validate_json(self.data)
            return model.model_validate(upcast(self.type, self.version, model.VERSION, self.raw_data()))
        except ValidationError as error:
            raise Corrupt(self.position, f"{self.type}: {error.error_count()} fields are wrong") from error

    def raw_data(self) -> Data:
        """Return the data as plain JSON. Raises Corrupt."""
        try:
            data = orjson.loads(self.data)
        except orjson.JSONDecodeError as error:
            raise Corrupt(self.position, "the data is not JSON") from error
        if not isinstance(data, dict):
            raise Corrupt(self.position, "the data is not an object")
        return data


def upcast(event_type: str, version: int, current: int, data: Data) -> Data:
    """Bring data of an old version to the current one. Raises Corrupt when a step is missing."""
    for step in range(version, current):
        upcaster = UPCASTERS.get((event_type, step))
        if upcaster is None:
            raise Corrupt(event_type, f"there is no upcaster from version {step}")
        data = upcaster(data)
    return data


def wire_type(event: Event) -> str:
    """Return the `t` field of an event."""
    return event.TYPE if event.VERSION == 1 else f"{event.TYPE}/{event.VERSION}"


def decode(position: str, fields: Mapping[str, str] | Mapping[bytes, bytes]) -> Entry:
    """Read one stream entry, bytes as the store returns them or texts. Raises Corrupt when a field is missing."""
    try:
        if b"t" in fields:
            return _of_bytes(position, cast(Mapping[bytes, bytes], fields))
        return _of_texts(position, cast(Mapping[str, str], fields))
    except (KeyError, ValueError) as error:  # UnicodeError among them
        # The name of a field that is missing, but no text of the entry: what is written down ends up in logs.
        what = f"no field {_text(error.args[0])}" if isinstance(error, KeyError) else type(error).__name__
        raise Corrupt(position, f"the entry cannot be read: {what}") from error


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _of_bytes(position: str, raw: Mapping[bytes, bytes]) -> Entry:
    event_type, _, version = raw[b"t"].decode().partition("/")
    return Entry(
        position, event_type, raw[b"j"].decode(), raw[b"d"], int(version or 1), int(raw.get(b"n", 0)),
        int(raw.get(b"f", 0)), raw.get(b"p", b"").decode(), b"h" in raw,
    )  # fmt: skip


def _of_texts(position: str, raw: Mapping[str, str]) -> Entry:
    event_type, _, version = raw["t"].partition("/")
    return Entry(
        position, event_type, raw["j"], raw["d"].encode(), int(version or 1), int(raw.get("n", "0").encode()),
        int(raw.get("f", "0").encode()), raw.get("p", ""), "h" in raw,
    )  # fmt: skip
