"""The growing picture of a running job: one file, replaced as a whole, at most twice a second. Lossy by design.

Promises: the newest frame wins, one is stored at a time, and nothing of it delays the attempt or outlives it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from contracts.events import ArtifactRef, Event, PreviewAvailable
from contracts.waiting import wait
from services.gpu_worker.artifacts import ArtifactRejected
from services.gpu_worker.process.frames import Preview

GAP_S = 0.5
LIMIT_BYTES = 2 << 20
log = structlog.get_logger()


class Previews:
    """The previews of one attempt: `store` puts one away, `on_shown` hears of it."""

    def __init__(self, store: Callable[[Preview], Awaitable[ArtifactRef]], on_shown: Callable[[Event], None]) -> None:
        self._store, self._on_shown = store, on_shown
        self._newest: Preview | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def show(self, frame: Preview, total_steps: int | None) -> None:
        """Take a preview; it replaces one that still waits."""
        self._newest, self._total_steps = frame, total_steps
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._store_newest())

    async def close(self) -> None:
        """Drop what waits, let what is being stored end, and say no more."""
        self._closed, self._newest = True, None
        if self._task is not None and not self._task.done():
            self._wake.set()
            await asyncio.wait([self._task], timeout=GAP_S)

    async def _store_newest(self) -> None:
        self._wake = asyncio.Event()
        while self._newest is not None:
            frame, self._newest = self._newest, None
            await self._store_one(frame)
            await wait(self._wake, GAP_S)

    async def _store_one(self, frame: Preview) -> None:
        try:
            stored = await self._store(frame)
        except (OSError, ArtifactRejected) as error:
            log.info("preview_dropped", job=frame.job, detail=str(error))
            return
        if not self._closed:
            self._on_shown(
                PreviewAvailable(
                    artifact_id=stored.id,
                    path=stored.path,
                    mime=stored.mime,
                    bytes=stored.bytes,
                    step=frame.step,
                    total_steps=self._total_steps,
                )
            )
