"""`POST /v1/jobs`: from bytes to a durable job."""

import re
from collections.abc import Mapping, Sequence

from aiohttp import web

from contracts.api import GenerationJobData
from contracts.job import TERMINAL
from services.ingest.admission.admit import read_key
from services.ingest.context import Context
from services.ingest.edge.body import read_body
from services.ingest.edge.conditional import etag
from services.ingest.edge.headers import only_header
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.submissions import Envelope, Submissions, Submitted, rates_of
from services.ingest.requests import parse_body
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.watch import JobWatch

MAX_WAIT_S = 60
_WAIT = re.compile(r"\s*wait\s*=\s*(\d{1,6})\s*", re.ASCII | re.IGNORECASE)


class SubmitHandler:
    """The route of one job."""

    def __init__(self, context: Context, submissions: Submissions, watch: JobWatch) -> None:
        self._context = context
        self._submissions = submissions
        self._watch = watch

    async def submit(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Admit a job; 201 once it is durable, 200 for a repeat, 200 or 202 when the caller waits."""
        preferences = request.headers.getall("Prefer", ())
        wait_s = read_wait(preferences)
        envelope = read_envelope(request, caller)
        with self._context.room.share() as share:
            raw = await read_body(request, self._context.body_limits, share)
            submitted = await self._submissions.submit(envelope, parse_body(GenerationJobData, raw))
        if wait_s is not None:
            return await self._answer_when_ended(submitted, wait_s)
        view = await self._submissions.view(submitted)
        applied = {"Preference-Applied": "respond-async"} if wants_no_wait(preferences) else {}
        return _answer(view, 200 if submitted.admitted.is_old else 201, applied | self._told(submitted))

    async def _answer_when_ended(self, submitted: Submitted, wait_s: int) -> web.Response:
        await self._watch.wait(submitted.draft.pool, submitted.admitted.job_id, wait_s)
        view = await self._submissions.view(submitted, latest=True)
        headers = {"Preference-Applied": f"wait={wait_s}"} | self._told(submitted)
        has_ended = "expired" in view or view["status"] in TERMINAL
        return _answer(view, 200 if has_ended else 202, headers)

    def _told(self, submitted: Submitted) -> dict[str, str]:
        admitted = submitted.admitted
        fields = rates_of(self._context, submitted.envelope.caller, admitted.submits)
        fields |= {"Idempotent-Replayed": "true"} if admitted.is_repeat else {}
        return fields | ({"Deduplicated": "true"} if admitted.is_duplicate else {})


def read_envelope(request: web.Request, caller: Caller) -> Envelope:
    """Read what comes beside the body. Raises Problem `missing_idempotency_key`, `bad_request`."""
    key_hash = read_key(only_header(request, "Idempotency-Key"))
    return Envelope(caller, key_hash, request.headers.get("traceparent", ""))


def read_wait(preferences: Sequence[str]) -> int | None:
    """Return the seconds of `Prefer: wait=N`, capped; None without one (RFC 7240).

    >>> read_wait(["respond-async", "wait=90"])
    60
    """
    for text in ",".join(preferences).split(","):
        match = _WAIT.fullmatch(text)
        if match is not None:
            return min(MAX_WAIT_S, int(match[1]))
    return None


def wants_no_wait(preferences: Sequence[str]) -> bool:
    """Whether `Prefer: respond-async` is asked for, which is what happens without any preference.

    >>> wants_no_wait(["handling=strict, Respond-Async"]), wants_no_wait([])
    (True, False)
    """
    return any(text.strip().lower() == "respond-async" for text in ",".join(preferences).split(","))


def _answer(view: JsonObject, status: int, headers: Mapping[str, str]) -> web.Response:
    if "expired" in view:  # nothing more than its id is known, and there is nothing to read any more
        return json_answer(view, status, headers)
    links = {"Location": f"/v1/jobs/{view['id']}", "ETag": etag(view["sequence"])}
    return json_answer(view, status, links | dict(headers))
