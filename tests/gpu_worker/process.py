"""A supervisor as a process of its own, as `headrace up` and production start it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from contracts import events as ev
from contracts.store import Store
from tests.gpu_worker.rig import PATIENCE_S
from tests.gpu_worker.stage import Stage

SAMPLES = Path(__file__).parents[1] / "pipelines" / "pipelines.toml"
ROOT = Path(__file__).parents[2]


class Process:
    """`python -m services.gpu_worker`. Leaving its block without having ended it kills it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ends(self) -> int:
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self.ends()

    async def line_with(self, text: str) -> str:
        """Wait until it says so on stderr."""
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while text not in (line := (await self._process.stderr.readline()).decode()):
                assert line, f"it ended without {text}"
        return line

    async def errors(self) -> str:
        _, errors = await asyncio.wait_for(self._process.communicate(), PATIENCE_S)
        return errors.decode()


def environment(url: str, folder: Path, **settings: str) -> dict[str, str]:
    """Return settings for quick tests; `settings` are names without prefix, in lower case."""
    quick = {
        "redis__url": url,
        "data_dir": str(folder / "data"),
        "pipelines": str(SAMPLES),
        "worker__heartbeat_s": "0.1",
        "worker__lease_s": "1",
        "worker__cancel_grace_s": "0.5",
        "worker__term_grace_s": "0.3",
        "worker__drain_s": "5",
        "retry__base_s": "0.1",
    }
    own = {f"HEADRACE_{name.upper()}": value for name, value in {**quick, **settings}.items()}
    return {"PATH": os.environ["PATH"], "TMPDIR": str(folder), **own}


async def start(
    url: str, folder: Path, *, listen: bool = False, packages: Path | None = None,
    variables: Mapping[str, str] | None = None, **settings: str,
) -> Process:  # fmt: skip
    """Start one; with `listen` its stderr is kept for `errors`, `packages` are found before the installed ones.

    `variables` are in its environment as they are.
    """
    path = {"PYTHONPATH": str(packages)} if packages else {}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.gpu_worker",
        cwd=ROOT,
        env=environment(url, folder, **settings) | path | dict(variables or {}),
        stderr=asyncio.subprocess.PIPE if listen else None,
    )
    return Process(process)


@asynccontextmanager
async def worker(store: Store, folder: Path, **settings: str) -> AsyncIterator[tuple[Process, Stage, str]]:
    """Run a supervisor; yields it, a stage, and its worker id."""
    stage = Stage(store)
    await stage.lead()
    async with await start(store.url, folder, **settings) as process:
        registered = await stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        yield process, stage, registered.worker_id
