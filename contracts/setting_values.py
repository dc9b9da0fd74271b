"""The kinds of values that settings have: how they are written, and their bounds.

Promises: what cannot be meant is a fault whose text says what to write instead.
"""

import base64
import ipaddress
import re
from typing import Annotated
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from contracts.ids import is_pool_name
from contracts.outbound.terms import Proxy

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# An empty file, or a word somebody can guess, is no secret; ingest reads keys of up to 256 characters.
_ADMIN_KEY = re.compile(r"[\x21-\x7e]{16,256}")
_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")
_PUBLIC_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_TOPIC = re.compile(r"kafka://[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*/[A-Za-z0-9._-]{1,249}", re.ASCII)
# A name: the proxy is found by the system, not by the nameservers that webhooks may be given.
_PROXY = re.compile(r"http://(?:([!-~]+)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})/?")
_NAMESERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(?::([0-9]{1,5}))?")
_DNS_PORT = 53


def parse_seconds(value: object) -> object:
    """Read `90`, `1.5`, `10m`, `24h` as seconds; leaves anything else to pydantic.

    >>> parse_seconds("10m"), parse_seconds("2")
    (600.0, '2')
    """
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match[1]) * _UNITS[match[2]]
    return value


def _pool_name(value: str) -> str:
    # It becomes part of keys and of a folder's name.
    if not is_pool_name(value):
        raise ValueError("a pool's name is 1 to 32 of a-z, 0-9 and -, and starts with a letter")
    return value


def _public_url(value: str) -> str:
    if value and not _PUBLIC_URL.fullmatch(value):
        raise ValueError("write what links begin with, such as https://headrace.example, or leave it out")
    return value


def _endpoint(value: str) -> str:
    # A password in it would end up in logs, and in the links that are signed.
    if value and not _ENDPOINT.fullmatch(value):
        raise ValueError("write scheme, host and port only, such as https://minio.example:9000")
    return value


def _topic(value: str) -> str:
    if value and not _TOPIC.fullmatch(value):
        raise ValueError("write kafka://host:port/topic, several servers with commas between, or leave it out")
    return value


def read_topic(text: str) -> tuple[str, str] | None:
    """Return the servers and the topic of `kafka://host:port,host:port/topic`; None for nothing.

    >>> read_topic("kafka://one:9092,two:9093/events")
    ('one:9092,two:9093', 'events')
    """
    servers, _, topic = text.removeprefix("kafka://").partition("/")
    return (servers, topic) if topic else None


def _admin_key(key: SecretStr) -> SecretStr:
    if not _ADMIN_KEY.fullmatch(key.get_secret_value()):
        raise ValueError("an admin key has 16 to 256 printable characters and no space")
    return key


def parse_nameservers(value: object) -> object:
    """Read `10.0.0.2,[fd00::2]:5353`; leaves anything but a text to pydantic.

    >>> parse_nameservers("10.0.0.2,[fd00::2]:5353")
    (('10.0.0.2', 53), ('fd00::2', 5353))
    """
    if not isinstance(value, str):
        return value
    return tuple(_nameserver(text.strip()) for text in value.split(",") if text.strip())


def _nameserver(text: str) -> tuple[str, int]:
    match = _NAMESERVER.fullmatch(text) or _NAMESERVER.fullmatch(f"[{text}]")
    try:
        if match is None:
            raise ValueError
        host, port = str(ipaddress.ip_address(match[1].strip("[]"))), int(match[2] or _DNS_PORT)
    except ValueError:
        port = 0
    if not 0 < port < 65_536:
        raise ValueError("write addresses with a port or without, such as 10.0.0.2,[fd00::2]:5353")
    return host, port


def parse_proxy(value: object) -> object:
    """Read `http://user:password@proxy.example:3128`; leaves anything but a text to pydantic.

    >>> parse_proxy("http://proxy.example:3128")
    Proxy(host='proxy.example', port=3128)
    """
    if not isinstance(value, str) or not value:
        return value or None
    match = _PROXY.fullmatch(value)
    if match is None or not 0 < int(match[3]) < 65_536:
        raise ValueError("write http://host:port, or http://user:password@host:port; there is no TLS to a proxy")
    given = unquote(match[1] or "")
    authorization = f"Basic {base64.b64encode(given.encode()).decode()}" if given else ""
    return Proxy(match[2].strip("[]"), int(match[3]), authorization)


def parse_ports(value: object) -> object:
    """Read `443,8443`; leaves anything but a text to pydantic."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0, le=31_536_000)]
Positive = Annotated[float, BeforeValidator(parse_seconds), Field(gt=0, le=31_536_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
PoolName = Annotated[str, AfterValidator(_pool_name)]
PublicUrl = Annotated[str, AfterValidator(_public_url)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
KafkaTopic = Annotated[str, AfterValidator(_topic)]
AdminKey = Annotated[SecretStr, AfterValidator(_admin_key)]
Nameservers = Annotated[tuple[tuple[str, int], ...], BeforeValidator(parse_nameservers)]
ProxyUrl = Annotated[Proxy | None, BeforeValidator(parse_proxy)]
Ports = Annotated[
    frozenset[Annotated[int, Field(ge=1, le=65_535)]], BeforeValidator(parse_ports), Field(min_length=1, max_length=64)
]
