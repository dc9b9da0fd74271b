"""The store's own directory inside a data directory, and the files in it that are ours.

Promises a directory that only this user can enter. The server's files in it (`appendonlydir`) are its own.
"""

import json
import os
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from contracts.errors import ConfigError
from headrace.store_server.binary import ServerBinary
from headrace.store_server.socket_path import socket_path

_LOG_LIMIT_BYTES = 4 * 1024 * 1024
_TAIL_LINES = 8
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one embedded store."""

    directory: Path
    socket: Path

    @property
    def users_lock(self) -> Path:
        return self.directory / "users.lock"

    @property
    def server_lock(self) -> Path:
        return self.directory / "server.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.directory / "supervisor.lock"

    @property
    def log(self) -> Path:
        return self.directory / "store.log"

    def open_log(self) -> BufferedWriter:
        """Open the log for appending; a long one is set aside first. Only the starter calls this."""
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        return self.log.open("ab")

    def read_writer(self) -> ServerBinary | None:
        """The newest server that wrote here, if it is known and there are files to read."""
        if not (self.directory / "appendonlydir").exists():
            return None
        try:
            noted = json.loads((self.directory / "writer.json").read_bytes())
            major, minor, patch = noted["version"]
            return ServerBinary(Path(noted["path"]), str(noted["kind"]), (int(major), int(minor), int(patch)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note_writer(self, binary: ServerBinary) -> None:
        """Remember who writes here: a server of another kind or age could not read the files."""
        noted = {"path": str(binary.path), "kind": binary.kind, "version": binary.version}
        new = self.directory / "writer.json.new"
        new.write_text(json.dumps(noted), encoding="utf-8")
        new.replace(self.directory / "writer.json")


def open_home(data_dir: Path) -> Home:
    """Make and describe the store's directory below `data_dir`.

    Raises:
        ConfigError: the directory cannot be made or entered.
    """
    directory = Path(os.path.abspath(data_dir.expanduser())) / "store"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = directory.resolve(strict=True)
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(f"{directory} is not writable")
    except OSError as fault:
        raise ConfigError([f"the data directory cannot be used: {fault}"]) from fault
    return Home(directory, socket_path(directory))


def last_lines(log: Path) -> str:
    """The end of the log, for an error message; a remark when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
