"""A client of the live streams: what it is told, where it stands, and how it drops the line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from contracts import events as ev
from contracts.settings import Settings
from contracts.store import Word
from contracts.store.attempts import Attempt
from services.ingest.service import IngestService
from tests.ingest.api import Api
from tests.store.play import Play

Told = tuple[str, str, dict[str, Any]]  # name, id, data
WAIT_S = 20


@dataclass
class Line:
    """One connection: `ids` of what was told on it, `beats` counts the comments."""

    response: aiohttp.ClientResponse
    ids: list[str] = field(default_factory=list)
    beats: int = 0

    async def next(self) -> Told:
        """Return what is told next; comments and `retry` are passed over."""
        async with asyncio.timeout(WAIT_S):
            while True:
                fields: dict[str, str] = {}
                while raw := (await self.response.content.readline()).decode().rstrip("\n"):
                    name, _, value = raw.partition(": ")
                    self.beats += raw == ": hb"
                    fields[name] = value
                if "data" in fields:
                    self.ids += [fields["id"]] if "id" in fields else []
                    return fields["event"], fields.get("id", ""), orjson.loads(fields["data"])
                if self.response.content.at_eof():
                    raise EOFError

    async def names(self, count: int) -> list[str]:
        """Return the names of what is told next."""
        return [(await self.next())[0] for _ in range(count)]

    async def rest(self) -> list[Told]:
        """Return what is told up to `end`, which is not among it, and has to be the last."""
        told: list[Told] = []
        while True:
            one = await self.next()
            if one[0] == "end":
                self.reason = one[2]["reason"]
                return told
            told.append(one)

    async def beat(self) -> None:
        """Wait for the next heartbeat."""
        async with asyncio.timeout(WAIT_S):
            while (await self.response.content.readline()) != b": hb\n":
                pass


@asynccontextmanager
async def listening(
    api: Api, path: str, *, key: str | None = None, after: str | None = None
) -> AsyncIterator[Line]:  # fmt: skip
    headers = {"Authorization": f"Bearer {api.key if key is None else key}"} if key != "" else {}
    headers |= {"Last-Event-ID": after} if after else {}
    async with api.session.get(api.url + path, headers=headers) as response:
        assert response.status == 200, (response.status, await response.read())
        yield Line(response)


@asynccontextmanager
async def replica(settings: Settings) -> AsyncIterator[Api]:
    """Another process on the same store."""
    service = IngestService(settings)
    await service.start()
    async with aiohttp.ClientSession() as session:
        try:
            await service.context.opened.wait()
            yield Api(service, session)
        finally:
            await service.stop()


async def progresses(play: Play, attempt: Attempt, *percents: float) -> None:
    """Tell progress of a running job, an event each."""
    for percent in percents:
        said = await play.store.attempts.emit(attempt, [ev.JobProgress(progress=percent)])
        assert said.word is Word.APPLIED


async def previews(play: Play, attempt: Attempt, *steps: int) -> None:
    for step in steps:
        shown = ev.PreviewAvailable(
            artifact_id=f"art_{attempt.job_id[4:]}_preview", path="/v1/artifacts/x/content", mime="image/webp",
            bytes=3, step=step, total_steps=30,
        )  # fmt: skip
        assert (await play.store.attempts.emit(attempt, [shown])).word is Word.APPLIED


async def log_of(api: Api, job_id: str) -> list[dict[str, Any]]:
    """Return the job's events as the list of them shows them: what a stream is counted against."""
    return list((await api.get(f"/v1/jobs/{job_id}/events?limit=500")).body["data"])
