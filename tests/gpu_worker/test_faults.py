"""Every way in which author code can misbehave, at a supervisor process on a real store: the documented end, and then
the next job of the slot, at its first attempt, with the supervisor as it was before.
"""

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store
from services.gpu_worker.finish import is_empty
from tests.gpu_worker.process import worker
from tests.gpu_worker.rig import PATIENCE_S, eventually
from tests.gpu_worker.stage import POOL, Stage

SLOTS = 4
SCRATCH_BYTES = 1 << 20
LEASE_S = 0.5
GROWTH_BYTES = 8 << 20  # of the supervisor, over all faults: what its allocator keeps for itself


@dataclass(frozen=True)
class Fault:
    """What is run, and how it has to end."""

    name: str
    model: str
    code: str | None  # None: it completes
    inputs: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1  # that it takes until the job is over
    final: str = ""  # the job's code, if it is another one than the attempt's
    timeout_ms: int = 60_000
    cancel_at: str = ""  # the event after which it is cancelled
    says: Callable[[list[ev.Event]], bool] = lambda events: True


def _names(events: list[ev.Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, ev.MilestoneReached)]


def _is_quiet_after_the_end(events: list[ev.Event]) -> bool:
    return [event.TYPE for event in events[-2:]] == ["job.device_released", "job.completed"]


def _is_killed(events: list[ev.Event]) -> bool:
    return isinstance(events[-1], ev.JobCancelled) and events[-1].how == "killed"


def _keeps_to_its_folder(events: list[ev.Event]) -> bool:
    (uploaded,) = (event.artifact for event in events if isinstance(event, ev.ArtifactUploaded))
    return uploaded.bytes == len(b"inside")


ENDS = {"job.completed", "job.failed", "job.cancelled"}
NO_JSON, FINAL = "result_not_serializable", "artifact_rejected"
OVER = 4 * SCRATCH_BYTES
TWICE = {"attempts": 2, "final": "poison"}
FAULTS = [
    Fault("flood of 200 MB", "floods", None, {"mb": 200}),  # first, as it takes longest: what it prints is throttled
    Fault("segfault", "segfault", "child_crashed", **TWICE),
    Fault("exit status 0", "crash", "child_exited", {"how": 0}, **TWICE),
    Fault("holds the interpreter lock for 4 leases", "hang_gil", None, {"seconds": round(4 * LEASE_S)}),
    Fault("ignores SIGTERM", "ignores_cancel", "", {"term": True}, cancel_at="job.progress", says=_is_killed),
    Fault("ignores SIGTERM, timed out", "ignores_cancel", "execution_timeout", {"term": True}, timeout_ms=300),
    Fault("forks helpers", "forks", None),
    Fault("forks helpers and dies", "forks", "child_exited", {"then": "crash"}, **TWICE),
    Fault("huge progress", "huge_progress", None, says=lambda events: len(_names(events)) == 500),
    Fault("half a frame", "half_frame", "child_exited", {"then": "dies"}, **TWICE),
    Fault("half a frame, goes on", "half_frame", "child_crashed", **TWICE),
    Fault("never returns", "hang", "execution_timeout", timeout_ms=300),
    Fault("progress after return", "late", None, says=_is_quiet_after_the_end),
    Fault("returns NaN", "bad_result", NO_JSON, {"what": "nan"}),
    Fault("returns bytes", "bad_result", NO_JSON, {"what": "bytes"}),
    Fault("returns an array", "bad_result", NO_JSON, {"what": "array"}),
    *([Fault("returns a tensor", "tensor", NO_JSON)] if importlib.util.find_spec("torch") else []),
    Fault("returns a circle", "bad_result", NO_JSON, {"what": "circular"}),
    Fault("a file's name leads outside", "escapes", None, says=_keeps_to_its_folder),
    Fault("a file is a link to outside", "escapes", FINAL, {"link": "/etc/hostname"}),
    Fault("writes past its limit", "writes", FINAL, {"bytes": OVER}),
    Fault("writes past its limit and forgives", "writes", None, {"bytes": OVER, "forgives": True}),
    Fault("removes its folder", "vandal", None),
    Fault("its folder becomes a link", "vandal", None, {"link": "."}),
    Fault("looks for secrets", "thief", None),
    Fault("raises what has no text", "unprintable", "internal"),
    Fault("milestone job.completed", "impostor", "internal", says=lambda events: "job.completed" in _names(events)),
]  # fmt: skip


def held_by(pid: int) -> tuple[int, int]:
    """Return descriptors (which only root sees of a process that hides) and resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(os.listdir(f"/proc/{pid}/fd")) if os.geteuid() == 0 else 0, pages * os.sysconf("SC_PAGE_SIZE")


class Floor:
    """The slots of one supervisor, each of which takes one story at a time."""

    def __init__(self, stage: Stage, worker_id: str) -> None:
        self.stage, self.worker_id = stage, worker_id
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(SLOTS):
            self._free.put_nowait(slot)

    async def healthy(self, slot: int) -> None:
        """Show that the slot takes the next job, at its first attempt."""
        job_id = await self.stage.admit("echo")
        await self.stage.offer(job_id, self.worker_id, slot)
        state = await self.stage.ended(job_id)
        assert (state.status, state.attempt) == (JobStatus.COMPLETED, 1)

    async def tell(self, fault: Fault) -> None:
        """Let it happen, then the healthy job."""
        slot = await self._free.get()
        limits = {"max_attempts": max(1, fault.attempts), "timeout_ms": fault.timeout_ms}
        job_id = await self.stage.admit(fault.model, **limits, **fault.inputs)
        for attempt in range(1, fault.attempts + 1):
            await self.stage.offer(job_id, self.worker_id, slot)
            if fault.cancel_at:
                await self._until(job_id, fault.cancel_at)
                await self.stage.cancel(job_id)
            await self._until(job_id, "job.attempt_failed" if fault.code else "job.device_released", attempt)
        assert await self._ending(job_id) == self._expected(fault), fault.name
        assert fault.says(await self._events(job_id)), fault.name
        await self.healthy(slot)
        self._free.put_nowait(slot)

    @staticmethod
    def _expected(fault: Fault) -> tuple[JobStatus, str | None, int]:
        if fault.cancel_at:
            return JobStatus.CANCELLED, None, fault.attempts
        code = fault.final or fault.code
        return JobStatus.FAILED if code else JobStatus.COMPLETED, code, fault.attempts

    async def _ending(self, job_id: str) -> tuple[JobStatus | None, str | None, int]:
        state = await self.stage.ended(job_id)
        return state.status, state.error_code, state.attempt

    async def _events(self, job_id: str) -> list[ev.Event]:
        found = [entry.event() for entry in (await self.stage.history(job_id)).entries]
        return [event for event in found if event is not None]

    async def _until(self, job_id: str, type_: str, count: int = 1) -> None:
        """Wait for an event of the job, or for its end."""
        async with asyncio.timeout(PATIENCE_S):
            types = await self.stage.types(job_id)
            while types.count(type_) < count and types[-1] not in ENDS:
                await asyncio.sleep(0.01)  # the store tells nobody
                types = await self.stage.types(job_id)


async def test_every_fault_ends_as_documented_and_leaves_the_supervisor_as_it_was(store: Store, tmp_path: Path) -> None:
    """Field cases 12, 35, 37, 46, 56, 57 and 61, in one supervisor of four slots with one resident model each."""
    settings = {"worker__devices": f"cpu*{SLOTS}", "worker__max_models": "1", "worker__lease_s": str(LEASE_S)}
    settings |= {"worker__scratch_bytes": str(SCRATCH_BYTES), "worker__heartbeat_s": "0.1", "log__level": "warning"}
    async with worker(store, tmp_path, **settings) as (process, stage, worker_id):
        floor = Floor(stage, worker_id)
        await asyncio.gather(*(floor.healthy(slot) for slot in range(SLOTS)))
        fds, resident_bytes = held_by(process.pid)
        beats, begun_s = await _beats(store, worker_id), time.monotonic()

        await asyncio.gather(*map(floor.tell, FAULTS))

        await eventually(lambda: held_by(process.pid)[0] == fds, f"{fds} descriptors as before")
        assert held_by(process.pid)[1] - resident_bytes < GROWTH_BYTES
        # the heartbeat went on through all of it, also while a child held its interpreter lock
        assert await _beats(store, worker_id) - beats > (time.monotonic() - begun_s) / LEASE_S
        assert not _found(tmp_path, "outside.txt")


def _found(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name))


async def _beats(store: Store, worker_id: str) -> int:
    return int((await store.workers(POOL))[worker_id]["b"])


def test_a_folder_that_became_a_link_or_is_gone_is_not_used_again(tmp_path: Path) -> None:
    """The next job would write where author code of another one wanted it to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "elsewhere")
    assert is_empty(tmp_path / "elsewhere")
    assert not is_empty(tmp_path / "scratch")
    assert not is_empty(tmp_path / "gone")
    assert not is_empty(tmp_path)
