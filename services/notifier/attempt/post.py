"""What one attempt sends, and how it ended. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.notifier.attempt.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Post:
    """What one attempt sends; `body` is signed and sent as it is, `headers` are the receiver's own."""

    url: str
    message_id: str
    attempt: int
    timestamp_s: int
    secrets: tuple[str, ...]
    body: bytes
    traceparent: str | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    receiver: str = ""  # attempts to one receiver may share connections; '' shares with nobody


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, and how long it took."""

    outcome: Outcome
    elapsed_ms: int
