"""The rows of the route table about live streams."""

from contracts.api import StreamTokenCreate
from services.ingest.live.access import StreamAccess
from services.ingest.live.socket import SocketHandler
from services.ingest.live.sse import StreamHandlers
from services.ingest.live.tokens import TokenHandler
from services.ingest.routes import Parameter, Route
from services.ingest.views import schemas

EVENT_STREAM = "text/event-stream"
_TOKEN = Parameter("token", "A stream token, for those who can send no header.")
_SHOWN = (
    _TOKEN,
    Parameter("types", "Only these events: names or `job.*`, with commas between."),
    Parameter("previews", "`url` (the default), `inline` or `none`."),
    Parameter("minIntervalMs", "Progress and previews of a job no more often than this.", kind="integer"),
)
_PLACE = (
    Parameter("after", "Go on behind this id."),
    Parameter("Last-Event-ID", "Go on behind this id; counts before `after`.", "header"),
)
_PROBLEMS = ("origin_not_allowed", "bad_cursor", "invalid_input", "unknown_field", "quota_exceeded")


def stream_routes(
    streams: StreamHandlers, sockets: SocketHandler, tokens: TokenHandler, access: StreamAccess
) -> tuple[Route, ...]:  # fmt: skip
    """Return the routes of live streams, which a stream token opens as well as a key."""
    return (
        Route(
            "GET", "/v1/jobs/{id}/stream", streams.job, "Follow a job: how it is, then its events.", "jobs:read",
            media_type=EVENT_STREAM, authenticate=access, problems=("job_not_found", *_PROBLEMS),
            replies=((200, "Events, up to `end`."), (204, "The job has ended and all of it was sent before.")),
            parameters=(*_SHOWN, *_PLACE, Parameter("from", "`start`: from the job's first event.")),
        ),
        Route(
            "GET", "/v1/stream", streams.tenant, "Follow all jobs of the tenant.", "jobs:read",
            media_type=EVENT_STREAM, authenticate=access, problems=_PROBLEMS, replies=((200, "Events, up to `end`."),),
            parameters=(
                *_SHOWN, *_PLACE,
                Parameter("status", "Only events after which the job is so; with commas between."),
                Parameter("userId", "Only jobs of this end user."),
            ),
        ),
        Route(
            "GET", "/v1/ws", sockets.serve, "Follow jobs over a WebSocket (`jobs.v1.json`).", "jobs:read",
            "admin", authenticate=access, replies=((101, "The socket is open."),), parameters=(_TOKEN,),
            problems=("quota_exceeded", "origin_not_allowed"),
        ),
        Route(
            "POST", "/v1/stream-tokens", tokens.create_token,
            "Make a token with which a page may follow jobs.", "jobs:read",
            body=StreamTokenCreate, reply=schemas.StreamToken, replies=((201, "It works until it expires."),),
            problems=("job_not_found",),
        ),
    )  # fmt: skip
