"""Hosts that a tenant's webhooks may go to, where the operator lists them. Pure.

A list narrows what may be called and opens nothing: the address is judged as for everybody.
"""

import re
from collections.abc import Iterable

_HOST = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
HOST_CHARS_MAX = 253


def is_host_pattern(text: str) -> bool:
    """Whether `text` may stand in a list: a host in lower case, or `*.` before one for all below it.

    >>> is_host_pattern("*.app.example"), is_host_pattern("https://app.example"), is_host_pattern("*")
    (True, False, False)
    """
    return len(text) <= HOST_CHARS_MAX and _HOST.fullmatch(text) is not None


def is_listed(url: str, hosts: Iterable[str]) -> bool:
    """Whether the host of a URL that `judge_url` let pass is in the list. Anything else is not.

    >>> is_listed("https://a.app.example:8443/x", ["*.app.example"])
    True
    """
    match = _AUTHORITY.match(url)
    if match is None:
        return False
    host = re.sub(r":[0-9]*$", "", match[1]).removesuffix(".").lower()
    return any(host.endswith(each[1:]) if each.startswith("*.") else host == each for each in hosts)
