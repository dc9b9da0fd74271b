"""Where a webhook or the fetch of an input file may go: a URL judged as text, an address judged as it is connected.

Promises: a URL that passes has one reading only (plain ASCII, no user info, no escapes in the host), so no
HTTP library can connect elsewhere than was judged; an address passes only if it belongs to the public
internet or to what the operator opened. Both are total: any text gives a verdict, nothing raises.
Does not promise: that a name is harmless. Names are not resolved here (ingest answers in milliseconds and
must not leak look-ups); whoever connects judges the address the name led to, at the socket.

| `allow_private` | reaches, besides the public internet |
| --- | --- |
| `none` | nothing |
| `loopback` | loopback, there also with `http` and on any port |
| `all` | loopback, private, shared (CGNAT) and link-local networks; `http` and any port everywhere |

Metadata services, multicast, reserved and unspecified addresses are out of reach in every setting: no
receiver lives there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

AllowPrivate = Literal["none", "loopback", "all"]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_CHARS_MAX = 2048
PUBLIC_PORTS = frozenset({80, 443, 8080, 8443})


class TargetFault(StrEnum):
    """Why a target is refused; the value is a stable code, `explain` gives the sentence for people."""

    MALFORMED = "malformed_url"
    SCHEME = "scheme_not_allowed"
    USER_INFO = "user_info_not_allowed"
    FRAGMENT = "fragment_not_allowed"
    HOST = "host_not_allowed"
    PORT = "port_not_allowed"
    ADDRESS = "blocked_address"


_SENTENCES: dict[TargetFault, str] = {
    TargetFault.MALFORMED: (
        f"must be an absolute URL of at most {URL_CHARS_MAX} printable ASCII characters; "
        "escape others, and write international hosts in punycode"
    ),
    TargetFault.SCHEME: "must use https",
    TargetFault.USER_INFO: "must not contain a user name or password",
    TargetFault.FRAGMENT: "must not contain a fragment (#)",
    TargetFault.HOST: "must name a host as a plain DNS name or a canonical IP address",
    TargetFault.PORT: "must use one of the ports {ports}",
    TargetFault.ADDRESS: "must lead to an address that may be reached from here",
}


def explain(fault: TargetFault, ports: Set[int] = PUBLIC_PORTS) -> str:
    """Return the sentence for people; it never repeats any part of the refused URL."""
    return _SENTENCES[fault].format(ports=", ".join(map(str, sorted(ports))))


_PRINTABLE = re.compile(r"[!-~]+")
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[/?].*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_MACHINE_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Place:
    """What a URL that passed says: the very parts that were judged, so that no second reading can differ."""

    is_tls: bool
    host: str  # in lower case, without brackets or the dot of the root
    port: int
    authority: str  # what a Host header says
    is_address: bool  # the host, itself: nobody is asked where it is
    path: str = field(repr=False)  # with the query; it may hold a token


def judge_url(url: str, allow_private: AllowPrivate, ports: Set[int] = PUBLIC_PORTS) -> TargetFault | None:
    """Judge a URL of a caller as text, without any look-up; None means it may be stored and tried.

    >>> judge_url("https://app.example/hook", "none") is None
    True
    >>> judge_url("https://127.1/hook", "none")
    <TargetFault.HOST: 'host_not_allowed'>
    """
    if len(url) > URL_CHARS_MAX or not _PRINTABLE.fullmatch(url) or "\\" in url:
        return TargetFault.MALFORMED
    if "#" in url:
        return TargetFault.FRAGMENT
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return TargetFault.MALFORMED
    return _judge_parts(parts["scheme"].lower(), parts["authority"], allow_private, ports)


def place_of(url: str) -> Place:
    """Take a URL apart that `judge_url` let pass. Raises ValueError for one that it would not.

    >>> place_of("https://App.example.:8443?a=b")
    Place(is_tls=True, host='app.example', port=8443, authority='app.example:8443', is_address=False)
    """
    parts = _PARTS.fullmatch(url)
    match = None if parts is None else _AUTHORITY.fullmatch(parts["authority"])
    if parts is None or match is None:
        raise ValueError("not a URL that was judged")
    scheme, host = parts["scheme"].lower(), match["host"].removesuffix(".").lower()
    port = int(match["port"] or _DEFAULT_PORT[scheme])
    authority = host if port == _DEFAULT_PORT[scheme] else f"{host}:{port}"
    path = parts["path"] or "/"
    bare = host.strip("[]")
    is_address = _parse_ip(bare) is not None
    return Place(scheme == "https", bare, port, authority, is_address, path if path[0] == "/" else "/" + path)


def judge_address(address: str, allow_private: AllowPrivate) -> TargetFault | None:
    """Judge the IP address a socket is about to connect to; anything that is no IP address is refused.

    >>> judge_address("100.64.0.1", "loopback")
    <TargetFault.ADDRESS: 'blocked_address'>
    """
    ip = _parse_ip(address)
    return None if ip is not None and _reachable(ip, allow_private) else TargetFault.ADDRESS


def _judge_parts(
    scheme: str, authority: str, allow_private: AllowPrivate, ports: Set[int]
) -> TargetFault | None:  # fmt: skip
    if scheme not in _DEFAULT_PORT:
        return TargetFault.SCHEME
    if "@" in authority:
        return TargetFault.USER_INFO
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return TargetFault.HOST
    host, port = match["host"], int(match["port"] or _DEFAULT_PORT[scheme])
    fault = _judge_host(host, allow_private)
    if fault is not None:
        return fault
    open_here = allow_private == "all" or (allow_private == "loopback" and _is_this_machine(host))
    if scheme == "http" and not open_here:
        return TargetFault.SCHEME
    if not (0 < port <= 65535 if open_here else port in ports):
        return TargetFault.PORT
    return None


def _judge_host(host: str, allow_private: AllowPrivate) -> TargetFault | None:
    if host.startswith("["):
        return judge_address(host[1:-1], allow_private)
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        return TargetFault.HOST
    # Resolvers read any host that ends in a number as IPv4 (0x7f.1, 2130706433): one spelling is enough.
    if _NUMBER.fullmatch(labels[-1]):
        return judge_address(host, allow_private) if _parse_ip(host) else TargetFault.HOST
    if allow_private == "none" and _is_this_machine(host):
        return TargetFault.ADDRESS
    return None


def _is_this_machine(host: str) -> bool:
    """Tell whether a host names loopback by its spelling alone."""
    ip = _parse_ip(host.strip("[]"))
    if ip is not None:
        return _kind(ip) == "loopback"
    name = host.removesuffix(".").lower()
    return name in _MACHINE_NAMES or name.endswith(".localhost")


def _parse_ip(text: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


_NETWORKS: tuple[tuple[str, str], ...] = (
    # First, since they lie inside wider networks that `all` opens: AWS, GCP, Azure, Alibaba, Oracle.
    ("metadata", "169.254.169.254/32 169.254.170.2/32 168.63.129.16/32 100.100.100.200/32 192.0.0.192/32"),
    ("metadata", "fd00:ec2::/32 fd20:ce::254/128"),
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("loopback", "127.0.0.0/8 ::1/128"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("shared", "100.64.0.0/10"),
    ("link_local", "169.254.0.0/16 fe80::/10"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("reserved", "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24"),
    ("reserved", "240.0.0.0/4 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16"),
    # IPv4 inside IPv6 leads wherever a translator sends it: mapped, compatible, SIIT, NAT64, 6to4, Teredo.
    ("embedded", "::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 2002::/16 2001::/32 ::/96"),
)
_KINDS: tuple[tuple[IpNetwork, str], ...] = tuple(
    (ipaddress.ip_network(network), kind) for kind, networks in _NETWORKS for network in networks.split()
)
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
_OPENED: dict[AllowPrivate, frozenset[str]] = {
    "none": frozenset({"public"}),
    "loopback": frozenset({"public", "loopback"}),
    "all": frozenset({"public", "loopback", "private", "shared", "link_local"}),
}


def _reachable(ip: IpAddress, allow_private: AllowPrivate) -> bool:
    return _kind(ip) in _OPENED[allow_private]


def _kind(ip: IpAddress) -> str:
    """Name the first network of the table that holds the address; IPv6 outside 2000::/3 is reserved."""
    for network, kind in _KINDS:
        if ip.version == network.version and ip in network:
            return kind
    if ip.version == 6 and (ip not in _GLOBAL_V6 or _is_isatap(ip)):
        return "reserved"
    return "public"


def _is_isatap(ip: IpAddress) -> bool:
    """ISATAP hides an IPv4 address behind the interface id 0:5efe (or 200:5efe)."""
    return int(ip) >> 32 & 0xFDFFFFFF == 0x00005EFE
