"""`<data-dir>/keys.json`: the keys that `headrace up` minted, readable by its owner alone.

Promises the same keys at each start, and a file that is either whole or absent. A file that others may read is
refused rather than used: its keys are no secret any more.
"""

import base64
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError

_KEY_BYTES = 32
_NAMES = {"apiKey": "api_key", "adminKey": "admin_key", "webhookSecret": "webhook_secret"}


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """What a local stack hands to its user. Never shows in a repr."""

    api_key: str
    admin_key: str
    webhook_secret: str

    def __repr__(self) -> str:
        return "LocalKeys(...)"


def mint_keys() -> LocalKeys:
    """New keys: `sk_local_<keyId>_<32 random bytes>`, and a Standard Webhooks secret."""
    secret = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    return LocalKeys(_mint_key(), _mint_key(), f"whsec_{secret}")


def key_id(key: str) -> str:
    """The id inside a key, which is no secret."""
    return f"key_{key.split('_')[2]}"


def read_keys(path: Path) -> LocalKeys | None:
    """The keys of an earlier start; None when there are none.

    Raises:
        ConfigError: the file is damaged, or others may read it.
    """
    try:
        mode = path.stat().st_mode
        found = json.loads(path.read_text(encoding="utf-8"))
        keys = LocalKeys(**{field: str(found[name]) for name, field in _NAMES.items()})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise ConfigError([f"{path} cannot be read ({fault!r}): remove it to get new keys"]) from fault
    if mode & 0o077:
        raise ConfigError([f"{path} can be read by others: chmod 600 it, or remove it to get new keys"])
    return keys


def write_keys(path: Path, keys: LocalKeys, url: str) -> None:
    """Put the keys and the address where the command line finds them; atomic, mode 0600."""
    values = {"url": url} | {name: getattr(keys, field) for name, field in _NAMES.items()}
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _mint_key() -> str:
    # hex: an id or a secret of letters and digits only survives every shell, URL and copy by double click
    return f"sk_local_{secrets.token_hex(8)}_{secrets.token_hex(_KEY_BYTES)}"
