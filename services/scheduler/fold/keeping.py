"""The policy's state as plain data and back. What the waiting jobs themselves say is not in it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contracts.events import PolicyFacts
from services.scheduler.fold.accounts import Account, Rule, Tenant
from services.scheduler.fold.facts import Knobbed, ModelsPaused, Tokens
from services.scheduler.fold.ledger import Charge, Ledger
from services.scheduler.fold.policy import BlfqPolicy


def dump_policy(policy: BlfqPolicy) -> dict[str, Any]:
    """Return everything but the waiting jobs and what follows from them."""
    ledger = policy.ledger
    return {
        "virtual": ledger.horizon.virtual,
        "ahead": ledger.horizon.ahead,
        "charged": ledger.charged,
        "tiers": [[tier.rho, tier.horizon.virtual, tier.horizon.ahead] for tier in ledger.tiers],
        "tenants": {tenant.id: _dump_tenant(tenant) for tenant in ledger.tenants.values()},
        "rules": {tenant_id: list(rule) for tenant_id, rule in ledger.rules.items()},
        "parked": sorted(ledger.parked),
        "knobs": policy.knobs.facts.model_dump(exclude_none=True),
        "pausedModels": sorted(policy.boards.paused_models),
        "tokens": policy.tokens,
        "charges": {job_id: list(charge) for job_id, charge in ledger.charges.items()},
        "inFlight": ledger.in_flight,
    }


def load_policy(policy: BlfqPolicy, data: Mapping[str, Any]) -> None:
    """Bring a new policy to what was dumped; the jobs that waited are told afterwards, by `resume`."""
    ledger = policy.ledger
    policy.apply(Knobbed(PolicyFacts.model_validate(data["knobs"])))
    policy.apply(ModelsPaused(frozenset(data["pausedModels"])))
    for resource, n in data["tokens"].items():
        policy.apply(Tokens(resource, n))
    ledger.horizon.virtual, ledger.horizon.ahead, ledger.charged = data["virtual"], data["ahead"], data["charged"]
    for tier, (rho, virtual, ahead) in zip(ledger.tiers, data["tiers"], strict=True):
        tier.rho, tier.horizon.virtual, tier.horizon.ahead = rho, virtual, ahead
    for tenant_id, rule in data["rules"].items():
        ledger.rule(tenant_id, Rule(*rule))
    ledger.parked.update(data["parked"])
    for tenant_id, row in data["tenants"].items():
        _load_tenant(ledger.tenant(tenant_id), row)
    for job_id, row in data["charges"].items():
        ledger.charges[job_id] = charge = Charge(*row)
        for account in _accounts(ledger, charge.tenant_id, charge.user):
            account.charged += 1
    for job_id, (tenant_id, user) in data["inFlight"].items():
        ledger.in_flight[job_id] = (tenant_id, user)
        for account in _accounts(ledger, tenant_id, user):
            account.in_flight += 1


def _accounts(ledger: Ledger, tenant_id: str, user: str) -> Iterator[Account]:
    tenant = ledger.tenant(tenant_id)
    yield tenant
    yield tenant.user(user)


def _dump_tenant(tenant: Tenant) -> list[object]:
    users = {user.id: user.v for user in tenant.users.values()}
    skips = sorted((tenant.skips or {}).items())
    return [tenant.v, tenant.horizon.virtual, tenant.horizon.ahead, users, skips]


def _load_tenant(tenant: Tenant, row: Sequence[Any]) -> None:
    tenant.v, tenant.horizon.virtual, tenant.horizon.ahead, users, skips = row
    for user_id, v in users.items():
        tenant.users[user_id] = Account(user_id, v)
    tenant.skips = {int(key): ms for key, ms in skips} or None
