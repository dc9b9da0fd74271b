"""What one attempt sends, and how it ended. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.webhook_keys import WebhookKey
from services.notifier.attempt.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Post:
    """What one attempt sends; `body` is signed and sent as it is, `headers` are the receiver's own.

    `hosts`: those that the operator has listed for the tenant; None: any. `key`: signs, too, where it is asked for.
    """

    url: str = field(repr=False)  # it may hold a token
    message_id: str
    attempt: int
    timestamp_s: int
    secrets: tuple[str, ...] = field(repr=False)
    body: bytes = field(repr=False)
    traceparent: str | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    receiver: str = ""  # attempts to one receiver may share connections; '' shares with nobody
    hosts: tuple[str, ...] | None = None
    key: WebhookKey | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Heard:
    """What is kept of an answer: some headers, and of the text what `answer_bytes` allow; None where there was none."""

    headers: Mapping[str, str] = field(repr=False)
    body: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, how long it took, and what is kept of the answer."""

    outcome: Outcome
    elapsed_ms: int
    heard: Heard | None = None
