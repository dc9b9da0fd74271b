"""The request that all benchmarks send: the four fields of a caller and some input, 555 bytes of JSON. Pure."""

import json

PAYLOAD_BYTES = 555


def payload(model: str = "noop", **more: object) -> bytes:
    """Return a body of `POST /v1/jobs` that is PAYLOAD_BYTES long, whatever else is in `input`."""
    fields: dict[str, object] = {"userId": "user-4711", "prompt": "", "model": model, "input": more}
    room = PAYLOAD_BYTES - len(_encode(fields))
    fields["prompt"] = ("a red lighthouse by the sea at sunset, " * PAYLOAD_BYTES)[:room]
    return _encode(fields)


def _encode(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
