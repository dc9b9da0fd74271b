"""A pool with a supervisor in it, and a stand-in for ingest and scheduler: admits, offers, withdraws, cancels."""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from contracts import events as ev
from contracts import ids
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.job import JobState
from contracts.model_spec import ModelSpec
from contracts.models import ModelRegistry
from contracts.settings import load_settings
from contracts.store import Store, Word
from contracts.store.attempts import Offer
from contracts.store.jobs import History, Limits
from contracts.store.leadership import build_turn
from contracts.store.log import Poison
from contracts.store.write import JobGuard, WorkEntry, WorkerGuard, Write, off_deck, on_deck
from contracts.wire import Entry
from services.gpu_worker.config import Host, WorkerConfig, worker_config
from services.gpu_worker.lane import Lane
from services.gpu_worker.service import Supervisor
from tests.gpu_worker.rig import MODELS, PATIENCE_S

POOL = "default"
TENANT = "t_a"


class Stage:
    """What a test does to a pool. One leader: this."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tail = store.tail(POOL, "0-0")
        self._entries: list[Entry] = []
        self._numbers = itertools.count(1)
        self._turn = 0
        self._offers: dict[str, tuple[str, Offer]] = {}
        self._tenants: dict[str, str] = {}

    @property
    def entries(self) -> list[Entry]:
        """What `saw` has read of the log."""
        return self._entries

    async def lead(self) -> None:
        _, _, self._turn = await self.store.leadership.lead(POOL, "token", 600_000)

    async def admit(
        self, model: str, *, max_attempts: int = 3, timeout_ms: int = 60_000, reference: str = "",
        artifact_pools: dict[str, str] | None = None, vram_bytes: int = 0, tenant_id: str = TENANT, **inputs: Any,
    ) -> str:  # fmt: skip
        job_id = ids.mint_job_id(1_764_457_200_000, random.getrandbits(80), "aa")
        spec = MODELS.find(model)
        assert spec is not None
        created = ev.JobCreated(
            tenant_id=tenant_id,
            model=reference or spec.reference,
            timeout_ms=timeout_ms,
            max_attempts=max_attempts,
            body_bytes=20,
            vram_bytes=vram_bytes,
        )
        spec_line = {"prompt": inputs.pop("prompt", "a lighthouse"), "input": inputs}
        body = orjson.dumps(spec_line | ({"artifactPools": artifact_pools} if artifact_pools else {}))
        admitted = await self.store.jobs.admit(POOL, Write(job_id, (created,)), body, tenant_id, Limits())
        assert admitted.word is Word.APPLIED
        self._tenants[job_id] = tenant_id
        return job_id

    async def offer(self, job_id: str, worker_id: str, slot: int = 0, **more: object) -> Word:
        """Offer a job as it is now; REFUSED if the deck is not empty. `more` are fields of a newer version."""
        return (await self._decide(await self._assign(job_id, worker_id, slot, "", more)))[0]

    async def offer_batch(
        self, job_ids: Sequence[str], worker_id: str, slot: int = 0, batch: str = "1-0"
    ) -> list[Word]:
        """Offer jobs for one pass, as one turn does."""
        return await self._decide(*[await self._assign(job_id, worker_id, slot, batch, {}) for job_id in job_ids])

    async def _assign(self, job_id: str, worker_id: str, slot: int, batch: str, more: Mapping[str, object]) -> Write:
        state, tenant_id = await self.state(job_id), self._tenants.get(job_id, TENANT)
        offer = Offer(
            job_id=job_id, offer_id=f"off{next(self._numbers)}", slot=slot, fence=state.fence, attempt=state.attempt,
            max_attempts=state.max_attempts, tenant_id=tenant_id, model=state.model, timeout_ms=state.timeout_ms,
            batch=batch,
        )  # fmt: skip
        self._offers[job_id] = (worker_id, offer)
        return Write(
            job_id,
            (ev.JobAssigned(worker_id=worker_id, offer_id=offer.offer_id, slot=slot, device="cpu"),),
            guard=JobGuard(states=("queued",), fence=state.fence),
            worker_guard=WorkerGuard(worker_id, open=True, deck_empty=slot, batch=batch),
            worker_fields=(on_deck(worker_id, slot, job_id, offer.offer_id, batch),),
            work=(WorkEntry(worker_id, "offer", {**offer.to_data(), **more}),),
        )

    async def withdraw(self, job_id: str) -> Word:
        worker_id, offer = self._offers[job_id]
        (word,) = await self._decide(
            Write(
                job_id,
                (ev.JobUnassigned(worker_id=worker_id, offer_id=offer.offer_id, reason="better"),),
                guard=JobGuard(offer_id=offer.offer_id),
                worker_fields=(off_deck(worker_id, offer.slot, job_id, offer.offer_id),),
                work=(WorkEntry(worker_id, "withdraw", {"offerId": offer.offer_id, "jobId": job_id}),),
            )
        )
        return word

    async def cancel(self, job_id: str, *, tell: bool = True) -> Word:
        """Ask for the end of a running job; without `tell` only the heartbeat can find out."""
        state = await self.state(job_id)
        entry = WorkEntry(state.worker_id or "", "cancel", {"jobId": job_id, "fence": state.fence})
        write = Write(
            job_id,
            (ev.JobCancelRequested(by="test"),),
            fence=state.fence,
            guard=JobGuard(states=("in_progress",)),
            work=(entry,) if tell else (),
        )
        return (await self.store.jobs.append(POOL, write, f"cancel-{job_id}")).word

    async def command(self, worker_id: str, command: ev.WorkerCommand, **data: Any) -> None:
        """Ask something of a worker, as the operator's API does."""
        event = ev.WorkerCommanded(worker_id=worker_id, command=command, by="test")
        entry = WorkEntry(worker_id, "command", {"command": command, **data})
        write_id = f"command-{next(self._numbers)}"
        reply = await self.store.attempts.announce(POOL, worker_id, event, write_id, work=(entry,))
        assert reply.word is Word.APPLIED

    async def reclaim(self, job_id: str) -> Word:
        """Do what the leader does when a lease is lost."""
        state = await self.state(job_id)
        error = ev.ErrorFacts(code="worker_lost", retryable=True)
        events = (
            ev.JobLeaseLost(worker_id=state.worker_id or "", attempt=state.attempt),
            ev.JobAttemptFailed(error=error, attempt=state.attempt, will_retry=True),
        )
        (word,) = await self._decide(Write(job_id, events, fence=state.fence, guard=JobGuard(fence=state.fence)))
        return word

    async def remove(self, worker_id: str) -> Word:
        event = ev.WorkerLost(worker_id=worker_id, silent_ms=1)
        (word,) = await self._decide(Write(worker_id, (event,), of_job=False, remove_worker=worker_id))
        return word

    async def _decide(self, *writes: Write) -> list[Word]:
        self._turn += 1
        turn = build_turn(POOL, "token", self._turn, 600_000, writes, cursor="0-0", entries_read=0)
        reply = await self.store.leadership.turn(turn)
        assert reply.word is Word.APPLIED
        return [verdict.word for verdict in reply.verdicts]

    async def history(self, job_id: str) -> History:
        history = await self.store.jobs.history(POOL, job_id, with_body=True)
        assert history is not None
        assert history.folded() == replace(history.state, artifacts=history.folded().artifacts,
                                           timings=history.folded().timings)  # fmt: skip
        return history

    async def state(self, job_id: str) -> JobState:
        return (await self.history(job_id)).state

    async def types(self, job_id: str) -> list[str]:
        return [entry.type for entry in (await self.history(job_id)).entries]

    async def results(self, job_id: str) -> list[dict[str, Any]]:
        body = (await self.history(job_id)).body
        return [orjson.loads(line) for line in body.splitlines()[1:]]

    async def ended(self, job_id: str) -> JobState:
        """Wait until the run of a job is over."""
        async with asyncio.timeout(PATIENCE_S):
            while not (state := await self.state(job_id)).terminal:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)
        return state

    async def saw(self, type_: str, subject: str = "", count: int = 1) -> ev.Event:
        """Wait until the log holds `count` events of a type (about a job or worker) and return the last of them."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = [e for e in self._entries if e.type == type_ and subject in ("", e.subject)]
                if len(found) >= count:
                    event = found[count - 1].event()
                    assert event is not None
                    return event
                for entry in await self._tail.read(block_ms=200):
                    assert not isinstance(entry, Poison)
                    self._entries.append(entry)


class Menu(ModelRegistry):
    """The samples; a test may change the file of one."""

    def __init__(self) -> None:
        super().__init__(MODELS.specs, MODELS.resources, MODELS.base)

    def replace(self, name: str, entry: Path) -> None:
        specs = tuple(replace(spec, entry=entry) if spec.name == name else spec for spec in self.specs)
        self.serve(specs)

    def serve(self, specs: tuple[ModelSpec, ...]) -> None:
        super().__init__(specs, self.resources, self.base)


class Staff:
    """A supervisor that runs in this process."""

    def __init__(self, store: Store, config: WorkerConfig, stage: Stage, shelf: Shelf | None = None) -> None:
        self.stage, self.config, self.models = stage, config, Menu()
        self.shelf = shelf or Shelf(LocalObjects(config.data_dir / "artifacts"))
        self.supervisor = Supervisor(store, config, self.models, os.environ, self.shelf)
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.task: asyncio.Task[bool] | None = None

    @property
    def worker_id(self) -> str:
        session = self.supervisor.session
        assert session is not None
        return session.worker_id

    @property
    def lanes(self) -> list[Lane]:
        session = self.supervisor.session
        assert session is not None
        return session.lanes

    @property
    def child_pid(self) -> int:
        return self.lanes[0].slot.child_pid or 0

    @property
    def scratch(self) -> Path:
        return self.config.data_dir / "scratch" / self.lanes[0].slot.device.name / self.worker_id

    def serve(self, model: str, author: str) -> None:
        """Put another file in the place of a model's before it is loaded."""
        entry = self.config.data_dir / f"{model}.py"
        entry.write_text(author)
        self.models.replace(model, entry)

    async def give(self, model: str, **inputs: Any) -> str:
        """Admit a job and offer it to this worker; returns its id."""
        job_id = await self.stage.admit(model, **inputs)
        await self.stage.offer(job_id, self.worker_id)
        return job_id

    async def beats(self) -> int:
        return int((await self.stage.store.workers(POOL))[self.worker_id]["b"])

    async def beaten(self, count: int, since: int | None = None) -> None:
        """Wait for so many heartbeats, from now or since a count of them."""
        before = await self.beats() if since is None else since
        while await self.beats() < before + count:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)

    async def told_slots(self) -> list[dict[str, Any]]:
        """Return the slots as the log knows them, once each has a model."""
        for count in itertools.count(1):
            changed = await self.stage.saw("worker.changed", count=count)
            assert isinstance(changed, ev.WorkerChanged)
            if all(slot.models for slot in changed.slots):
                return [slot.model_dump(mode="json") for slot in changed.slots]
        raise AssertionError

    async def ends(self) -> bool:
        assert self.task is not None
        return await asyncio.wait_for(asyncio.shield(self.task), PATIENCE_S)


def config_for(folder: Path, **changes: Any) -> WorkerConfig:
    settings = load_settings(
        {
            "HEADRACE_DATA_DIR": str(folder / "data"),
            "HEADRACE_WORKER__HEARTBEAT_S": "0.1",
            "HEADRACE_WORKER__LEASE_S": "1",
            "HEADRACE_WORKER__CANCEL_GRACE_S": "0.5",
            "HEADRACE_WORKER__TERM_GRACE_S": "0.3",
            "HEADRACE_RETRY__BASE_S": "0.1",
            "HEADRACE_WORKER__DEVICES": changes.pop("devices", "cpu"),
        }
    )
    host = Host("test", "boot-1", 1 << 30, 2, os.getpid(), folder / "locks")
    return replace(worker_config(settings, host), **changes)


@asynccontextmanager
async def staff(
    store: Store, folder: Path, worker_store: Store | None = None, shelf: Shelf | None = None, **changes: Any
) -> AsyncIterator[Staff]:
    """Run a supervisor on a store until the block ends; the drain must leave nothing behind."""
    stage = Stage(store)
    await stage.lead()
    config = config_for(folder, **changes)
    own = Staff(worker_store or store, config, stage, shelf)
    own.task = asyncio.create_task(own.supervisor.run(own.stop, own.hurry))
    try:
        await stage.saw("worker.registered")
        yield own
    finally:
        own.stop.set()
        own.hurry.set()
        await own.ends()
