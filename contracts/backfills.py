"""Sending an endpoint what happened before: from an instant of the log on, whatever was sent of it already. Pure."""

from dataclasses import asdict, dataclass, fields

import orjson

from contracts.errors import Corrupt


@dataclass(frozen=True, slots=True)
class Backfill:
    """One request for one pool. `position`: read up to there; `planned`: deliveries made; `done_ms` 0: under way.

    With a `job_id` it means that one event only; `endpoint_id` may then be the name of an anonymous endpoint.
    """

    id: str
    endpoint_id: str
    tenant_id: str
    since_ms: int
    until_ms: int
    asked_ms: int = 0
    position: str = ""
    planned: int = 0
    done_ms: int = 0
    job_id: str = ""
    sequence: int = 0

    def to_json(self) -> bytes:
        """Return what is stored."""
        return orjson.dumps(asdict(self))


def read_backfill(name: str, text: str) -> Backfill:
    """Read what is stored. Raises Corrupt."""
    try:
        kept = orjson.loads(text)
        return Backfill(**{name: kept[name] for name in _NAMES & kept.keys()})
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(name, "the backfill cannot be read") from error


_NAMES = {known.name for known in fields(Backfill)}  # another version may have written more
