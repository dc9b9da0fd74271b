"""The kinds of values that settings have: how they are written, and their bounds.

Promises: what cannot be meant is a fault whose text says what to write instead.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from contracts.ids import is_pool_name

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# An empty file, or a word somebody can guess, is no secret; ingest reads keys of up to 256 characters.
_ADMIN_KEY = re.compile(r"[\x21-\x7e]{16,256}")
_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")
_PUBLIC_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_TOPIC = re.compile(r"kafka://[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*/[A-Za-z0-9._-]{1,249}", re.ASCII)


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


def _admin_key(key: SecretStr) -> SecretStr:
    if not _ADMIN_KEY.fullmatch(key.get_secret_value()):
        raise ValueError("an admin key has 16 to 256 printable characters and no space")
    return key


Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0, le=31_536_000)]
Positive = Annotated[float, BeforeValidator(parse_seconds), Field(gt=0, le=31_536_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
PoolName = Annotated[str, AfterValidator(_pool_name)]
PublicUrl = Annotated[str, AfterValidator(_public_url)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
KafkaTopic = Annotated[str, AfterValidator(_topic)]
AdminKey = Annotated[SecretStr, AfterValidator(_admin_key)]
