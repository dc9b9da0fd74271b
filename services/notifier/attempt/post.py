"""What one attempt sends, and how it ended. Pure."""

from dataclasses import dataclass

from services.notifier.attempt.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Post:
    """What one attempt sends; `body` is signed and sent as it is."""

    url: str
    message_id: str
    attempt: int
    timestamp_s: int
    secrets: tuple[str, ...]
    body: bytes
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, and how long it took."""

    outcome: Outcome
    elapsed_ms: int
