"""`/admin/v1/pools` and `/admin/v1/scheduler/policy`: what a pool has, and the knobs of its policy."""

import asyncio

from aiohttp import web
from pydantic import ValidationError

from contracts import events as ev
from contracts.admin_api import PolicyPatch
from contracts.errors import StoreUnavailable
from contracts.policy import SchedulingPolicy
from contracts.store.vitals import read_pool_usage
from contracts.tenant import Configuration
from services.ingest.context import Context
from services.ingest.edge.problems import Fault, Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.requests import invalid_input
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

_POOL = frozenset({"pool"})
# How the API calls each knob of the policy.
KNOBS = {
    "tierWeights": "tier_weights",
    "tierFloors": "tier_floors",
    "leadSeconds": "lead_s",
    "bypassSeconds": "bypass_s",
    "hold": "hold",
    "deckLeadSeconds": "deck_lead_s",
}
_MERGED = frozenset({"tier_weights", "tier_floors"})


class PoolHandlers(ConfiguredHandlers):
    """Pools and their policies."""

    async def list_pools(self, request: web.Request, caller: Caller) -> web.Response:
        """List pools by name."""
        names = sorted(self._context.pools)
        views = await asyncio.gather(*(pool_view(self._context, name) for name in names))
        return self._page(request, "pools", dict(zip(names, views, strict=True)))

    async def get_pool(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one pool."""
        check_query(request, NOTHING)
        return json_answer(await pool_view(self._context, self._known(request.match_info["pool"])))

    async def get_policy(self, request: web.Request, caller: Caller) -> web.Response:
        """Show the policy of a pool as it is in force."""
        check_query(request, _POOL)
        return json_answer(self._policy_view(self._known(request.query.get("pool")), self._configuration()))

    async def patch_policy(self, request: web.Request, caller: Caller) -> web.Response:
        """Change what is given; null goes back to the setting. Tiers that are not named stay as they are."""
        wanted = await self._read(request, PolicyPatch, _POOL)
        pool = self._known(request.query.get("pool"))

        def decide(state: Configuration) -> ev.Event | None:
            known = _overrides(state, pool)
            policy = patched(self._context.settings.scheduler.policy, known, wanted)
            if policy == known:
                return None
            return ev.PolicyChanged(pool=pool, policy=policy, previous=known, **caller.signed(wanted.reason))

        return json_answer(self._policy_view(pool, await self._change(decide, pool)))

    def _known(self, name: str | None) -> str:
        """Return the pool asked for, the first one when none is."""
        pools = self._context.pools
        if not pools:
            raise StoreUnavailable("not opened yet")
        if name is not None and name not in pools:
            raise Problem("pool_not_found")
        return next(iter(pools)) if name is None else name

    def _policy_view(self, pool: str, state: Configuration) -> JsonObject:
        facts = _overrides(state, pool)
        policy = self._context.settings.scheduler.policy.changed(facts).model_dump()
        changed = facts.model_dump(exclude_none=True)
        view: JsonObject = {"pool": pool, "object": "policy"}
        view |= {shown: policy[name] for shown, name in KNOBS.items()}
        return view | {"changed": [shown for shown, name in KNOBS.items() if name in changed]}


async def pool_view(context: Context, name: str) -> JsonObject:
    """Return a pool as it is shown."""
    workers, used = await asyncio.gather(
        context.within(context.store.workers(name)), context.within(read_pool_usage(context.store.client, name))
    )
    return {
        "name": name,
        "object": "pool",
        "paused": name in context.store.directory.configuration.paused_pools,
        "models": [model.reference for model in context.models if name in model.pools],
        "workers": sum(fields.get("state") == "open" for fields in workers.values()),
        "use": {"queuedJobs": used.open_jobs, "queuedBytes": used.open_bytes},
    }


def patched(settings: SchedulingPolicy, known: ev.PolicyFacts, wanted: PolicyPatch) -> ev.PolicyFacts:
    """Return what differs from the settings after a patch. Raises Problem where the whole would be out of bounds."""
    facts = known.model_dump(exclude_none=True)
    in_force = settings.changed(known).model_dump()
    for shown, value in wanted.model_dump(by_alias=True, exclude_unset=True, exclude={"reason"}).items():
        name = KNOBS[shown]
        if value is None:
            facts.pop(name, None)
        else:
            facts[name] = in_force[name] | value if name in _MERGED else value
    changed = ev.PolicyFacts.model_validate(facts)
    try:
        settings.changed(changed)
    except ValidationError as error:
        raise invalid_input(tuple(_fault(detail["loc"], detail["msg"]) for detail in error.errors())) from None
    return changed


def _fault(location: tuple[str | int, ...], message: str) -> Fault:
    shown = next(shown for shown, name in KNOBS.items() if name == location[0])
    return Fault(f"/{shown}", "contradiction", message.removeprefix("Value error, "))


def _overrides(state: Configuration, pool: str) -> ev.PolicyFacts:
    return state.policies.get(pool, ev.PolicyFacts())
