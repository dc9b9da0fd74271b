"""By which way requests leave, what a fetch may take, and how it can fail: without any I/O. Pure."""

import errno
from dataclasses import dataclass, field

from contracts.webhook_target import AllowPrivate


class Refused(Exception):
    """What is there can never be taken."""


class Unreachable(Exception):
    """It could not be had this time."""


class LookupFailed(Exception):
    """The name leads nowhere, or nobody could say where."""


class Blocked(Exception):
    """The target leads to an address that must not be reached from here. Says no more: it must look the same always."""


class ProxyFailed(Exception):
    """The operator's proxy did its part not: nothing is known of the target."""


class Malformed(Exception):
    """What came back is no HTTP answer."""


class HungUp(ConnectionResetError):
    """The other side closed the connection before its answer was whole."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNRESET, "closed before the answer was whole")


@dataclass(frozen=True, slots=True)
class Proxy:
    """The operator's proxy: it is asked to CONNECT to addresses, never to names."""

    host: str
    port: int
    authorization: str = field(repr=False, default="")  # value of Proxy-Authorization


@dataclass(frozen=True, slots=True)
class Route:
    """By which way requests leave this host: who is asked for names (none: the system), and through which proxy."""

    nameservers: tuple[tuple[str, int], ...] = ()
    proxy: Proxy | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one fetch may take."""

    size_bytes: int
    seconds: float
    allow_private: AllowPrivate = "none"
