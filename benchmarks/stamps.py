"""What the stamp pipeline said of a job, read back from the store. Raises TimeoutError when jobs do not finish."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rig import POOL
from contracts.store import Store
from contracts.store.jobs import History

POLL_S = 0.02
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Stamped:
    """One finished job: when author code ran, by the monotonic clock of the host, and its place in the log."""

    job_id: str
    began_ns: int
    ended_ns: int
    slot: str
    assigned: str
    released: str


async def stamped(url: str, job_ids: Sequence[str]) -> list[Stamped]:
    """Wait for the jobs and return them in the order in which they ran."""
    store = Store(url)
    try:
        found = [await finished(store, job_id) for job_id in job_ids]
    finally:
        await store.aclose()
    return sorted((_read(history) for history in found), key=lambda one: one.began_ns)


async def finished(store: Store, job_id: str) -> History:
    """Wait until the job is completed and return its history."""
    for _ in range(int(LIMIT_S / POLL_S)):
        history = await store.jobs.history(POOL, job_id, with_body=True)
        if history is not None and history.state.status == "completed":
            return history
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"{job_id} was not completed in {LIMIT_S:.0f} s: {history.state if history else 'unknown'}")


def _read(history: History) -> Stamped:
    lines = [json.loads(line) for line in history.body.splitlines()]
    result = next(line["result"] for line in lines if "result" in line)
    at = {entry.type: entry for entry in history.entries}
    released = at.get("job.device_released") or at["job.completed"]
    started = at["job.started"].raw_data()
    return Stamped(
        history.state.id, result["beganNs"], result["endedNs"], f"{started['workerId']}/{started['slot']}",
        at["job.assigned"].position, released.position,
    )  # fmt: skip
