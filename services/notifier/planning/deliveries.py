"""Which deliveries follow from events, with the exact bytes each will send. Pure.

Promises: the same event always gives the same ids, so that planning it twice makes one delivery; an event that cannot
be told raises nothing and stops no other; to an endpoint in strict order all is handed over that it wants of the job.
Does not promise that anything is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from contracts import ids
from contracts.deliveries import PlannedDelivery, content_of
from contracts.endpoints import Endpoint
from contracts.errors import Corrupt
from contracts.events import WebhookFormat
from contracts.positions import entry_key, entry_ms
from contracts.store.log import Poison
from contracts.wire import Entry
from services.notifier.formats import write, write_operation
from services.notifier.planning.job_body import JobBody
from services.notifier.planning.notices import Source, notice, operation
from services.notifier.planning.story import Story
from services.notifier.planning.targets import LAST, PROGRESS, Target, endpoint_targets, own_target

GENERATION = 0  # rises when a settled delivery is sent again on request


@dataclass(slots=True)
class Plan:
    """What follows from events: deliveries, and those that cannot be told."""

    deliveries: list[PlannedDelivery] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)

    def add(self, other: "Plan") -> None:
        """Take over what follows from other events."""
        self.deliveries += other.deliveries
        self.poison += other.poison


@dataclass(frozen=True, slots=True)
class Audience:
    """A tenant's endpoints, and up to which event of the job each strict one was handed all there is.

    `with_own`: the job's own webhook, too.
    """

    endpoints: Sequence[Endpoint] = ()
    handed: Mapping[str, int] = field(default_factory=dict)
    with_own: bool = True

    def is_missing(self, target: Target, sequence: int) -> bool:
        """Whether a strict endpoint was not handed this event yet, as far as we know."""
        return target.strict and sequence > self.handed.get(target.endpoint, 0)


Wish = tuple[Entry, Target]


def plan_job(entries: Sequence[Entry], story: Story, body: JobBody, audience: Audience, source: Source) -> Plan:
    """Return what follows from some events of one job."""
    wishes = thin(list(wishes_of(entries, story, body, audience)))
    plan, told = Plan(), _Teller(story, body, source)
    for sequence, of_event in groupby(wishes, key=lambda wish: wish[0].sequence):
        try:
            plan.deliveries += [told.delivery(entry, target) for entry, target in list(of_event)]
        except Corrupt as error:
            why = error.reason
        except Exception as error:  # our own fault would hit the same event each time, and stop all others
            why = f"cannot be planned: {type(error).__name__}"
        else:
            continue
        plan.poison += [Poison(entry.position, why) for entry in entries if entry.sequence == sequence]
    return plan


def wishes_of(entries: Sequence[Entry], story: Story, body: JobBody, audience: Audience) -> Iterable[Wish]:
    """Yield who wants what, by rising sequence; of events before these, what strict endpoints still miss."""
    asked = {entry.sequence: entry for entry in entries}
    last = max(asked)
    earlier = {number: moment.entry for number, moment in story.moments.items() if number <= last}
    tenant_id = story.newest.tenant_id
    for sequence, entry in sorted((earlier | asked).items()):
        if sequence in asked and audience.with_own:
            own = own_target(entry.type, tenant_id, body.spec, body.webhook_events(sequence))
            if own is not None:
                yield entry, own
        for target in endpoint_targets(entry.type, entry_ms(entry.position), audience.endpoints):
            if sequence in asked or audience.is_missing(target, sequence):
                yield entry, target


def thin(wishes: Sequence[Wish]) -> list[Wish]:
    """Leave out progress that newer progress or the end of the job has overtaken already."""
    overtaken: dict[str, int] = {}  # endpoint -> the newest event that overtakes
    for entry, target in wishes:
        if entry.type in LAST or entry.type == PROGRESS:
            overtaken[target.endpoint] = entry.sequence
    return [
        (entry, target)
        for entry, target in wishes
        if not (_is_throttled(entry, target) and entry.sequence < overtaken.get(target.endpoint, 0))
    ]


def plan_operations(told: Iterable[tuple[Entry, str, Sequence[Endpoint]]], source: Source, home_code: str) -> Plan:
    """Return what follows from events of endpoints: those of the same tenant that want them, but for itself.

    Args:
        told: each event with its tenant and the tenant's endpoints.
        home_code: of the pool in which the deliveries lie.
    """
    plan = Plan()
    for entry, tenant_id, endpoints in told:
        others = [one for one in endpoints if one.id != entry.subject and one.format != "flat"]
        targets = endpoint_targets(entry.type, entry_ms(entry.position), others)
        try:
            plan.deliveries += [_of_operation(entry, tenant_id, target, source, home_code) for target in targets]
        except Corrupt as error:
            plan.poison.append(Poison(entry.position, error.reason))
    return plan


def _of_operation(entry: Entry, tenant_id: str, target: Target, source: Source, home_code: str) -> PlannedDelivery:
    fields = {
        "event": entry.type,
        "message": ids.entry_event_id(source.pool_code, source.epoch, entry.position),
        "body": write_operation(operation(entry, tenant_id, source), target.format),
    } | content_of(target.format)
    log_number = int(source.pool_code == ids.SYSTEM_CODE)
    delivery_id = ids.entry_delivery_id(home_code, entry_key(entry.position), log_number, target.endpoint)
    return PlannedDelivery(delivery_id, fields, target.endpoint, tenant_id, "")


class _Teller:
    """Writes each event once in each format it is wanted in."""

    def __init__(self, story: Story, body: JobBody, source: Source) -> None:
        self._story = story
        self._body = body
        self._source = source
        self._written: dict[tuple[int, WebhookFormat], str] = {}

    def delivery(self, entry: Entry, target: Target) -> PlannedDelivery:
        """Return a delivery. Raises Corrupt."""
        state = self._story.newest
        fields = {
            "event": entry.type,
            "model": state.model,
            "message": ids.event_id(state.id, entry.sequence),
            "body": self._write(entry, target.format),
        } | content_of(target.format)
        if target.url:
            fields["url"] = target.url
        if (trace := self._body.traceparent()) is not None:
            fields["traceparent"] = trace
        return PlannedDelivery(
            id=ids.delivery_id(state.id, entry.sequence, target.endpoint, GENERATION),
            fields=fields,
            endpoint=target.endpoint,
            tenant_id=state.tenant_id,
            job_id=state.id,
            sequence=entry.sequence,
            strict=target.strict,
            interval_ms=target.interval_ms if _is_throttled(entry, target) else None,
            last=entry.type in LAST and target.hears_progress,
            bare=self._body.is_erased,
        )

    def _write(self, entry: Entry, form: WebhookFormat) -> str:
        key = entry.sequence, form
        if key not in self._written:
            self._written[key] = write(notice(self._story.at(entry), self._body, self._source), form)
        return self._written[key]


def _is_throttled(entry: Entry, target: Target) -> bool:
    return entry.type == PROGRESS and target.interval_ms > 0
