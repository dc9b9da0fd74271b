"""Replays as the API shows them. Shape only."""

from typing import Literal

from pydantic import Field

from services.ingest.views.schemas import Anything, Page, Shape


class ReplayUrls(Shape):
    """Where to go on."""

    self: str
    stream: str | None


class Replayed(Shape):
    """Which events a replay shows; null: any."""

    job_id: str | None
    user_id: str | None
    model: str | None
    type: str | None


class ReplayProblem(Shape):
    """Why a replay has no result."""

    code: str
    detail: str


class Replay(Shape):
    """A stretch of the past; `from` and `to` null: from the beginning, to the end.

    `result` of `project`: by pool the position, counts, running jobs and folded jobs; of `whatif`: waits by tenant,
    tier and in all, before and after.
    """

    id: str
    object: Literal["replay"]
    mode: Literal["stream", "project", "whatif"]
    status: Literal["ready", "running", "completed", "failed"]
    speed: int | Literal["max"] | None
    from_: str | None = Field(alias="from")
    to: str | None
    at: str | None
    pool: str | None
    filters: Replayed
    policy: dict[str, Anything] | None
    result: dict[str, Anything] | None
    problem: ReplayProblem | None
    created_at: str
    urls: ReplayUrls


class ReplayPage(Page):
    """Replays, newest first."""

    data: list[Replay]
