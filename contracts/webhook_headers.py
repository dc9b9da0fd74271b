"""Headers of a tenant's own that go with its webhooks. Pure.

Promises: what passes cannot end a header, take the place of one that makes the request what it is (its host, its
framing, its signature), nor steer a proxy on the way; a sentence never repeats a value, which may be a password.
"""

import re
from collections.abc import Mapping

MOST_HEADERS = 16
NAME_CHARS_MAX = 64
VALUE_CHARS_MAX = 1_024
ALL_BYTES_MAX = 4_096
MASKED = "***"  # what a GET shows in place of a value

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Printable ASCII, spaces and tabs inside only: some receivers strip them, and would see another value.
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?")
_OURS = frozenset(
    {"accept-encoding", "connection", "date", "expect", "forwarded", "host", "http2-settings", "keep-alive", "te",
     "trailer", "traceparent", "tracestate", "transfer-encoding", "upgrade", "user-agent", "via"}
)  # fmt: skip
_OUR_FAMILIES = ("content-", "proxy-", "sec-", "webhook-", "x-forwarded-")


def name_fault(name: str) -> str | None:
    """Say what is wrong with the name of a header; None when it may be sent."""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        return f"is no header name of at most {NAME_CHARS_MAX} characters"
    if name.lower() in _OURS or name.lower().startswith(_OUR_FAMILIES):
        return "is set by the sender itself, or steers the way of the request"
    return None


def value_fault(value: str) -> str | None:
    """Say what is wrong with the value of a header; None when it may be sent."""
    if len(value) > VALUE_CHARS_MAX or not _VALUE.fullmatch(value):
        return f"must be 1 to {VALUE_CHARS_MAX} printable ASCII characters, without spaces around them"
    if value == MASKED:
        return "is what is shown in place of the value; send the value itself, or leave the headers out"
    return None


def headers_fault(headers: Mapping[str, str]) -> str | None:
    """Say what is wrong with all of them together; None when they may be sent."""
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > ALL_BYTES_MAX:
        return f"must be at most {MOST_HEADERS} headers with {ALL_BYTES_MAX} bytes in all"
    if len({name.lower() for name in headers}) < len(headers):
        return "must not name a header twice; upper and lower case are the same"
    return None
