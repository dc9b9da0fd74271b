"""Events from a moment of the past on into the present: what the log has of them, then the stream, without a hole.

Promises: each event once, also over a connection that breaks off and a server that restarts; where the server says that
events will not come, a `gap` stands in their place.
"""

from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import orjson

from headrace.client import Client, JsonObject, Problem
from headrace.event_stream import follow_events
from headrace.events.exported import Exported

STREAM = "/v1/stream"
MOST_KNOWN = 10_000  # jobs whose model is remembered
_NAMES = {"type": "types", "userId": "userId"}  # how the stream calls the filters that it has


class Following:
    """`params`: filters as lists of events take them; with `from`, from then on."""

    def __init__(self, client: Client, params: Sequence[tuple[str, str]]) -> None:
        self._client, self._params, self._asked = client, list(params), dict(params)
        self._models: dict[str, str] = {}

    async def events(self) -> AsyncIterator[JsonObject]:
        """Yield events, and gaps as `{type: "gap", requested, oldest}`. Raises Problem, Unreachable, NotWhole."""
        query = {"previews": "none"} | {_NAMES[name]: text for name, text in self._params if name in _NAMES}
        has_begun = False
        async for name, data, place in follow_events(self._client, f"{STREAM}?{urlencode(query)}"):
            if name == "snapshot":
                if not has_begun and "from" in self._asked:
                    async for event in self._past(place):
                        yield event
                has_begun = True
                self._models |= {job["id"]: job["model"] for job in data["jobs"]}
            elif name == "gap":
                yield {"type": "gap"} | data
            elif name != "end" and await self._is_wanted(data):
                yield data

    async def _past(self, upto: str) -> AsyncIterator[JsonObject]:
        """Yield what the log has up to where the stream begins, which was open before the log is read."""
        begins = {pool: _key(place) for pool, _, place in (text.split(".", 2) for text in upto.split(","))}
        async for line in Exported(self._client, self._params).lines():
            event = orjson.loads(line)
            pool, _, place = event["position"].split(".", 2)
            if pool in begins and _key(place) <= begins[pool]:
                yield event

    async def _is_wanted(self, event: JsonObject) -> bool:
        job_id, model = self._asked.get("jobId"), self._asked.get("model")
        if job_id is not None and event["subject"] != job_id:
            return False
        return model is None or _is_of(await self._model_of(event), model)

    async def _model_of(self, event: JsonObject) -> str:
        """Return the model of an event's job; the stream does not say it of jobs that ended before it began."""
        job_id = str(event["subject"])
        if event["type"] == "job.created":
            self._models[job_id] = event["data"]["model"]
        elif job_id not in self._models:
            if len(self._models) > MOST_KNOWN:
                self._models.clear()
            self._models[job_id] = await self._asked_model(job_id)
        return self._models[job_id]

    async def _asked_model(self, job_id: str) -> str:
        try:
            return str((await self._client.get(f"/v1/jobs/{job_id}")).body["model"])
        except Problem as fault:
            if fault.status not in (404, 410):
                raise
            return ""


def _is_of(model: str, wanted: str) -> bool:
    return wanted in (model, model.partition("@")[0])


def _key(place: str) -> tuple[int, int]:
    ms, _, number = place.partition("-")
    return int(ms), int(number)
