"""How jobs stood at an instant, as it is shown. Pure.

Promises: a tenant sees its own jobs and limits, and of workers what events tell it anyway; hosts are for operators.
"""

from collections.abc import Iterable, Mapping

from contracts.times import instant
from services.ingest.events.standing import Open, Standing, Worker
from services.ingest.views.body_lines import JsonObject


def counts_view(standings: Iterable[Standing]) -> dict[str, int]:
    """Return how many jobs were in each state, in all pools together."""
    counts: dict[str, int] = {}
    for standing in standings:
        for status, count in standing.counts.items():
            counts[status] = counts.get(status, 0) + count
    return counts


def running_view(job_id: str, job: Open, pool: str, *, is_for_operators: bool) -> JsonObject:
    """Return a job that ran."""
    view: JsonObject = {
        "jobId": job_id,
        "pool": pool,
        "model": job.model,
        "workerId": job.worker_id,
        "slot": job.slot,
        "startedAt": instant(job.started_ms or 0),
    }
    return view | {"tenantId": job.tenant_id} if is_for_operators else view


def pool_view(standing: Standing) -> JsonObject:
    """Return what a pool ran on."""
    of_all = standing.tenant_id is None
    ran = {(job.worker_id, job.slot): job_id for job_id, job in standing.running}
    return {
        "workers": [
            _worker_view(worker_id, worker, ran, is_for_operators=of_all)
            for worker_id, worker in sorted(standing.workers.items())
        ],
        "paused": bool(standing.policy.get("paused", False)),
        "pausedModels": list(standing.policy.get("pausedModels", ())),
        "policyPosition": standing.policy_position,
        "policy": standing.policy.get("policy", {}),
        "limits": {name: rule for name, rule in standing.rules.items() if of_all or name == standing.tenant_id},
    }


def _worker_view(
    worker_id: str, worker: Worker, ran: Mapping[tuple[str | None, int | None], str], *, is_for_operators: bool
) -> JsonObject:
    slots = [
        {
            "index": slot.get("index"),
            "device": slot.get("device"),
            "kind": slot.get("kind"),
            "bytes": slot.get("bytes"),
            "models": slot.get("models", []),
            "jobId": ran.get((worker_id, slot.get("index"))),
        }
        for slot in worker.slots
    ]
    view: JsonObject = {"id": worker_id, "state": "draining" if worker.is_draining else "open", "slots": slots}
    told: JsonObject = {"host": worker.host, "pid": worker.pid, "version": worker.version}
    return view | told if is_for_operators else view
