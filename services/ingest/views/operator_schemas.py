"""The shapes of answers about dead letters and other things that only operators see."""

from typing import Literal

from services.ingest.views.schemas import Anything, Failure, Job, Page, Shape


class DeadLetter(Shape):
    """A job that failed for good and waits for a person. `contentErased`: it cannot be redriven."""

    id: str
    object: Literal["dead_letter"]
    pool: str
    tenant_id: str
    model: str
    code: str
    failed_at: str
    created_at: str
    attempts: int
    run: int
    content_erased: bool


class DeadLetterPage(Page):
    """Dead letters: by pool, then those that failed last first."""

    data: list[DeadLetter]


class DeadLetterDetails(DeadLetter):
    """A dead letter with how it failed, and the job as it is."""

    error: dict[str, Anything] | None
    job: Job


class LettersAsked(Shape):
    """Which dead letters were asked for; null: any."""

    pool: str | None
    tenant_id: str | None
    model: str | None
    code: str | None
    since: str | None
    until: str | None


class LetterOperation(Shape):
    """A redrive or discard and how far it is, or what a dry run found.

    `deferred`: there is no room for them now, they are tried again; `erased`: of a dry run, those without content.
    While `hasMore`, call again with `nextCursor`.
    """

    id: str | None
    object: Literal["operation"]
    verb: Literal["redrive", "discard"]
    state: Literal["in_progress", "completed", "stopped"]
    dry_run: bool
    filter: LettersAsked | None
    ids_left: int | None
    rate_per_second: float
    matched: int
    done: int
    deferred: int
    failed: int
    failures: list[Failure]
    erased: int | None
    sample: list[str]
    has_more: bool
    next_cursor: str | None
    reason: str
    by: str
    asked_at: str | None
    ended_at: str | None


class LetterOperationPage(Page):
    """Operations of the last day, and those under way."""

    data: list[LetterOperation]


class ConsumerMember(Shape):
    """A process that reads as part of a group; `idleSeconds`: since it asked for something."""

    name: str
    pending: int
    idle_seconds: float


class OldestPending(Shape):
    """The first entry that was handed out and is not done with."""

    id: str
    member: str
    age_seconds: float
    deliveries: int


class ConsumerGroup(Shape):
    """Who reads a pool's log, or a worker's stream, and how far it is.

    `lag` null: not known. `holdsLog`: the log is kept for it. `drop`: of a dead one, how to be rid of it.
    """

    id: str
    object: Literal["consumer_group"]
    pool: str
    stream: str
    group: str
    last_id: str
    lag: int | None
    behind_seconds: float
    pending: int
    oldest_pending: OldestPending | None
    members: list[ConsumerMember]
    active: bool
    holds_log: bool
    drop: str | None


class ConsumerPage(Page):
    """All groups, by name."""

    data: list[ConsumerGroup]


class Action(Shape):
    """What somebody did with the admin key: who, from where, why. `data` is that of the event."""

    id: str
    object: str
    type: str
    position: str
    time: str
    actor: str | None
    ip: str | None
    user_agent: str | None
    reason: str | None
    subject: str
    tenant_id: str | None
    data: dict[str, Anything]


class ActionPage(Page):
    """Actions, newest first unless asked otherwise."""

    data: list[Action]


class Imported(Shape):
    """An export that is the log of pools now. `pools`: events in each; `sha256`: of its lines."""

    object: Literal["import"]
    pools: dict[str, int]
    jobs: int
    sha256: str


class RetentionOf(Shape):
    """Where something else holds; null: as the next wider scope has it, in the end the settings."""

    pool: str | None
    tenant_id: str | None
    completed_seconds: float | None
    failed_seconds: float | None
    live_seconds: float | None


class Retention(Shape):
    """How long what has ended is kept; `changed` is what is said for just this scope.

    `liveSeconds`: events stay in the store for so long after they are archived. The last three are settings.
    """

    object: Literal["retention"]
    pool: str | None
    tenant_id: str | None
    completed_seconds: float
    failed_seconds: float
    live_seconds: float
    changed: list[str]
    overrides: list[RetentionOf]
    idempotency_seconds: float
    artifacts_seconds: float
    usage_seconds: float
