"""How a running job is stopped: asked, told by SIGTERM, killed with its whole group, and only then is there a next."""

from pathlib import Path

import pytest

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store, Word
from tests.gpu_worker.stage import Staff, staff

#: Notes each step of its own end and goes on, with a helper beside it; later jobs look whether they are still there.
STUBBORN = """
import os, signal, subprocess, time
def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
def run(model, inputs, job):
    if "look" in inputs:
        return {"alive": [pid for pid in map(int, open(inputs["look"]).read().split()) if alive(pid)]}
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", file=open(inputs["notes"], "a")))
    helper = subprocess.Popen(["sleep", "600"]).pid
    print(os.getpid(), helper, file=open(inputs["pids"], "w"))
    job.progress(0, 1)
    while not job.cancelled:
        time.sleep(0.01)
    print("asked", file=open(inputs["notes"], "a"))
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("following", ["echo", "noop"], ids=["the same model", "another model"])
@pytest.mark.parametrize("ended_by", ["cancel", "timeout"])
async def test_the_next_job_starts_when_the_whole_group_of_the_old_one_is_gone(
    store: Store, tmp_path: Path, following: str, ended_by: str
) -> None:
    """Field case 51: nothing is started on the device before the old process was killed; it lies on deck meanwhile."""
    notes, pids = tmp_path / "notes", tmp_path / "pids"
    async with staff(store, tmp_path) as own:
        for model in ("echo", "noop"):
            own.serve(model, STUBBORN)
        limit = {"timeout_ms": 400, "max_attempts": 1} if ended_by == "timeout" else {}
        old = await own.give("echo", notes=str(notes), pids=str(pids), **limit)
        await own.stage.saw("job.progress", old)
        new = await own.stage.admit(following, look=str(pids))
        assert await own.stage.offer(new, own.worker_id) is Word.APPLIED
        if ended_by == "cancel":
            assert await own.stage.cancel(old) is Word.APPLIED

        assert (await own.stage.ended(new)).status is JobStatus.COMPLETED

        assert await own.stage.results(new) == [{"result": {"alive": []}}]
        assert notes.read_text().split() == ["asked", "SIGTERM"]
        await ended_as(own, old, ended_by)
        assert (await own.stage.state(new)).attempt == 1


async def ended_as(own: Staff, job_id: str, ended_by: str) -> None:
    """Check what the log says of a job that had to be killed."""
    await own.stage.ended(job_id)
    entries = {entry.type: entry.event() for entry in (await own.stage.history(job_id)).entries}
    if ended_by == "cancel":
        cancelled = entries["job.cancelled"]
        assert isinstance(cancelled, ev.JobCancelled)
        assert cancelled.how == "killed"
    else:
        failed = entries["job.failed"]
        assert isinstance(failed, ev.JobFailed)
        assert failed.error.code == "execution_timeout"
