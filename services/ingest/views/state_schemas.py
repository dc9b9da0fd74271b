"""What `/v1/state` answers: shapes of the OpenAPI document."""

from typing import Literal

from contracts.api import JobStatus
from services.ingest.views.schemas import Anything, Job, Shape


class Ran(Shape):
    """A job that ran at the instant. `tenantId` is shown to operators."""

    job_id: str
    pool: str
    model: str
    worker_id: str
    slot: int
    started_at: str
    tenant_id: str | None = None


class SlotThen(Shape):
    """A slot of a worker, as the worker told; `jobId`: one of the jobs asked about ran in it."""

    index: int
    device: str
    kind: str
    bytes: int
    models: list[str]
    job_id: str | None


class WorkerThen(Shape):
    """A worker that was up. Host, process and version are shown to operators."""

    id: str
    state: Literal["open", "draining"]
    slots: list[SlotThen]
    host: str | None = None
    pid: int | None = None
    version: str | None = None


class PoolThen(Shape):
    """What a pool ran on, and the configuration that its leader had copied by then; `policyPosition` names that."""

    workers: list[WorkerThen]
    paused: bool
    paused_models: list[str]
    policy_position: str | None
    policy: dict[str, Anything]
    limits: dict[str, dict[str, Anything]]


class StateThen(Shape):
    """How jobs stood. `positions`: the newest event of each pool that it is the fold of; null: none.

    `running` is a page of `runningCount`, by id; `limits` are those of the tenant, for operators of all.
    """

    object: Literal["state"]
    positions: dict[str, str | None]
    counts: dict[JobStatus, int]
    pools: dict[str, PoolThen]
    running_count: int
    running: list[Ran]
    has_more: bool
    next_cursor: str | None
    job: Job | None = None
