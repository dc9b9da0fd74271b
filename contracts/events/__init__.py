"""The event catalogue: every fact that can be written to a log, as a frozen pydantic model.

Names are past tense; `TYPE` is the wire name, `VERSION` rises with a new required field. JSON is camelCase.
The log carries scheduling facts only: prompts, inputs, results and error texts live in the job's body.
Units are in the names; `_ms` without more is a duration, `_at_ms` a wall time of the server.
"""

from contracts.events.configuration import (
    KeyCreated,
    KeyRevoked,
    PoolCreated,
    TenantCreated,
    TenantLimits,
    TenantUpdated,
)
from contracts.events.jobs import (
    JobAssigned,
    JobAttemptFailed,
    JobCancelled,
    JobCancelRequested,
    JobCompleted,
    JobCreated,
    JobDeadLettered,
    JobDeviceReleased,
    JobEventRejected,
    JobExpired,
    JobFailed,
    JobForgotten,
    JobLeaseLost,
    JobProgress,
    JobQueued,
    JobRetried,
    JobScheduled,
    JobStarted,
    JobUnassigned,
    Priority,
    QueueReason,
)
from contracts.events.milestones import (
    ArtifactUploaded,
    ArtifactUploadStarted,
    FrameRendered,
    LatentsDecoded,
    MilestoneReached,
    ModelLoadCompleted,
    ModelLoadStarted,
    PreviewAvailable,
    PromptEncoded,
    ThumbnailReady,
)
from contracts.events.root import ArtifactRef, ErrorFacts, Event, Part, SlotInfo, Timings
from contracts.events.webhooks import WebhookAttempted, WebhookExhausted
from contracts.events.workers import (
    PolicyApplied,
    SchedulerMismatch,
    WorkerChanged,
    WorkerDrained,
    WorkerDraining,
    WorkerLost,
    WorkerRegistered,
)

__all__ = [
    "CATALOGUE",
    "DEFAULT_WEBHOOK_EVENTS",
    "MILESTONES",
    "WEBHOOK_EVENTS",
    "ArtifactRef",
    "ArtifactUploadStarted",
    "ArtifactUploaded",
    "ErrorFacts",
    "Event",
    "FrameRendered",
    "JobAssigned",
    "JobAttemptFailed",
    "JobCancelRequested",
    "JobCancelled",
    "JobCompleted",
    "JobCreated",
    "JobDeadLettered",
    "JobDeviceReleased",
    "JobEventRejected",
    "JobExpired",
    "JobFailed",
    "JobForgotten",
    "JobLeaseLost",
    "JobProgress",
    "JobQueued",
    "JobRetried",
    "JobScheduled",
    "JobStarted",
    "JobUnassigned",
    "KeyCreated",
    "KeyRevoked",
    "LatentsDecoded",
    "MilestoneReached",
    "ModelLoadCompleted",
    "ModelLoadStarted",
    "Part",
    "PolicyApplied",
    "PoolCreated",
    "PreviewAvailable",
    "Priority",
    "PromptEncoded",
    "QueueReason",
    "SchedulerMismatch",
    "SlotInfo",
    "TenantCreated",
    "TenantLimits",
    "TenantUpdated",
    "ThumbnailReady",
    "Timings",
    "WebhookAttempted",
    "WebhookExhausted",
    "WorkerChanged",
    "WorkerDrained",
    "WorkerDraining",
    "WorkerLost",
    "WorkerRegistered",
]


def _subclasses(root: type[Event]) -> list[type[Event]]:
    return [leaf for child in root.__subclasses__() for leaf in (child, *_subclasses(child))]


CATALOGUE: dict[str, type[Event]] = {model.TYPE: model for model in _subclasses(Event)}

DEFAULT_WEBHOOK_EVENTS = ("job.started", "job.cancelled", "job.completed", "job.failed", "job.expired")
MILESTONES = frozenset(
    {
        "model.load_started",
        "model.load_completed",
        "prompt.encoded",
        "latents.decoded",
        "frame.rendered",
        "preview.available",
        "thumbnail.ready",
        "artifact.upload_started",
        "artifact.uploaded",
        "milestone.reached",
    }
)  # they change nothing but the log
WEBHOOK_EVENTS = MILESTONES | {
    "job.created",
    "job.scheduled",
    "job.queued",
    "job.assigned",
    "job.started",
    "job.progress",
    "job.attempt_failed",
    "job.retried",
    "job.cancel_requested",
    "job.cancelled",
    "job.completed",
    "job.failed",
    "job.expired",
    "job.dead_lettered",
}
