"""Look at the store and say whether it is what the model says: hashes, lists, counters, decks, streams and the log."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import redis

from contracts.job_fold import fold
from contracts.store import Store, keys
from contracts.store.jobs import History
from contracts.wire import decode
from tests.store.job_model import TERMINAL, Model, ModelJob, ModelWorker

POOL = "default"
TENANTS = ("t_a", "t_b")


async def compare_jobs(store: Store, model: Model) -> None:
    """Every job's hash and log, and that the log folds to the hash."""
    reads = (store.jobs.history(POOL, job_id, with_body=True) for job_id in model.jobs)
    for job, history in zip(model.jobs.values(), await asyncio.gather(*reads), strict=True):
        assert history is not None
        _compare_state(job, history)
        _compare_log(job, history)
        _compare_runs(job)


def _compare_state(job: ModelJob, history: History) -> None:
    state = history.state
    found = (state.status, state.fence, state.attempt, state.run, state.worker_id)
    assert found == (job.status, job.fence, job.attempt, job.run, job.owner)
    assert {offer: worker for offer, (worker, _) in state.offers.items()} == job.offers
    assert (state.cancel_requested_ms is not None) == job.cancel
    assert (state.start_by_at_ms is not None) == (job.run == 1)
    assert history.body == job.body
    # artifacts and timings come from the log alone; the machine writes none
    assert fold(job.id, history.entries) == state


def _compare_log(job: ModelJob, history: History) -> None:
    entries = history.entries
    assert [entry.type for entry in entries] == job.events
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.previous for entry in entries] == ["", *(entry.position for entry in entries[:-1])]


def _compare_runs(job: ModelJob) -> None:
    ends = [0]
    for event in job.events:
        if event == "job.retried":
            ends.append(0)
        ends[-1] += event.removeprefix("job.") in TERMINAL
    assert ends == [1] * (job.run - 1) + [0 if job.open else 1]


def compare_counters(direct: "redis.Redis[str]", model: Model) -> None:
    """The tenants' lists and what admission counts."""
    usage: dict[str, int] = defaultdict(int)
    for job in model.jobs.values():
        for name, amount in (("jobs", 1), ("bytes", job.bytes), (f"b:{job.tenant}", job.bytes)):
            usage[name] += amount if job.open else 0
    found = {name: int(value) for name, value in direct.hgetall(keys.usage(POOL)).items()}
    assert _without_zeros(found) == _without_zeros(usage)
    for tenant in TENANTS:
        listed = dict(direct.zrange(keys.jobs(POOL, tenant), 0, -1, withscores=True))
        assert listed == {job.id: float(not job.open) for job in model.jobs.values() if job.tenant == tenant}


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def compare_workers(direct: "redis.Redis[str]", workers: Sequence[ModelWorker]) -> None:
    """Beats, decks and the work that lies in each worker's stream, each thing once."""
    for worker in workers:
        fields = direct.hgetall(keys.worker(POOL, worker.id))
        decks = {
            int(name[1:]): value.split()[-1] for name, value in fields.items() if name[0] == "d" and name[1:].isdigit()
        }
        assert (decks, int(fields["b"])) == (worker.decks, worker.beats)
        stream = direct.xrange(keys.work(POOL, worker.id))
        assert len(stream) == len(worker.work)
        for (_, entry), (kind, offer) in zip(stream, worker.work, strict=True):
            assert entry["kind"] == kind
            assert f'"{offer}"' in entry["d"]
    names = {worker.id for worker in workers}
    assert direct.smembers(keys.workers(POOL)) == names


def compare_whole_log(direct: "redis.Redis[str]", model: Model) -> None:
    """The log holds the events of all jobs, forgotten ones too, and each worker's registration once."""
    registered: list[str] = []
    written: dict[str, list[str]] = defaultdict(list)
    for position, fields in direct.xrange(keys.log(POOL)):
        entry = decode(position, fields)
        if entry.sequence:
            written[entry.subject].append(entry.type)
        elif entry.type == "worker.registered":
            registered.append(entry.subject)
    assert registered == model.registered
    assert dict(written) == {job.id: job.events for job in (*model.jobs.values(), *model.forgotten.values())}
