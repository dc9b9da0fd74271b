"""The folded state as bytes and back, so that nobody has to fold the whole log. Pure.

What can be derived (queues, boards, timers, decks' other ends) is not written; a state restored in the middle of a log
and folded on is the same as one that was never interrupted.
Jobs stand in columns, slots in rows, by the names of their fields: a new field that has a default needs nothing more.
Any other change of what is kept, or of what it means, needs another VERSION; a state of another version is not read,
but folded anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from contracts.errors import Corrupt
from contracts.events import TenantRule
from contracts.job import TERMINAL, JobStatus
from contracts.positions import entry_key
from services.scheduler.fold.columns import Column, Read, pack, unpack
from services.scheduler.fold.keeping import dump_policy, load_policy
from services.scheduler.fold.records import Job, Offer, Slot, Worker
from services.scheduler.fold.state import PoolState

VERSION = 9
READ: Read = {
    "hooks": frozenset,
    "resources": lambda drawn: tuple((name, units) for name, units in drawn),
    "status": JobStatus,
}
_SLOT = tuple(field.name for field in fields(Slot))
_NUMBERS = ("position", "entries_read", "admitted", "mismatches", "policy_position")


def dump(state: PoolState) -> bytes:
    """Return the state as JSON."""
    return orjson.dumps(
        {
            "version": VERSION,
            **{name: getattr(state, name) for name in _NUMBERS},
            "jobs": _dump_jobs(list(state.jobs.values())),
            "slotFields": _SLOT,
            "workers": [_dump_worker(worker) for worker in state.workers.values()],
            "estimates": state.estimates.snapshot(),
            "peaks": state.peaks.snapshot(),
            "policy": dump_policy(state.policy),
            "limits": state.limits.snapshot(),
            "budgets": state.budgets.snapshot(),
            "tenantRules": {name: rule.model_dump(exclude_none=True) for name, rule in state.tenant_rules.items()},
            "pausedMs": state.paused_ms,
            "pausedTenants": state.paused_tenants,
            "pausedModels": state.paused_models,
            "stranded": state.seating.stranded,
        },
        default=_plain,
    )


def load(data: bytes) -> PoolState:
    """Return the state that was dumped. Raises Corrupt, whatever is wrong with it."""
    try:
        raw: dict[str, Any] = orjson.loads(data)
        if raw.get("version") != VERSION:
            raise Corrupt("snapshot", f"version {raw.get('version')} is not known; this version knows {VERSION}")
        return _load(raw)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise Corrupt("snapshot", f"{type(error).__name__}: {error}") from error


def _load(raw: dict[str, Any]) -> PoolState:
    state = PoolState()
    for name in _NUMBERS:
        setattr(state, name, raw[name])
    state.jobs = _load_jobs(**raw["jobs"])
    workers = (_load_worker(worker, raw["slotFields"]) for worker in raw["workers"])
    state.seating.workers = {worker.id: worker for worker in workers}
    state.estimates.restore(**raw["estimates"])
    state.peaks.restore(raw["peaks"])
    state.by_age.extend((job.first, job.id) for job in state.jobs.values())  # as they were admitted
    ended = [job for job in state.jobs.values() if job.status in TERMINAL]
    for job in sorted(ended, key=lambda job: (job.ended_ms, entry_key(job.last))):
        state.ended[job.status].append((job.id, job.run))
    load_policy(state.policy, raw["policy"])
    state.limits.restore(raw["limits"])
    state.budgets.restore(*raw["budgets"])
    for name, rule in raw["tenantRules"].items():
        state.rule(name, TenantRule.model_validate(rule), raw["pausedTenants"].get(name, 0))
    state.paused_ms, state.paused_models = raw["pausedMs"], raw["pausedModels"]
    state.seating.stranded = {
        offer_id: (job_id, worker_id, slot, size)
        for offer_id, (job_id, worker_id, slot, size) in raw["stranded"].items()
    }
    state.policy.resume(state.derive())
    return state


def _dump_jobs(jobs: list[Job]) -> dict[str, Any]:
    offers = {job.id: job.offers for job in jobs if job.offers}
    return {"count": len(jobs), "columns": pack(Job, jobs, leave_out=("offers",)), "offers": offers}


def _load_jobs(
    count: int, columns: Mapping[str, Column], offers: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Job]:  # fmt: skip
    jobs = {job.id: job for job in unpack(Job, count, columns, READ)}
    for job_id, standing in offers.items():
        jobs[job_id].offers = {offer_id: Offer(**offer) for offer_id, offer in standing.items()}
    return jobs


def _row(record: object, names: Sequence[str]) -> list[object]:
    return [getattr(record, name) for name in names]


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(type(value).__name__)


def _dump_worker(worker: Worker) -> dict[str, object]:
    slots = [_row(slot, _SLOT) for slot in worker.slots.values()]
    return {
        "id": worker.id, "last": worker.last, "models": worker.models, "draining": worker.draining, "slots": slots
    }  # fmt: skip


def _load_slot(values: dict[str, Any]) -> Slot:
    pinned = tuple((model, size) for model, size in values.get("pinned", ()))
    return Slot(**values | {"resident": tuple(values.get("resident", ())), "pinned": pinned})


def _load_worker(raw: Mapping[str, Any], names: Sequence[str]) -> Worker:
    slots = [_load_slot(dict(zip(names, row, strict=True))) for row in raw["slots"]]
    return Worker(
        raw["id"], raw["last"], frozenset(raw["models"]), {slot.index: slot for slot in slots}, raw["draining"]
    )
