"""Which deliveries must be there: those the log tells of, and what follows from subscriptions. Pure.

Promises: what is expected follows from the log and from endpoints that have not changed since the event; progress is
left out, since newer progress takes its place.
Does not promise to judge what an endpoint wanted before it was last changed: the configuration as it was is not kept.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from contracts import ids
from contracts.audit.findings import Findings
from contracts.audit.job_hashes import Fields
from contracts.endpoints import Endpoint, anonymous_endpoint
from contracts.events import JobErased, WebhookAttempted, WebhookExhausted
from contracts.positions import entry_ms
from contracts.wire import Entry

OWN = ""  # the endpoint that a job's own webhook is; its name is known from the body alone
_LEFT_OUT = frozenset({"job.progress", "job.event_rejected"})


class Due(NamedTuple):
    """An event of a job that an endpoint must be told, and of which no attempt is in the log."""

    sequence: int
    endpoint: str
    position: str


class DeliveryAudit:
    """All deliveries of one log."""

    def __init__(self, findings: Findings, endpoints: Iterable[Endpoint]) -> None:
        self._findings = findings
        self._of_tenant: dict[str, list[Endpoint]] = {}
        for endpoint in endpoints:
            if not endpoint.disabled:
                self._of_tenant.setdefault(endpoint.tenant_id, []).append(endpoint)
        # job -> delivery -> its newest attempt, and whether that was the last
        self.attempts: dict[str, dict[str, tuple[int, bool]]] = {}
        self.due: dict[str, list[Due]] = {}

    def event(self, entry: Entry, fields: Fields) -> None:
        """Take in an event of a job that is known, and its fields after it."""
        if entry.type == JobErased.TYPE:
            self.due.pop(entry.subject, None)  # what was not planned by then is not sent any more
        if entry.type in _LEFT_OUT or not (entry.hooked or self._of_tenant):
            return
        names = [OWN] if entry.hooked and fields.get("h") == "1" else []
        names += [one.name for one in self._of_tenant.get(fields.get("t", ""), ()) if _wants(one, entry)]
        if names:
            self.due.setdefault(entry.subject, []).extend(Due(entry.sequence, name, entry.position) for name in names)

    def told(self, position: str, event: WebhookAttempted | WebhookExhausted) -> None:
        """Take in an attempt, or that there will be none."""
        try:
            _, sequence = ids.event_of(event.delivery_id)
        except ids.BadId:  # of an operation
            return
        name = ids.endpoint_of(event.delivery_id)
        name = OWN if name.startswith("anon") else name
        left = [each for each in self.due.get(event.job_id, ()) if (each.sequence, each.endpoint) != (sequence, name)]
        if left:
            self.due[event.job_id] = left
        else:
            self.due.pop(event.job_id, None)
        if isinstance(event, WebhookAttempted):
            self._attempted(position, event)
        elif (tried := self.attempts.get(event.job_id, {})) and event.delivery_id in tried:
            tried[event.delivery_id] = (tried[event.delivery_id][0], True)

    def _attempted(self, position: str, event: WebhookAttempted) -> None:
        of_job = self.attempts.setdefault(event.job_id, {})
        known = of_job.get(event.delivery_id, (0, False))[0]
        if event.attempt <= known:
            what = f"{event.delivery_id}: attempt {event.attempt} follows attempt {known}"
            self._findings.add(position, "doubled_delivery", what)
        of_job[event.delivery_id] = (max(known, event.attempt), event.next_at_ms is None)

    def forget(self, job_id: str) -> None:
        """Drop a job that is forgotten."""
        self.attempts.pop(job_id, None)
        self.due.pop(job_id, None)


def expected_ids(job_id: str, due: Iterable[Due], fields: Mapping[str, str], body: bytes) -> dict[str, Due]:
    """Return the deliveries that must be there; a job's own webhook only where its body still names one."""
    own = _own_endpoint(fields.get("t", ""), body)
    named = ((each, own if each.endpoint == OWN else each.endpoint) for each in due)
    return {str(ids.delivery_id(job_id, each.sequence, name, 0)): each for each, name in named if name}


def _own_endpoint(tenant_id: str, body: bytes) -> str:
    try:
        url = orjson.loads(body.partition(b"\n")[0]).get("webhookUrl")
        return anonymous_endpoint(tenant_id, url) if isinstance(url, str) else ""
    except (ValueError, AttributeError):
        return ""


def _wants(endpoint: Endpoint, entry: Entry) -> bool:
    at_ms = entry_ms(entry.position)
    return entry_ms(endpoint.version or "0-0") < at_ms and endpoint.wants(entry.type)
