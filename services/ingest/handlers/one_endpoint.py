"""One endpoint of a caller: found, read, switched on and off; what its routes share."""

from contracts import events as ev
from contracts.endpoints import Endpoint, Private, endpoint_secret
from contracts.errors import Corrupt
from contracts.tenant import Configuration
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.tenancy import Caller


def find_endpoint(state: Configuration, caller: Caller, endpoint_id: str) -> Endpoint:
    """Return the caller's endpoint. Raises Problem `endpoint_not_found`."""
    endpoint = state.endpoints.get(endpoint_id)
    if endpoint is None or endpoint.tenant_id != caller.tenant_id:
        raise Problem("endpoint_not_found", "There is no such endpoint, or it is not yours, or it was deleted")
    return endpoint


async def read_kept(context: Context, endpoint: Endpoint) -> Private | None:
    """Return what is kept of an endpoint; None where it is lost or cannot be read."""
    try:
        return await context.within(context.store.directory.private(endpoint_secret(endpoint.id)))
    except Corrupt:
        return None


async def switch_off(context: Context, endpoint: Endpoint, by: str) -> None:
    """Send nothing to the endpoint any more; one that is off already stays so for its own reason."""
    off = ev.EndpointDisabled(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, why="manual", by=by)

    def decide(state: Configuration) -> ev.Event | None:
        known = state.endpoints.get(endpoint.id)
        return None if known is None or known.disabled else off

    await context.within(context.store.directory.change(decide, endpoint.id))


async def switch_on(context: Context, endpoint: Endpoint, by: str) -> None:
    """Send to the endpoint again: what happens from now on. What is held waits for `recover`."""
    on = ev.EndpointEnabled(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, by=by)

    def decide(state: Configuration) -> ev.Event | None:
        known = state.endpoints.get(endpoint.id)
        return on if known is not None and known.disabled else None

    await context.within(context.store.directory.change(decide, endpoint.id))
