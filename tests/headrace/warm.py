"""Runs of `headrace` that do not pay for its imports each time; see warm_process.py."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.headrace.up_process import Up, plain_environment

ROOT = Path(__file__).parents[2]


class Done:
    """One run of `headrace`."""

    def __init__(self, exit_code: int, out: str, err: str) -> None:
        self.exit_code, self.out, self.err = exit_code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Warm:
    """A `headrace` with all its modules loaded, started at the first run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: tuple[str, ...], folder: Path, environ: dict[str, str]) -> Done:
        """Run it to its end in a process of its own."""
        if self._process is None:
            command = [sys.executable, "-m", "tests.headrace.warm_process"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.TemporaryDirectory(prefix="hr-") as said:
            out, err = Path(said) / "out", Path(said) / "err"
            asked = {"words": words, "cwd": str(folder), "env": environ, "out": str(out), "err": str(err)}
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            exit_code = int(self._process.stdout.readline())
            return Done(exit_code, out.read_text(), err.read_text())

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


warm = Warm()


def headrace(up: Up, *words: str, folder: Path | None = None, **settings: str) -> Done:
    """Run it beside `.headrace`, as a person would; its modules are loaded already."""
    return warm.run(words, folder or up.data_dir.parent, plain_environment(**settings))
