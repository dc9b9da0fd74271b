"""Where the server's unix socket lies: beside its data, or in a private directory when that path is too long.

Promises a path that fits `sun_path` on Linux and macOS and a directory that nobody else can write to.
The same data directory always gives the same path, whatever `TMPDIR` says: two users must meet there.
"""

import hashlib
import os
import stat
from pathlib import Path
from urllib.parse import quote

from contracts.errors import ConfigError

LONGEST_BYTES = 100
"""`sun_path` holds 108 bytes on Linux and 104 on macOS, the final zero included."""

_SHORT_ROOT = Path("/tmp")


def socket_path(home: Path, *, short_root: Path = _SHORT_ROOT) -> Path:
    """The socket of the server whose files lie in `home`; makes the private directory if it is needed.

    Raises:
        ConfigError: the fallback directory belongs to somebody else or is open to others.
    """
    beside = home / "store.sock"
    if len(os.fsencode(beside)) <= LONGEST_BYTES:
        return beside
    return _private(short_root / f"headrace-{os.getuid()}") / f"{_digest(home)}.sock"


def socket_url(path: Path) -> str:
    """The URL that redis-py opens; quoted, as a `#` or `?` in a directory's name would cut it short."""
    return f"unix://{quote(os.fsencode(path))}"


def _digest(home: Path) -> str:
    # With its inode: a directory that was renamed and one made where it was are two, and so are their servers.
    name = os.fsencode(home) + (b"%d" % home.stat().st_ino if home.exists() else b"")
    return hashlib.sha256(name).hexdigest()[:16]


def _private(directory: Path) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    # lstat: a link planted in /tmp would send our socket into somebody else's directory
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError([f"{directory} is not a private directory of this user: remove it or chmod it to 700"])
    return directory
