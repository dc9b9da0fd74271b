"""Where the command line finds the server, its key and a webhook secret: flags, then the environment, then keys.json.

That is `./.headrace/keys.json`. Each value is looked up on its own, so `--url` may be combined with a key from the
environment.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.notifier.attempt.signature import parse_secret

DEFAULT_URL = "http://127.0.0.1:8080"
LOCAL_KEYS = Path(".headrace") / "keys.json"
_URL = re.compile(r"https?://[\x21-\x7e]+", re.IGNORECASE)
_KEY = re.compile(r"[\x21-\x7e]+")
_SIGNS_WEBHOOKS = "webhookSecret"


class NoKey(Exception):
    """No key was given; the text says where one can be put."""


class BadAddress(Exception):
    """What was given as an address is none; the text says how one looks."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An address and the key to use there; the key never shows in a repr."""

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Connection(url={self.url!r})"


def find_connection(
    url: str | None, key_file: Path | None, environ: Mapping[str, str], *, key_name: str, local: Path = LOCAL_KEYS
) -> Connection:
    """Combine flags, environment and the local file.

    Args:
        key_name: which key of a JSON key file to take, `apiKey` or `adminKey`.

    Raises:
        NoKey: no key anywhere, or the named file cannot be read or holds something else.
        BadAddress: the address is no URL of a server.
    """
    known, source = _look_up(key_file, "HEADRACE_CLIENT__KEY", environ, key_name, local)
    if not known.get(key_name):
        raise NoKey(
            f"no key: give --key-file, set HEADRACE_CLIENT__KEY_FILE, or run `headrace up` here (it makes {local})"
        )
    if not _KEY.fullmatch(known[key_name]):
        raise NoKey(f"{source} holds no key: it is one line without spaces")
    # the address beside the key: a key of one server must not be sent to another
    address = url or environ.get("HEADRACE_CLIENT__URL") or known.get("url") or DEFAULT_URL
    if not _URL.fullmatch(address):
        raise BadAddress(f"{address!r} is no address of a server: write one like {DEFAULT_URL}")
    return Connection(address, known[key_name])


def find_webhook_secret(file: Path | None, environ: Mapping[str, str], *, local: Path = LOCAL_KEYS) -> str:
    """Return what signs webhooks. Raises NoKey where there is none, or what is there is none."""
    known, source = _look_up(file, "HEADRACE_CLIENT__WEBHOOK_SECRET", environ, _SIGNS_WEBHOOKS, local)
    if not known.get(_SIGNS_WEBHOOKS):
        raise NoKey("no webhook secret: give --secret-file, or set HEADRACE_CLIENT__WEBHOOK_SECRET_FILE")
    try:
        parse_secret(known[_SIGNS_WEBHOOKS])
    except ValueError as fault:
        raise NoKey(f"{source}: {fault}") from None
    return known[_SIGNS_WEBHOOKS]


def _look_up(
    file: Path | None, variable: str, environ: Mapping[str, str], name: str, local: Path
) -> tuple[dict[str, str], str]:
    """Return what is known by name, and where that was found."""
    named = file or (Path(path) if (path := environ.get(f"{variable}_FILE")) else None)
    if named:
        return _read_file(named, name), str(named)
    if given := environ.get(variable):
        return {name: given}, variable
    return _read_local(local), str(local)


def _read_file(path: Path, key_name: str) -> dict[str, str]:
    """What a key file says: a keys.json, or the key and nothing else."""
    try:
        text = path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise NoKey(f"the key file cannot be read: {fault}") from fault
    if not text.startswith("{"):
        return {key_name: text}
    found = _parse(text)
    if key_name not in found:
        raise NoKey(f"{path} is JSON without {key_name!r}")
    return found


def _read_local(path: Path) -> dict[str, str]:
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}


def _parse(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
