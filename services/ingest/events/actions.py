"""What operators did: their events in the logs of all pools and of the configuration, as one list.

Promises: every type of event that an operator's write appends is among them by being an `Acted`; no digest of a key is
shown. Bounded as every scan: a page may come short, with a cursor that goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from contracts.archive import Archive
from contracts.archive.stories import PoolJobs
from contracts.envelope import JsonObject
from contracts.events import CATALOGUE, Acted
from contracts.ids import SYSTEM_CODE
from contracts.store import keys
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import EventQuery
from services.ingest.events.scan import Ground, PoolScan, Scan
from services.ingest.views.jobs import Place

ACTIONS = tuple(sorted(name for name, model in CATALOGUE.items() if issubclass(model, Acted)))
_SIGNED = frozenset({"by", "reason", "ip", "userAgent"})
_HIDDEN = frozenset({"sha256"})
MOST_STEPS = 5


@dataclass(frozen=True, slots=True)
class ActionQuery:
    """Which actions; None: any. `tenant_id`: only those that concern this tenant."""

    events: EventQuery
    newest_first: bool
    actor: str | None = None
    tenant_id: str | None = None

    @property
    def canonical(self) -> str:
        """The same text for the same question: what a cursor is bound to."""
        return f"actions\n{self!r}"

    def fits(self, action: JsonObject) -> bool:
        """Whether it is one that was asked for."""
        return self.actor in (None, action["actor"]) and self.tenant_id in (None, action["tenantId"])


class ActionReader:
    """Reads actions; one for each process."""

    def __init__(self, context: Context, archive: Archive, events: EventReader) -> None:
        self._context, self._archive, self._events = context, archive, events

    async def page(self, query: ActionQuery, cursor: str | None, most: int) -> tuple[list[JsonObject], str | None]:
        """Return the next actions, and the cursor that goes on. Raises Problem, Unavailable."""
        scan = await self._scan(query, None if cursor is None else self._unseal(query, cursor))
        found: list[JsonObject] = []
        for _ in range(MOST_STEPS):
            # No more than there is room for: what was taken from the scan is behind the cursor.
            actions = [action_view(view) for view in await scan.step(most - len(found))]
            found += [action for action in actions if query.fits(action)]
            if scan.is_over or len(found) == most:
                break
        places = orjson.dumps(scan.places).decode()
        return found, None if scan.is_over else seal(self._context.secret("cursors"), query.canonical, places)

    async def _scan(self, query: ActionQuery, places: Mapping[str, str | None] | None) -> Scan:
        grounds = [await self._configuration(), *(self._events.ground(name) for name in self._context.pools)]
        begin = query.events.start()
        if query.newest_first:
            end = query.events.end()
            begin_at = None if end is None else f"{end[0]}-{end[1]}"
        else:
            begin_at = begin
        scans = [
            PoolScan(
                ground, query.events, begin_at if places is None else places.get(ground.place.code, begin_at),
                is_explicit=False, newest_first=query.newest_first,
            )
            for ground in grounds
        ]  # fmt: skip
        return Scan(scans, newest_first=query.newest_first)

    async def _configuration(self) -> Ground:
        store = self._context.store
        manifest = await store.archive.manifest(keys.SYSTEM)
        place = Place(keys.SYSTEM, SYSTEM_CODE, 1 if manifest is None else manifest.epoch)
        return Ground(place, PoolJobs(store, self._archive, keys.SYSTEM), store, self._archive)

    def _unseal(self, query: ActionQuery, cursor: str) -> dict[str, str | None]:
        try:
            places = orjson.loads(unseal(self._context.secret("cursors"), query.canonical, cursor))
        except BadCursor:
            raise Problem("bad_cursor") from None
        assert isinstance(places, dict)
        return places


def action_view(view: JsonObject) -> JsonObject:
    """Return an event record as an action."""
    data = view["data"]
    return {
        "id": view["id"], "object": "action", "type": view["type"], "position": view["position"],
        "time": view["time"], "actor": data.get("by") or None, "ip": data.get("ip"),
        "userAgent": data.get("userAgent"), "reason": data.get("reason") or None, "subject": view["subject"],
        "tenantId": data.get("tenantId") or None,
        "data": {name: value for name, value in data.items() if name not in _SIGNED | _HIDDEN},
    }  # fmt: skip
