"""Children as processes: what they inherit, what they leave behind, and that nobody outlives a killed supervisor."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import uvloop

from services.gpu_worker.process.child_log import FILE_LIMIT_BYTES, ChildLog
from services.gpu_worker.process.child_process import ChildSpec, spawn
from services.gpu_worker.process.encoding import encode
from services.gpu_worker.process.frames import Failed, Frame, Milestone, Progress
from services.gpu_worker.slots.outcome import Verdict
from tests.gpu_worker.rig import PATIENCE_S, Recorder, alive, environment, eventually, model, rig

LOOK_AROUND = """
import os, sys
def run(model, inputs, job):
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    opened = [os.readlink(link) for link in links if os.path.exists(link)]
    ours = [name for name in ("services", "contracts") if name in sys.modules]
    leads = os.getpgrp() == os.getpid()
    return {"environment": list(os.environ), "opened": opened, "ours": ours, "leads": leads, "cwd": os.getcwd()}
"""
SPEAKS_EARLY = """
import pathlib, threading
def prepare():
    threading.Timer(0.2, pathlib.Path({marker!r}).touch).start()  # when this has returned and was reported
def run(model, inputs, job):
    return None
"""
BREAKS_THE_PROTOCOL = """
import os
def run(model, inputs, job):
    fd = int(__import__("sys").argv[1])
    os.write(fd, bytes.fromhex(inputs["hex"]))
    while True:
        __import__("time").sleep(1)
"""
HEARS_FIRST = """
import threading, time
def load(device, prepared):  # is over once the thread that hears cancels has heard one
    of_threads = [getattr(getattr(thread, "_target", None), "__self__", None) for thread in threading.enumerate()]
    (cancels,) = [each for each in of_threads if type(each).__name__ == "Cancels"]
    while not cancels._early:
        time.sleep(0.001)
def run(model, inputs, job):
    raise ValueError
"""
LATE = """
import threading, time
def run(model, inputs, job):
    def talk():
        while True:
            job.progress(1, 2, phase=str(time.monotonic()))
    if inputs.get("talk"):
        threading.Thread(target=talk, daemon=True).start()
    return {}
"""
HOST = """
import asyncio, sys
from collections.abc import Mapping
from pathlib import Path
from tests.gpu_worker.rig import Recorder, model, rig
from services.gpu_worker.process.frames import Progress
async def main():
    async with rig(Path(sys.argv[1])) as own:
        attempt = own.attempt(model(sys.argv[2]), then="work")
        recorder, running = own.begin(attempt)
        await recorder.saw(Progress)
        pids = [pid for frame in recorder.telemetry for pid in (getattr(frame, "data", None) or {}).get("pids", [])]
        print(own.slot.child_pid, *pids, flush=True)
        await running
asyncio.run(main())
"""


async def test_a_child_sees_a_listed_environment_and_no_descriptor_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ADMIN__KEY_FILE", "/secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (tmp_path / "look.py").write_text(LOOK_AROUND)
    with (tmp_path / "ours").open("w"):
        async with rig(tmp_path) as own:
            attempt = own.attempt(model("echo", entry=tmp_path / "look.py", env={"MINE": "1"}))
            outcome = await own.slot.run(attempt, Recorder())
    assert outcome.result is not None
    names = set(outcome.result["environment"])
    assert "MINE" in names
    assert not {name for name in names if name.startswith(("HEADRACE", "AWS", "PYTEST"))}
    assert not [path for path in outcome.result["opened"] if path.endswith("/ours")]
    assert outcome.result["ours"] == []
    assert outcome.result["leads"] is True
    assert outcome.result["cwd"] == str(attempt.scratch)


@pytest.mark.parametrize("hex_", ["7fffffff", "00000002" + b"[]".hex(), "00000004" + b"\xff\xff\xff\xff".hex()])
async def test_a_child_that_breaks_the_protocol_is_ended_and_replaced(tmp_path: Path, hex_: str) -> None:
    (tmp_path / "broken.py").write_text(BREAKS_THE_PROTOCOL)
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("echo", entry=tmp_path / "broken.py"), hex=hex_)
        outcome = await asyncio.wait_for(own.slot.run(attempt, Recorder()), PATIENCE_S)
        assert (outcome.code, outcome.killed_child) == ("child_crashed", True)
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


async def test_half_a_frame_and_then_death_is_a_death(tmp_path: Path) -> None:
    source = BREAKS_THE_PROTOCOL.replace("while True", "os._exit(4)\n    while True")
    (tmp_path / "half.py").write_text(source)
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("echo", entry=tmp_path / "half.py"), hex="00000400" + b'{"ev"'.hex())
        outcome = await asyncio.wait_for(own.slot.run(attempt, Recorder()), PATIENCE_S)
        assert (outcome.code, outcome.exit_code) == ("child_exited", 4)


async def test_what_a_thread_says_after_the_end_reaches_nobody(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    async with rig(tmp_path) as own:
        spec = model("echo", entry=tmp_path / "late.py")
        await own.slot.run(own.attempt(spec, talk=1), Recorder())
        for _ in range(20):
            recorder = Recorder()
            await own.slot.run(own.attempt(spec), recorder)
            assert recorder.telemetry == []


async def test_a_job_is_never_run_for_a_cancel_that_came_first(tmp_path: Path) -> None:
    """Field case 53: the child itself looks again just before the handler starts."""
    heard: list[Frame] = []
    got = asyncio.Event()

    def on_frame(frame: Frame) -> None:
        heard.append(frame)
        got.set()

    (tmp_path / "fails.py").write_text(HEARS_FIRST)
    spec = ChildSpec(tmp_path / "fails.py", "", environment({}))
    child = spawn(spec, on_frame, print)
    await child.connect()
    run = {"op": "run", "job": "job_1", "fence": 1, "dir": str(tmp_path), "inputs": {}}
    child.send(encode({"op": "load", "device": {"kind": "cpu", "index": 0, "bytes": 1}, "result_bytes": 1000}))
    child.cancel(encode({"op": "cancel", "job": "job_1", "fence": 1}))
    child.send(encode(run) + encode({**run, "fence": 2}))
    async with asyncio.timeout(PATIENCE_S):
        while not any(isinstance(frame, Failed) for frame in heard):
            got.clear()
            await got.wait()
    child.signal_group(signal.SIGKILL)
    await child.gone
    ends = [(type(f).__name__, f.fence) for f in heard if hasattr(f, "fence")]
    assert ends == [("Cancelled", 1), ("Failed", 2)]


def test_what_a_child_said_before_it_was_heard_is_not_lost(tmp_path: Path) -> None:
    """On uvloop, as in production, frames that wait in a socket are handled before the one that connects goes on."""
    spoken = tmp_path / "spoken"
    (tmp_path / "quick.py").write_text(SPEAKS_EARLY.format(marker=str(spoken)))

    def keep_the_loop_busy() -> None:
        while not spoken.exists():
            time.sleep(0.01)

    def late(extra: Mapping[str, str]) -> dict[str, str]:  # asked just before the child is started
        asyncio.get_running_loop().call_soon(keep_the_loop_busy)
        return environment(extra)

    async def run() -> Verdict:
        async with rig(tmp_path, environment=late) as own, asyncio.timeout(PATIENCE_S):
            spec = model("echo", entry=tmp_path / "quick.py")
            return (await own.slot.run(own.attempt(spec), Recorder())).verdict

    assert uvloop.run(run()) is Verdict.COMPLETED


@pytest.mark.parametrize("name", ["hang", "hang_gil", "ignores_cancel", "forks"])
async def test_nobody_outlives_a_killed_supervisor(tmp_path: Path, name: str) -> None:
    """No orphan survives kill -9 of its parent, not even one that holds the interpreter lock, nor its helpers."""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(tmp_path), name, stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    pids = [int(pid) for pid in (await asyncio.wait_for(host.stdout.readline(), PATIENCE_S)).split()]
    assert len(pids) == (4 if name == "forks" else 1)
    assert all(map(alive, pids))

    host.kill()
    await host.wait()

    await eventually(lambda: not any(map(alive, pids)), "all are gone", within_s=5)


async def test_replaced_children_leave_no_descriptors_behind(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        await own.run("crash")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            await own.run("crash")
        assert len(os.listdir("/proc/self/fd")) == before


async def test_a_log_keeps_its_head_on_disk_and_its_tail_in_memory(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    log = ChildLog(read_fd)
    log.begin(tmp_path / "log")
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, write_all, write_fd, b"head" + b"x" * (3 << 20) + b"tail")
    await eventually(lambda: log.tail.endswith("tail"), "all is read")
    log.close()
    content = (tmp_path / "log").read_bytes()
    assert content.startswith(b"headxxx")
    assert FILE_LIMIT_BYTES <= len(content) < FILE_LIMIT_BYTES + 100
    assert len(log.tail) == 64 << 10


def write_all(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)


async def test_each_job_has_its_own_log(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text("def run(model, inputs, job):\n    print(inputs['word'])\n")
    async with rig(tmp_path) as own:
        spec = model("echo", entry=tmp_path / "prints.py")
        attempts = [own.attempt(spec, word=word) for word in ("one", "two", "three")]
        for attempt in attempts:
            await own.slot.run(attempt, Recorder())
    assert [attempt.log_path.read_text() for attempt in attempts] == ["one\n", "two\n", "three\n"]


async def test_data_that_does_not_fit_an_event_is_cut_and_marked(tmp_path: Path) -> None:
    """Field case 11: a 5 MB progress report or milestone becomes a mark, and the job goes on."""
    source = (
        "def run(model, inputs, job):\n"
        "    job.progress(1, 1, phase='p' * 5_000_000, blob='x' * 5_000_000)\n"
        "    job.milestone('m' * 1000, blob='x' * 5_000_000)\n"
        "    job.milestone('odd', value={1, 2})\n"
        "    for _ in range(1000):\n"
        "        job.milestone('many')\n"
    )
    (tmp_path / "big.py").write_text(source)
    async with rig(tmp_path) as own:
        recorder = Recorder()
        outcome = await own.slot.run(own.attempt(model("echo", entry=tmp_path / "big.py")), recorder)
    assert outcome.verdict is Verdict.COMPLETED
    assert recorder.of(Progress)[0].data["truncated"] is True
    assert len(recorder.of(Progress)[0].phase or "") == 64
    assert recorder.of(Milestone)[0].data["reason"] == "too_large"
    assert recorder.of(Milestone)[1].data["reason"] == "not_serializable"
    assert len(recorder.of(Milestone)) == 500
    assert outcome.dropped_milestones == 502
    assert json.dumps(dict(recorder.of(Milestone)[0].data))
