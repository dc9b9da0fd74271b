"""Configured endpoints and deliveries for them, written straight to a real store."""

import itertools
from collections.abc import Sequence

from contracts import events as ev
from contracts import ids
from contracts.deliveries import PlannedDelivery
from contracts.endpoints import Private, SigningSecret, endpoint_secret
from contracts.store import Store, keys
from contracts.wire import Entry, decode
from tests.notifier.hooked import POOL, SECRET, TENANT

_numbers = itertools.count(1)
JOB = ids.mint_job_id(1_764_457_200_000, 7, "aa")


async def make_endpoint(store: Store, url: str, *, tenant_id: str = TENANT, **settings) -> str:
    """Configure an endpoint; returns its id."""
    endpoint_id = ids.mint_endpoint_id(1_764_457_200_000, next(_numbers))
    asked = {"origin": "http://127.0.0.1", "events": ("*",), **settings}
    created = ev.EndpointCreated(tenant_id=tenant_id, endpoint_id=endpoint_id, **asked)
    private = Private(url, {"x-team": "blue"}, (SigningSecret(SECRET),))
    await store.directory.change(lambda _: created, endpoint_id, {endpoint_secret(endpoint_id): private.to_json()})
    return endpoint_id


async def tell(store: Store, event: ev.Event, endpoint_id: str) -> None:
    """Write a configuration event about an endpoint."""
    await store.directory.change(lambda _: event, endpoint_id)


def name_of(endpoint_id: str) -> str:
    return endpoint_id.removeprefix("wh_")


def planned(
    endpoint: str, sequence: int, *, job_id: str = JOB, url: str = "", due_ms: int = 0, tenant_id: str = TENANT, **order
) -> PlannedDelivery:
    message = ids.event_id(job_id, sequence)
    fields = {"event": "job.completed", "message": message, "body": f'{{"sequence":{sequence}}}', "url": url}
    delivery_id = ids.delivery_id(job_id, sequence, endpoint, 0)
    return PlannedDelivery(delivery_id, fields, endpoint, tenant_id, job_id, sequence, due_ms, **order)


async def plan(store: Store, deliveries: Sequence[PlannedDelivery]) -> list[str]:
    """Plan deliveries of no event; returns their ids."""
    for first in range(0, len(deliveries), 500):
        await store.deliveries.plan(POOL, "", deliveries[first : first + 500], [])
    return [delivery.id for delivery in deliveries]


async def states(store: Store, delivery_ids: Sequence[str]) -> list[str]:
    rows = [await store.deliveries.read(POOL, delivery_id) for delivery_id in delivery_ids]
    return [row["state"] if row else "none" for row in rows]


async def configuration_log(store: Store, *types: str) -> list[Entry]:
    raw = await store.client.xrange(keys.log(keys.SYSTEM))
    entries = [decode(position.decode(), fields) for position, fields in raw]
    return [entry for entry in entries if entry.type in types]


async def all_are(store: Store, delivery_ids: list[str], state: str) -> bool:
    return {*await states(store, delivery_ids)} == {state}
