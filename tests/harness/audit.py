"""The verdict on a store, taken from its log: one end per run, the fold is the hash, counters and slots are true.

Reads everything anew from the store; nothing that the tests saw while they waited is believed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import orjson

from contracts import events as ev
from contracts.errors import Corrupt
from contracts.job import TERMINAL, JobState
from contracts.job_fold import fold
from contracts.store import Store, keys
from contracts.wire import Entry, decode
from tests.harness.tail import ENDS

# counts what admission counts, in one step, so that nothing moves between the sums
COUNT = """
local sums = {jobs = 0, bytes = 0}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local h = redis.call('HMGET', key, 's', 't', 'u')
  if h[1] == 'queued' or h[1] == 'scheduled' or h[1] == 'in_progress' then
    local name = 'b:' .. h[2]
    sums.jobs, sums.bytes, sums[name] = sums.jobs + 1, sums.bytes + h[3], (sums[name] or 0) + h[3]
  end
end
local usage, flat = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do usage[flat[i]] = tonumber(flat[i + 1]) end
return cjson.encode({sums, usage})
"""


@dataclass(slots=True)
class Verdict:
    """What became of the jobs, and what is wrong. `ended` counts statuses; `faults` are sentences."""

    submitted: int
    ended: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def must_hold(self) -> None:
        """Raise unless every job has exactly one end per run and nothing else is wrong."""
        assert not self.faults, "\n".join(self.faults[:20])
        assert self.ended.total() == self.submitted, f"{self.submitted} submitted, ended: {dict(self.ended)}"


async def audit(store: Store, pool: str, jobs: Iterable[str], begin: str) -> Verdict:
    """Judge these jobs, and the slots of all workers, by the log after position `begin`."""
    jobs = list(jobs)
    verdict = Verdict(len(jobs))
    log = [decode(position.decode(), fields) for position, fields in await _read_log(store, pool, begin)]
    by_job = defaultdict(list)
    for entry in log:
        by_job[entry.subject].append(entry)
    for job_id in jobs:
        await _judge_job(store, pool, job_id, by_job[job_id], verdict)
    verdict.faults += judge_slots(log)
    counted, usage = orjson.loads(
        await store.client.eval(COUNT, 1, keys.usage(pool), keys.job(pool, "*"))  # type: ignore[no-untyped-call]
    )
    usage = {"jobs": 0, "bytes": 0, **usage}
    if counted != usage:
        verdict.faults.append(f"usage counters say {usage}, the jobs say {counted}")
    return verdict


async def _read_log(store: Store, pool: str, begin: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    raw: list[tuple[bytes, dict[bytes, bytes]]] = []
    low = f"({begin}"
    while page := await store.client.xrange(keys.log(pool), min=low, count=2000):
        raw += page
        low = f"({page[-1][0].decode()}"
    return raw


async def _judge_job(store: Store, pool: str, job_id: str, entries: list[Entry], verdict: Verdict) -> None:
    history = await store.jobs.history(pool, job_id)
    if history is None or not entries:
        verdict.faults.append(f"{job_id}: submitted, but unknown to the store")
        return
    try:
        folded = fold(job_id, entries)
    except Corrupt as fault:
        verdict.faults.append(f"{job_id}: {fault.reason}")
        return
    # between the two reads the job may have gone on: the fold is compared up to where both are
    folded = fold(job_id, history.entries) if folded.sequence < history.state.sequence else folded
    if small(folded) != history.state:
        verdict.faults.append(f"{job_id}: the fold {folded} is not the hash {history.state}")
    runs = sum(entry.type in ("job.created", "job.retried") for entry in entries)
    ends = [entry.type for entry in entries if entry.type in ENDS]
    if len(ends) != runs - (folded.status not in TERMINAL):
        verdict.faults.append(f"{job_id}: {runs} runs, ends: {ends}")
    if folded.status in TERMINAL:
        verdict.ended[str(folded.status)] += 1


def small(state: JobState) -> JobState:
    """Return what of a folded state the hash keeps."""
    return replace(state, artifacts=(), timings=ev.Timings())


def judge_slots(log: list[Entry]) -> list[str]:
    """Return what is wrong with the slots: two attempts or two offers on one, or more bytes than its device has.

    An attempt holds its slot from its start until its device was released or it ended. What a lost worker held is
    on nobody's device any more: its successor got the device's lock only when the last of its processes was gone.
    """
    slots = _Slots()
    return [f"{entry.position}: {fault}" for entry in log for fault in slots.judge(entry)]


@dataclass(slots=True)
class _Slots:
    """Who holds which slot, folded from the log of a pool."""

    known: dict[tuple[str, int], ev.SlotInfo] = field(default_factory=dict)
    running: dict[str, tuple[str, int]] = field(default_factory=dict)  # job -> worker, slot
    decks: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)  # job, offer -> worker, slot
    batches: dict[str, str | None] = field(default_factory=dict)  # job -> the batch of its newest offer

    def judge(self, entry: Entry) -> list[str]:
        """Fold one entry; returns what it breaks."""
        job, event = entry.subject, entry.event()
        match event:
            case ev.WorkerRegistered(worker_id=worker, slots=slots):
                self.known |= {(worker, slot.index): slot for slot in slots}
            case ev.JobAssigned():
                return self._offered(job, event)
            case ev.JobUnassigned(offer_id=offer):
                self.decks.pop((job, offer), None)
            case ev.JobStarted(worker_id=worker, slot=index):
                return self._started(job, (worker, index))
            case ev.JobDeviceReleased():
                self.running.pop(job, None)
            case ev.JobAttemptFailed() | ev.JobQueued():
                self._let_go(job)
            case ev.WorkerLost(worker_id=worker) | ev.WorkerDrained(worker_id=worker):
                self.running = {job: place for job, place in self.running.items() if place[0] != worker}
                self.decks = {offer: place for offer, place in self.decks.items() if place[0] != worker}
            case _ if entry.type in ENDS:
                self._let_go(job)
            case _:
                pass
        return []

    def _offered(self, job: str, event: ev.JobAssigned) -> list[str]:
        place = (event.worker_id, event.slot)
        self.batches[job] = event.batch
        faults = [
            f"{other} and {job} on the deck of {place}"
            for (other, _), at in self.decks.items()
            if at == place and not self._together(job, other)
        ]
        slot = self.known.get(place)
        if slot is not None and slot.bytes and event.bytes > slot.bytes:
            faults.append(f"{job} needs {event.bytes} bytes and was offered to {slot.device}, which has {slot.bytes}")
        self.decks[job, event.offer_id] = place
        return faults

    def _started(self, job: str, place: tuple[str, int]) -> list[str]:
        beside = [
            other
            for other, at in self.running.items()
            if other == job or (at == place and not self._together(job, other))
        ]
        self._let_go(job)
        self.running[job] = place
        return [f"{job} started on {place} beside {beside}"] if beside else []

    def _together(self, job: str, other: str) -> bool:
        return self.batches.get(job) is not None and self.batches[job] == self.batches.get(other)

    def _let_go(self, job: str) -> None:
        self.running.pop(job, None)
        self.decks = {offer: place for offer, place in self.decks.items() if offer[0] != job}
