"""Our end of the pipe to the keeper process, which ends the services when we are gone.

Promises a keeper that knows every running service: one that dies is replaced and told all again.
"""

import contextlib
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from headrace.stack import keeper

GRACE_S = 10.0
_EXIT_LIMIT_S = 2.0


@dataclass(slots=True)
class KeeperLink:
    """The keeper and what it was told."""

    data_dir: Path
    _process: "subprocess.Popen[bytes] | None" = None
    _running: set[str] = field(default_factory=set)

    @property
    def pid(self) -> int | None:
        """The keeper's pid, if there is one."""
        return self._process.pid if self._process else None

    def tell(self, line: str) -> None:
        """Pass on `+PID` or `-PID`."""
        pid = line[1:]
        self._running.add(pid) if line[0] == "+" else self._running.discard(pid)
        self._write(line)

    def check(self) -> None:
        """Replace the keeper if it is gone."""
        if self._process and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-I", keeper.__file__, str(GRACE_S), str(self.data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},  # it needs nothing of ours, which may hold secrets
            start_new_session=True,  # a signal to our group must not reach it before it has done its work
        )
        for pid in self._running:
            self._write(f"+{pid}")

    def close(self) -> None:
        """Let the keeper go: whatever is still on its list is ended."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_LIMIT_S)

    def _write(self, line: str) -> None:
        # a keeper that died meanwhile hears it from `check`
        with contextlib.suppress(OSError):
            if self._process and self._process.stdin:
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()
