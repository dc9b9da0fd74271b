"""Which deliveries a list or a redelivery means. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.times import ms_of
from contracts.webhook_api import DeliveriesFilter
from services.ingest.edge.problems import Problem
from services.ingest.requests import read_query

PAGE = frozenset({"limit", "cursor"})
NAMES = frozenset({"endpointId", "jobId", "eventType", "state", "since", "until"})
REDELIVERABLE = frozenset({"exhausted", "gone", "held"})  # what a redelivery means unless a state is named


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries; None means any. Times are of their planning, from `since_ms` to before `until_ms`."""

    tenant_id: str | None = None
    endpoint: str | None = None  # its name
    job_id: str | None = None
    event_type: str | None = None
    states: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def prefix(self) -> str:
        """How the ids of these deliveries begin."""
        return "" if self.job_id is None else f"dlv_{self.job_id.removeprefix('job_')}_"

    @property
    def canonical(self) -> str:
        """The same text for the same filter: what a cursor is bound to."""
        states = None if self.states is None else sorted(self.states)
        parts = (self.tenant_id, self.endpoint, self.job_id, self.event_type, states, self.since_ms, self.until_ms)
        return repr(parts)

    def fits(self, fields: dict[str, str]) -> bool:
        """Whether a delivery with these fields is meant."""
        planned_ms = int(fields.get("planned") or 0)
        return (
            self.endpoint in (None, fields.get("endpoint"))
            and self.job_id in (None, fields.get("job"))
            and self.event_type in (None, fields.get("event"))
            and (self.states is None or fields.get("state") in self.states)
            and (self.since_ms is None or planned_ms >= self.since_ms)
            and (self.until_ms is None or planned_ms < self.until_ms)
        )


def filter_of(asked: DeliveriesFilter, *, states: frozenset[str] | None = None) -> DeliveryFilter:
    """Read a filter of a body; `states` where it names none."""
    return DeliveryFilter(
        tenant_id=asked.tenant_id,
        endpoint=None if asked.endpoint_id is None else asked.endpoint_id.removeprefix("wh_"),
        job_id=asked.job_id,
        event_type=asked.event_type,
        states=states if asked.state is None else frozenset({asked.state}),
        since_ms=ms_of(asked.since),
        until_ms=ms_of(asked.until),
    )


def read_filter(query: Sequence[tuple[str, str]]) -> DeliveryFilter:
    """Read the filters of a URL. Raises Problem `bad_parameter` with what is wrong."""
    given = [(name, value) for name, value in query if name not in PAGE]
    if len(dict(given)) < len(given):
        raise Problem("bad_parameter", "Each filter may be given once")
    return filter_of(read_query(DeliveriesFilter, dict(given)))
