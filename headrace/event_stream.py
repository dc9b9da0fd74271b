"""Server-sent events, followed to their `end` across broken connections and restarts of the server."""

import asyncio
from collections.abc import AsyncIterator

import orjson

from headrace.client import Client, JsonObject, Problem, Unreachable

TRIES = 8
_COME_BACK = ("going_away", "slow_consumer")  # ends behind which the rest is there by the last id
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


async def follow_events(client: Client, path: str) -> AsyncIterator[tuple[str, JsonObject, str]]:
    """Yield name, data and id of each event, each once, up to `end`. Raises Unreachable, Problem.

    A server whose store is away for a moment (503) is asked again as one that is away itself.
    """
    last_id, failures = "", 0
    while True:
        try:
            async for name, event_id, data in _once(client, path, last_id):
                last_id, failures = event_id or last_id, 0
                if name == "end" and data.get("reason") in _COME_BACK:
                    break
                yield name, data, event_id
                if name == "end":
                    return
            else:
                return  # 204: all of it was here before
        except (Unreachable, Problem) as fault:
            failures += 1
            if failures >= TRIES or (isinstance(fault, Problem) and fault.status != 503):
                raise
        await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures))


async def _once(client: Client, path: str, last_id: str) -> AsyncIterator[tuple[str, str, JsonObject]]:
    """Yield name, id and data of the events of one connection. Raises Unreachable when it ends before an `end`."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    fields: dict[str, str] = {}
    has_begun = False
    async for line in client.lines(path, headers):
        has_begun = True
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield fields.get("event", "message"), fields.get("id", ""), orjson.loads(fields["data"])
        fields = {}
    if has_begun:
        raise Unreachable(f"{client.url}: the stream broke off")
