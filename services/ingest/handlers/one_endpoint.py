"""One endpoint of a caller: found, read, switched on and off; what its routes share."""

import asyncio
from contextlib import suppress

from contracts import events as ev
from contracts.endpoints import Endpoint, Private, endpoint_secret
from contracts.errors import Corrupt
from contracts.store.deliveries import HELD
from contracts.tenant import Configuration
from services.ingest.context import Context
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.tenancy import Caller
from services.ingest.views.webhooks import ANONYMOUS

BEGUN_WITHIN_S = 1.0  # a claim becomes a POST within milliseconds; a receiver may take its time to answer it
LOOK_S = 0.02


def find_endpoint(state: Configuration, caller: Caller, endpoint_id: str) -> Endpoint:
    """Return the caller's endpoint. Raises Problem `endpoint_not_found`."""
    endpoint = state.endpoints.get(endpoint_id)
    if endpoint is None or endpoint.tenant_id != caller.tenant_id:
        raise Problem("endpoint_not_found", "There is no such endpoint, or it is not yours, or it was deleted")
    return endpoint


def check_receives(state: Configuration, name: str) -> None:
    """Refuse to send again what would only be held or dropped. Raises Problem."""
    endpoint = state.endpoint_by_name(name)
    if endpoint is None and not name.startswith(ANONYMOUS):
        raise Problem("not_redeliverable", "Its endpoint was deleted")
    if endpoint is not None:
        check_enabled(endpoint)


def too_many_backfills() -> Problem:
    """Return what is answered where a pool has as many as it takes."""
    policies = {POLICIES: ["webhookBackfills"]}
    return Problem("quota_exceeded", "Too many backfills are under way; wait for one", extensions=policies)


def check_enabled(endpoint: Endpoint) -> None:
    """Raise Problem `endpoint_disabled` for an endpoint that is off."""
    if endpoint.disabled:
        raise Problem("endpoint_disabled", f"It is disabled ({endpoint.disabled}); enable it first")


async def read_kept(context: Context, endpoint: Endpoint) -> Private | None:
    """Return what is kept of an endpoint; None where it is lost or cannot be read."""
    try:
        return await context.within(context.store.directory.private(endpoint_secret(endpoint.id)))
    except Corrupt:
        return None


async def switch_off(context: Context, endpoint: Endpoint, by: str) -> None:
    """Send nothing to the endpoint any more; one that is off already stays so for its own reason.

    What waits is held in all pools when this returns, and what was on its way has been begun.
    """
    off = ev.EndpointDisabled(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, why="manual", by=by)

    def decide(state: Configuration) -> ev.Event | None:
        known = state.endpoints.get(endpoint.id)
        return None if known is None or known.disabled else off

    await context.within(context.store.directory.change(decide, endpoint.id))
    await hold(context, endpoint.name, HELD)
    with suppress(TimeoutError):
        async with asyncio.timeout(BEGUN_WITHIN_S):
            await _nothing_in_flight(context, endpoint.name)
    await hold(context, endpoint.name, HELD)  # what was on its way and failed waits for its next try


async def hold(context: Context, name: str, state: str) -> None:
    """Take what waits for an endpoint out of its queues. What is left by an outage, a notifier takes out."""
    for pool in context.pools:
        await context.within(context.store.deliveries.hold_all(pool, name, state))


async def _nothing_in_flight(context: Context, name: str) -> None:
    """Wait until no sender holds a claim: between claim and POST a sender does not look whether it still may."""
    for pool in context.pools:
        deliveries = context.store.deliveries
        while (await context.within(deliveries.endpoint(pool, name))).in_flight:  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(LOOK_S)


async def switch_on(context: Context, endpoint: Endpoint, by: str) -> None:
    """Send to the endpoint again: what happens from now on. What is held waits for `recover`."""
    on = ev.EndpointEnabled(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, by=by)

    def decide(state: Configuration) -> ev.Event | None:
        known = state.endpoints.get(endpoint.id)
        return on if known is not None and known.disabled else None

    await context.within(context.store.directory.change(decide, endpoint.id))
