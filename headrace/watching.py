"""Watching a job to its end: its place in the queue is asked for while it waits, then its stream tells."""

import asyncio
from collections.abc import AsyncIterator

from headrace.client import TERMINAL, WAITING, Client, JsonObject
from headrace.event_stream import follow_events

FIRST_POLL_S = 0.1
LONGEST_POLL_S = 1.0
_TOLD = ("progress", "step", "totalSteps", "phase")  # what an event of progress says of the job itself


async def watch(client: Client, job_id: str, limit_s: float) -> AsyncIterator[JsonObject]:
    """Yield the job each time it has changed, until it is terminal. Raises TimeoutError after `limit_s`."""
    path, last = f"/v1/jobs/{job_id}", JsonObject()
    async with asyncio.timeout(limit_s):
        async for last in _while_it_waits(client, path):
            yield last
        if last["status"] in TERMINAL:
            return
        async for name, data, _ in follow_events(client, f"{path}/stream?previews=none"):
            if name in ("gap", "end"):
                continue
            job = await _now(client, path, name, data, last)
            if _differs(job, last):
                last = job
                yield last


async def _while_it_waits(client: Client, path: str) -> AsyncIterator[JsonObject]:
    """Yield a job until it does not wait: its place is in no event, since others move it. Slower if nothing changes."""
    last: JsonObject = {}
    pause_s = FIRST_POLL_S
    while True:
        job = (await client.get(path)).body
        has_changed = _differs(job, last)
        if has_changed:
            last = job
            yield last
        if job["status"] not in WAITING:
            return
        pause_s = FIRST_POLL_S if has_changed else min(LONGEST_POLL_S, pause_s * 1.5)
        await asyncio.sleep(pause_s)


async def _now(client: Client, path: str, name: str, data: JsonObject, last: JsonObject) -> JsonObject:
    if name == "snapshot":
        job: JsonObject = data["job"]
        return job
    if name == "job.progress":
        told = {field: data["data"][field] for field in _TOLD if field in data["data"]}
        return last | told | {"sequence": data["sequence"]}
    return (await client.get(path)).body


def _differs(job: JsonObject, before: JsonObject) -> bool:
    """Whether there is something new to show: an event, or another place in the queue."""
    seen = [(each.get("sequence"), (each.get("queue") or {}).get("position")) for each in (job, before)]
    return not before or seen[0] != seen[1]
