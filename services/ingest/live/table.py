"""The rows of the route table about live streams."""

from services.ingest.live.sse import StreamHandlers
from services.ingest.routes import Parameter, Route

EVENT_STREAM = "text/event-stream"
_SHOWN = (
    Parameter("types", "Only these events: names or `job.*`, with commas between."),
    Parameter("previews", "`url` (the default), `inline` or `none`."),
    Parameter("minIntervalMs", "Progress and previews of a job no more often than this.", kind="integer"),
)
_PLACE = (
    Parameter("after", "Go on behind this id."),
    Parameter("Last-Event-ID", "Go on behind this id; counts before `after`.", "header"),
)
_PROBLEMS = ("bad_cursor", "invalid_input", "unknown_field", "quota_exceeded")


def stream_routes(streams: StreamHandlers) -> tuple[Route, ...]:
    """Return the routes of server-sent events."""
    return (
        Route(
            "GET", "/v1/jobs/{id}/stream", streams.job, "Follow a job: how it is, then its events.", "jobs:read",
            media_type=EVENT_STREAM, problems=("job_not_found", *_PROBLEMS),
            replies=((200, "Events, up to `end`."), (204, "The job has ended and all of it was sent before.")),
            parameters=(*_SHOWN, *_PLACE, Parameter("from", "`start`: from the job's first event.")),
        ),
        Route(
            "GET", "/v1/stream", streams.tenant, "Follow all jobs of the tenant.", "jobs:read",
            media_type=EVENT_STREAM, problems=_PROBLEMS, replies=((200, "Events, up to `end`."),),
            parameters=(
                *_SHOWN, *_PLACE,
                Parameter("status", "Only events after which the job is so; with commas between."),
                Parameter("userId", "Only jobs of this end user."),
            ),
        ),
    )  # fmt: skip
