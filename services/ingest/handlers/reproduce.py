"""`POST /v1/jobs/{id}/reproduce`: a new job that runs once more what a completed one ran.

Promises: model files, code, seed and inputs are those of the first job, or it is refused and told which of them is not
to be had; the first job is only read. Admitted like any new job: limits, Idempotency-Key, tenant. The worker that runs
it says how near the result came.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from contracts import events as ev
from contracts.api import GenerationJobData, JobPolicy
from contracts.file_inputs import ARTIFACTS
from contracts.job import JobStatus
from contracts.model_spec import check_input
from contracts.reproduction import MOST_RESULT_BYTES, PinnedFile, Pins
from contracts.store.jobs import MOST_EVENTS, History
from services.ingest.admission.input_files import find
from services.ingest.context import Context
from services.ingest.edge.conditional import etag
from services.ingest.edge.problems import Fault, Problem
from services.ingest.events.finding import EventReader
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.read import JobReader, Shown, missing_job
from services.ingest.handlers.submissions import Submissions, rates_of
from services.ingest.handlers.submit import read_envelope
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import BodyLines, read_lines

_SMALLEST = 1  # seconds of an execution timeout


class ReproduceHandler:
    """Makes jobs out of jobs."""

    def __init__(self, context: Context, reader: JobReader, events: EventReader, submissions: Submissions) -> None:
        self._context, self._reader, self._events, self._submissions = context, reader, events, submissions

    async def reproduce(self, request: web.Request, caller: Caller) -> web.Response:
        """Admit the new job; 201, or 200 for a repeat."""
        check_query(request, frozenset())
        envelope, job_id = read_envelope(request, caller), request.match_info["id"]
        shown = await self._reader.find(caller, job_id)
        if shown is None:
            raise await missing_job(self._events, caller, job_id)
        if shown.state.status is not JobStatus.COMPLETED:
            raise Problem("not_reproducible", f"The job is {shown.state.status}, not completed")
        history = await self._reader.history(shown, MOST_EVENTS)
        lines = read_lines(history.body)
        if not lines.spec:
            raise Problem("data_erased", "What the job was asked to do is gone")
        pins = _pins(shown, history, lines)
        data = _asked(shown, history, lines.spec)
        faults = await self._gone(shown, pins, data, caller)
        refused = _not_reproducible(*faults) if faults else None
        submitted = await self._submissions.submit(envelope, data, pins, refused)
        view, admitted = await self._submissions.view(submitted), submitted.admitted
        headers = rates_of(self._context, caller, admitted.submits)
        headers |= {"Idempotent-Replayed": "true"} if admitted.is_repeat else {}
        if "expired" not in view:
            headers |= {"Location": f"/v1/jobs/{view['id']}", "ETag": etag(view["sequence"])}
        return json_answer(view, 200 if admitted.is_old else 201, headers)

    async def _gone(self, shown: Shown, pins: Pins, data: GenerationJobData, caller: Caller) -> list[Fault]:
        """Name what of the pins is not to be had."""
        context, reference = self._context, shown.state.model
        model = context.models.find(reference)
        if model is None or check_input(model, data.prompt, data.input):
            # at once: there is nothing that a job could be made of
            raise _not_reproducible(Fault("/model", "gone", f"{reference} is served no more, or takes other inputs"))
        wanted = pins.manifest.model_hash or "", pins.manifest.code_version or ""
        served = await context.within(context.capacity.pins(shown.meta.name, reference))
        faults = []
        if wanted not in served:
            if wanted[0] not in {files for files, _ in served}:
                faults.append(Fault("/manifest/modelHash", "gone", f"no worker has these files of {reference}"))
            if wanted[1] not in {code for _, code in served}:
                faults.append(Fault("/manifest/codeVersion", "gone", f"no worker runs {wanted[1] or 'what it ran'}"))
            if not faults:
                faults.append(Fault("/manifest", "gone", "no worker has these files and this code together"))
        if ARTIFACTS in data.input:
            _, missing = await find(context.files, caller.tenant_id, data.input, context.now_ms())
            faults += missing
        return faults


def _pins(shown: Shown, history: History, lines: BodyLines) -> Pins:
    """Return what the job ran with and made. Raises Problem for one that nobody wrote it down for."""
    completed = next((each.event() for each in reversed(history.entries) if each.type == "job.completed"), None)
    manifest = completed.manifest if isinstance(completed, ev.JobCompleted) else None
    if manifest is None or manifest.model_hash is None or manifest.code_version is None:
        raise _not_reproducible(Fault("/manifest", "gone", "was not written down when the job completed"))
    assert isinstance(completed, ev.JobCompleted)
    return Pins(
        job=shown.state.id,
        pool=shown.meta.name,
        manifest=manifest,
        files=lines.files,
        artifacts=tuple(PinnedFile(id=one.id, sha256=one.sha256) for one in completed.artifacts),
        result=_small(lines.result),
    )


def _small(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if result is None or len(orjson.dumps(result)) > MOST_RESULT_BYTES else dict(result)


def _asked(shown: Shown, history: History, spec: Mapping[str, Any]) -> GenerationJobData:
    """Return the request that asks for the same again; webhook, metadata and start time were the first one's own."""
    created = history.entries[0].event() if history.complete else None
    known = created if isinstance(created, ev.JobCreated) else None
    timeout_s = max(_SMALLEST, known.timeout_ms // 1000) if known else None
    return GenerationJobData(
        user_id=spec["userId"],
        prompt=spec["prompt"],
        model=shown.state.model,
        input=spec.get("input", {}),
        priority=known.priority if known else "normal",
        pool=shown.meta.name,
        policy=JobPolicy(execution_timeout_seconds=timeout_s, max_attempts=known.max_attempts if known else 3),
    )


def _not_reproducible(*faults: Fault) -> Problem:
    return Problem("not_reproducible", faults=faults)
