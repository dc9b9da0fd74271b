"""A job as the policy sees it. Pure."""

from functools import lru_cache

from contracts.job import JobStatus
from services.scheduler.fold.lines import NEVER_MS, JobClass, Waiting, key_of
from services.scheduler.fold.records import Job


def waiting_of(job: Job) -> Waiting | None:
    """Return the job as the policy sees it, None while it is not eligible."""
    held_up = job.offers or job.not_before_ms is not None or job.cancel_requested or job.ending or job.aside
    if job.status is not JobStatus.QUEUED or held_up:
        return None
    expires_at_ms = NEVER_MS if job.start_by_at_ms is None else job.start_by_at_ms
    return Waiting(
        key_of(job.band, job.order), job.id, job.tenant_id, job.user, class_of(job), job.queued_ms, expires_at_ms,
        job.held,
    )  # fmt: skip


def class_of(job: Job) -> JobClass:
    """Return the class of a job; jobs of one class have the same object."""
    bucket, max_batch = (job.bucket, job.max_batch) if job.max_batch > 1 and not job.alone else ("", 1)
    return _class(job.model, job.bytes, job.resources, bucket, max_batch, job.alone)


@lru_cache(maxsize=4096)
def _class(
    model: str, job_bytes: int, resources: tuple[tuple[str, int], ...], bucket: str, max_batch: int, alone: bool
) -> JobClass:  # fmt: skip
    return JobClass(model, job_bytes, resources, bucket, max_batch, alone)
