"""The rows of the route table about the event log."""

from services.ingest.handlers.events import EventHandlers
from services.ingest.routes import Parameter, Route
from services.ingest.views import schemas

EVENT_FILTERS = (
    Parameter("jobId", "Only this job."),
    Parameter("userId", "Only jobs of this user."),
    Parameter("type", "Only these types: names or `job.*`, with commas between."),
    Parameter("after", "Only what comes after this position, in its pool."),
    Parameter("before", "Only what comes before this position, in its pool."),
    Parameter("from", "RFC 3339, included."),
    Parameter("to", "RFC 3339, not included."),
)
_OF_OPERATORS = (
    Parameter("tenantId", "Only jobs of this tenant."),
    Parameter("workerId", "Only events that name this worker."),
)
_PAGED = (
    Parameter("order", "`asc` (the default) or `desc`."),
    Parameter("limit", "Most events of one page.", kind="integer"),
    Parameter("cursor", "`nextCursor` of the page before, with the same filters."),
)
_WRONG = ("bad_cursor", "bad_parameter", "cursor_expired")


def event_routes(events: EventHandlers) -> tuple[Route, ...]:
    """Return the routes that read events."""
    return (
        Route("GET", "/v1/events", events.list_events, "List events of all my jobs.", "events:read",
              reply=schemas.EventPage, problems=_WRONG, parameters=(*EVENT_FILTERS, *_PAGED)),
        Route("GET", "/v1/events/{id}", events.get_event, "Show one event.", "events:read",
              reply=schemas.EventRecord, problems=("event_not_found", "bad_parameter")),
        Route("GET", "/admin/v1/events", events.admin_list_events, "List events of all tenants, workers and pools.",
              "admin", reply=schemas.EventPage, problems=_WRONG, parameters=(*EVENT_FILTERS, *_OF_OPERATORS, *_PAGED)),
    )  # fmt: skip
