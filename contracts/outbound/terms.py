"""What a fetch may take and how it can fail: for those who ask for one, without an HTTP client. Pure."""

from dataclasses import dataclass

from contracts.webhook_target import AllowPrivate


class Refused(Exception):
    """What is there can never be taken."""


class Unreachable(Exception):
    """It could not be had this time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one fetch may take."""

    size_bytes: int
    seconds: float
    allow_private: AllowPrivate = "none"
