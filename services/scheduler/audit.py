"""Is the scheduler's snapshot the fold of the log up to where it stands, and what did a leader set aside?

Beside `contracts.audit.verify`, which gives every entry in order. The snapshot is what a leader starts from; one that
is wrong would make its choices wrong until a job that it is wrong about is forgotten.
Promises: reads only; a job, a worker, or a part of the state (estimates, policy, limits, budgets, pauses) is named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import orjson

from contracts import events as ev
from contracts.audit import Mender, Projection
from contracts.audit.log_audit import LogAudit
from contracts.errors import Corrupt
from contracts.positions import entry_key
from contracts.store import Store
from contracts.store.log import Poison
from contracts.wire import Entry
from services.scheduler.fold.records import Job
from services.scheduler.fold.snapshot import VERSION, dump, load
from services.scheduler.fold.state import PoolState
from services.scheduler.snapshots import keep_state

RESTART_WORKER = "set aside; it comes back when its worker is restarted"


class SnapshotAudit:
    """One audit of one pool; `state` is the fold, and right only when `is_whole`."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store, self._pool = store, pool
        self.state, self.is_whole = PoolState(), False
        self._kept: bytes | None = None  # until it is compared
        self._at = ""
        self._why: dict[str, str] = {}  # job -> why it was set aside
        self._found = Projection("scheduler")

    async def begin(self, *, is_whole: bool) -> None:
        """Take the snapshot that is there now. Raises Unavailable."""
        self.is_whole = is_whole
        try:
            kept = await self._store.snapshots.load(self._pool)
        except Corrupt as error:
            self._found.rows += 1
            self._found.differs("snapshot", error.reason)
            return
        if kept is None:
            return
        self._at, self._kept = kept[0].position, kept[1]
        if not is_whole:  # then it is all that is known of what came before it
            self._found.unknown += 1
            self._begin_with(kept[1])

    def take(self, entry: Entry | Poison) -> None:
        """Fold one entry; the snapshot is compared when the fold is where it stands."""
        if not self.is_whole and entry_key(entry.position) <= entry_key(self.state.position):
            return
        if self._kept is not None and entry_key(entry.position) > entry_key(self._at):
            self._compare(self._kept)
        if isinstance(entry, Poison):
            self.state.skip(entry.position)
            return
        self.state.apply(entry)
        if entry.type == ev.SchedulerMismatch.TYPE:
            self._note(entry)

    async def compare(self) -> Projection:
        """Return what came of it, with what is set aside by now."""
        if self._kept is not None and self._at == self.state.position:
            self._compare(self._kept)
        elif self._kept is not None:
            self._found.rows += 1
            self._found.differs("snapshot", f"it stands at {self._at}, which the log does not reach")
        found = replace(self._found, sample=list(self._found.sample))
        for row, what in self._set_aside():
            found.differs(row, what)
        return found

    async def mend(self, mender: Mender, audit: LogAudit) -> None:
        """Have jobs chosen again whose hash is as it should be; keep the fold as the snapshot. Raises Unavailable."""
        for job_id in sorted(self.state.aside):
            if (fields := audit.hashes.jobs.get(job_id)) is not None:
                await mender.serve_again(job_id, fields, audit.position)
        if not self._found.differing or not self.is_whole:
            return
        if await keep_state(self._store, self._pool, self.state):
            await mender.note(self._found.name, "snapshot", self.state.position)
            self._found = Projection("scheduler", self._found.rows)
        else:
            mender.done.leave("snapshot", "a newer one was kept meanwhile: repair again")

    def _begin_with(self, kept: bytes) -> None:
        self._kept = None
        try:
            self.state = load(kept)
        except Corrupt:
            self._at = ""

    def _set_aside(self) -> Iterator[tuple[str, str]]:
        for job_id in sorted(self.state.aside):
            yield job_id, f"set aside, since {self._why.get(job_id, 'a decision was refused')}; repair it"
        for worker in self.state.workers.values():
            yield from (
                (f"{worker.id} slot {slot.index}", RESTART_WORKER) for slot in worker.slots.values() if slot.aside
            )

    def _note(self, entry: Entry) -> None:
        event = entry.event()
        if isinstance(event, ev.SchedulerMismatch):
            self._why[event.job_id] = event.reason

    def _compare(self, kept: bytes) -> None:
        self._kept = None
        try:
            version = orjson.loads(kept).get("version")
            there = load(kept) if version == VERSION else None
        except (ValueError, AttributeError, Corrupt) as error:
            self._found.rows += 1
            self._found.differs("snapshot", f"it cannot be read: {error}")
            return
        if there is None:  # of another release: it is not read, but folded anew
            self._found.unknown += 1
            return
        self._compare_rows(self.state.jobs, there.jobs)
        del there  # as large as the state itself, and what comes next is, too
        expected, live = _parts(dump(self.state)), _parts(kept)
        for name in sorted(expected.keys() | live.keys()):
            self._found.compare(name, *_differing(expected.get(name), live.get(name)))

    def _compare_rows(self, expected: Mapping[str, Job], live: Mapping[str, Job]) -> None:
        for job_id in sorted(expected.keys() | live.keys()):
            ours, theirs = expected.get(job_id), live.get(job_id)
            self._found.rows += 1
            if ours != theirs:
                self._found.differs(
                    job_id, f"the log says {_changed(ours, theirs)}, the snapshot {_changed(theirs, ours)}"
                )


def _parts(data: bytes) -> dict[str, Any]:
    """Return what a snapshot holds beside jobs, each worker by its id."""
    raw: dict[str, Any] = orjson.loads(data)
    del raw["jobs"]
    return raw | {worker["id"]: worker for worker in raw.pop("workers")}


def _differing(expected: object, live: object, path: str = "") -> tuple[object, object]:
    """Return the first place at which two values differ, and nothing else of them."""
    if isinstance(expected, dict) and isinstance(live, dict):
        for name in sorted(expected.keys() | live.keys()):
            if expected.get(name) != live.get(name):
                return _differing(expected.get(name), live.get(name), f"{path}{name}.")
        return None, None
    if expected == live:
        return None, None
    return (f"{path}{expected}", f"{path}{live}") if path else (expected, live)


def _changed(job: Job | None, other: Job | None) -> dict[str, object] | str:
    if job is None:
        return "nothing"
    names = [one.name for one in fields(Job)] if other is not None else ["status"]
    return {name: getattr(job, name) for name in names if other is None or getattr(job, name) != getattr(other, name)}
