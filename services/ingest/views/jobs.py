"""The job as the API shows it: folded state, the caller's own words from the body, facts of its last events.

Promises: a job shown live and the same job shown at `?sequence=n` differ in queue, URLs and expiry only, because both
are made by this function from a fold. Nothing lossy (raw progress, previews) is mixed in.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from contracts import events as ev
from contracts.job import TERMINAL, JobState, JobStatus
from contracts.positions import Position, entry_ms
from contracts.reproduction import PINS
from contracts.retention import Kept
from contracts.times import instant
from contracts.wire import Entry
from services.ingest.views.body_lines import BodyLines, JsonObject
from services.ingest.views.queue import queue_view

SHOWN_EVENTS = 12  # of the newest events, to find how an attempt or the job ended


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job lives and how links to it begin."""

    pool: str
    code: str
    epoch: int
    public_url: str = ""
    kept: Callable[[str], Kept] = lambda tenant_id: Kept(0, 0)  # what holds now for a tenant of the pool


@dataclass(frozen=True, slots=True)
class Ending:
    """What only the events say: artifacts and timings of a completed job, facts of the last error."""

    artifacts: tuple[ev.ArtifactRef, ...] = ()
    timings: ev.Timings = ev.Timings()
    error: ev.ErrorFacts | None = None
    manifest: ev.Manifest | None = None
    reproduction: ev.Reproduction | None = None


def ending_of(entries: Iterable[Entry]) -> Ending:
    """Find how things ended in events given oldest first; the newest wins."""
    ending = Ending()
    for entry in entries:
        if entry.type not in ("job.completed", "job.failed", "job.attempt_failed"):
            continue
        match entry.event():
            case ev.JobCompleted() as event:
                ending = Ending(event.artifacts, event.timings, None, event.manifest, event.reproduction)
            case ev.JobFailed(error=error) | ev.JobAttemptFailed(error=error):
                ending = Ending(error=error)
    return ending


def job_view(state: JobState, lines: BodyLines, ending: Ending, place: Place) -> JsonObject:
    """Return the job as JSON."""
    is_completed = state.status is JobStatus.COMPLETED
    artifacts = [artifact_view(each, place.public_url) for each in ending.artifacts] if is_completed else []
    timings = ending.timings if is_completed else ev.Timings()
    spec = lines.spec
    link = f"/v1/jobs/{state.id}"
    return {
        "id": state.id,
        "object": "job",
        "status": state.status,
        "phase": state.phase,
        "progress": state.progress,
        "step": state.step,
        "totalSteps": state.total_steps,
        "userId": spec.get("userId"),
        "tenantId": state.tenant_id,
        "model": state.model,
        "prompt": spec.get("prompt"),
        "input": spec.get("input", {}),
        "priority": state.priority,
        "queue": queue_view(place.pool, None),  # only the leader knows more; it is asked for a job shown live
        "assignment": _assignment(state),
        "attempt": state.attempt,
        "maxAttempts": state.max_attempts,
        "cancelRequestedAt": instant(state.cancel_requested_ms),
        "deadLettered": bool(state.dead_lettered),
        "resultUrl": _result_url(artifacts),
        "artifacts": artifacts,
        "error": _error(state, lines, ending),
        "timings": {
            "queuedMs": _queued_ms(state, timings) if is_completed else None,
            "modelLoadMs": timings.model_load_ms,
            "runMs": timings.run_ms,
            "uploadMs": timings.upload_ms,
            "gpuSeconds": timings.gpu_seconds,
        },
        "manifest": _manifest(lines, ending) if is_completed else None,
        "reproduction": _reproduction(spec, ending.reproduction if is_completed else None),
        "metadata": spec.get("metadata", {}),
        "sequence": state.sequence,
        "position": str(Position(place.code, place.epoch, state.position)),
        "createdAt": instant(state.created_ms),
        "scheduledFor": instant(state.not_before_ms) if state.status is JobStatus.SCHEDULED else None,
        "startedAt": instant(state.started_ms),
        "completedAt": instant(state.done_ms),
        "expiresAt": _expires_at(state, place),
        "erasedAt": instant(state.erased_ms),
        "urls": _urls(link),
    }


def fresh_view(
    created: ev.JobCreated, spec: JsonObject, place: Place, job_id: str, position: str, run_at_ms: int | None
) -> JsonObject:
    """Return a job that was admitted at `position`, as `job_view` will show it when it is read.

    A POST is the hottest path: what all new jobs of a place have in common is made once.
    """
    link = f"/v1/jobs/{job_id}"
    sequence, status = (1, JobStatus.QUEUED) if run_at_ms is None else (2, JobStatus.SCHEDULED)
    return _blank(place) | {
        "id": job_id,
        "status": status,
        "userId": spec["userId"],
        "tenantId": created.tenant_id,
        "model": created.model,
        "prompt": spec["prompt"],
        "input": spec["input"],
        "priority": created.priority,
        "maxAttempts": created.max_attempts,
        "reproduction": _reproduction(spec, None),
        "metadata": spec["metadata"],
        "sequence": sequence,
        "position": f"{place.code}.{place.epoch}.{position}",
        "createdAt": instant(entry_ms(position)),
        "scheduledFor": instant(run_at_ms),
        "urls": _urls(link),
    }


@lru_cache(maxsize=64)
def _blank(place: Place) -> JsonObject:
    return job_view(JobState(""), BodyLines(), Ending(), place)


def artifact_view(artifact: ev.ArtifactRef, public_url: str) -> JsonObject:
    """Return one stored file as JSON."""
    return {
        "id": artifact.id,
        "kind": artifact.kind,
        "variant": artifact.variant,
        "mime": artifact.mime,
        "width": artifact.width,
        "height": artifact.height,
        "bytes": artifact.bytes,
        "sha256": artifact.sha256,
        "url": public_url + artifact.path,
        "expiresAt": instant(artifact.expires_at_ms),
    }


def _manifest(lines: BodyLines, ending: Ending) -> JsonObject | None:
    """Say what it ran with; of the inputs the seed and digests of files, the rest is beside it."""
    pinned = ending.manifest
    return None if pinned is None else {
        "modelHash": pinned.model_hash,
        "codeVersion": pinned.code_version,
        "device": pinned.device,
        "batchSize": pinned.batch_size,
        "seed": lines.spec.get("input", {}).get("seed"),
        "files": lines.files,
    }  # fmt: skip


def _reproduction(spec: JsonObject, found: ev.Reproduction | None) -> JsonObject | None:
    pins: JsonObject = spec.get(PINS, {})
    if not pins and found is None:
        return None
    return {
        "of": found.of if found else pins.get("job"),
        "match": found.match if found else None,
        "distance": found.distance if found else None,
        "changed": list(found.changed or ()) if found else [],
    }


def _queued_ms(state: JobState, timings: ev.Timings) -> int | None:
    """How long it stood in line before the attempt that completed it; the worker saw only its end."""
    if timings.queued_ms is not None or state.started_ms is None or state.queued_ms is None:
        return timings.queued_ms
    return max(0, state.started_ms - state.queued_ms)


def _urls(link: str) -> JsonObject:
    return {
        "self": link,
        "cancel": link + "/cancel",
        "result": link + "/result",
        "events": link + "/events",
        "artifacts": link + "/artifacts",
        "logs": link + "/logs",
        "explain": link + "/explain",
        "stream": link + "/stream",
    }


def _result_url(artifacts: list[JsonObject]) -> str | None:
    return next((str(each["url"]) for each in artifacts if each["variant"] == "original"), None)


def _assignment(state: JobState) -> JsonObject | None:
    if state.worker_id is not None:
        return {"workerId": state.worker_id, "slot": state.slot}
    worker_id, slot = next(iter(state.offers.values()), (None, None))
    return None if worker_id is None else {"workerId": worker_id, "slot": slot}


def _error(state: JobState, lines: BodyLines, ending: Ending) -> JsonObject | None:
    if state.error_code is None:
        return None
    text = lines.errors.get(state.attempt, {})
    facts = ending.error or ev.ErrorFacts(code=state.error_code)
    return {
        "code": state.error_code,
        "message": text.get("message"),
        "retryable": facts.retryable,
        "attempt": state.attempt,
        "phase": facts.phase,
        "exitCode": facts.exit_code,
        "signal": facts.signal,
        "requestedBytes": facts.requested_bytes,
        "freeBytes": facts.free_bytes,
        "reservedBytes": facts.reserved_bytes,
    }


def _expires_at(state: JobState, place: Place) -> str | None:
    if state.status not in TERMINAL or state.done_ms is None:
        return None
    keep_s = place.kept(state.tenant_id).of(completed=state.status is JobStatus.COMPLETED)
    return instant(state.done_ms + int(keep_s * 1000))
