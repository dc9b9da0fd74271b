"""The child: loads one author's pipeline and runs one attempt, or one batch of them, at a time for its supervisor.

Started as `<interpreter> -I -u -X faulthandler main.py <3 descriptors> <author file>`; the frames
are in PROTOCOL.md. Promises: every attempt of a frame is answered by one end frame or by the death of this process;
a cancel is seen while author code is busy; nothing in this process group outlives the supervisor. Standard
library only: `<interpreter>` may belong to another environment. Never imported. Does not promise to survive
author code.
"""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from typing import Any

HEADER = struct.Struct("!I")
HEARTBEAT_S = 1.0
STACK_BYTES = 8 << 20
EARLY_CANCELS = 1_000  # that are remembered until their attempts are here


def load_file(name: str, path: str) -> Any:
    """Import the file at `path` as module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


author = load_file("headrace_job", os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.py"))
Device = author.load_beside("device").Device


class Channel:
    """Length-prefixed JSON over the inherited socket; any thread may send, one reads."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def send(self, frame: dict[str, Any], lossy: bool = False) -> None:
        """Write one frame; a lossy one is dropped rather than let author code wait for a busy supervisor."""
        if os.getpid() != self._pid:  # a fork made by author code holds a copy of this socket
            return
        body = author.encode(frame)
        wire = HEADER.pack(len(body)) + body
        with self._lock:
            try:
                sent = self._socket.send(wire, socket.MSG_DONTWAIT) if lossy else 0
            except BlockingIOError:
                return
            self._socket.sendall(wire[sent:])

    def receive(self) -> Any:
        """Return the next frame; without a supervisor there is none, and no reason to go on."""
        head = self._file.read(HEADER.size)
        body = self._file.read(HEADER.unpack(head)[0]) if len(head) == HEADER.size else b""
        return json.loads(body) if body else die_with_group()


class Cancels:
    """The thread that hears cancels while the main thread is busy with author code, and the end of the supervisor.

    They come over a socket of their own: the main thread reads `run` frames itself, as a hand-over between threads
    would cost each job more than all else that happens here.
    """

    def __init__(self, fd: int) -> None:
        self._channel = Channel(fd)
        self._jobs: Any = ()
        self._early: deque[Any] = deque(maxlen=EARLY_CANCELS)
        threading.Thread(target=self._read, daemon=True).start()

    def watch(self, jobs: Any) -> None:
        """Mark each of `jobs` when it is cancelled, also if the cancel was here before the job."""
        self._jobs = jobs  # first: a cancel that comes from here on is marked by the thread
        early = list(self._early)
        self._early.clear()
        for job in jobs if early else ():
            job.cancelled = job.cancelled or job._key in early

    def _read(self) -> None:
        while True:
            frame = self._channel.receive()
            key = {"job": frame["job"], "fence": frame["fence"]}
            self._early.append(key)
            for job in self._jobs:
                job.cancelled = job.cancelled or job._key == key


def die_with_group() -> None:
    """End this process and the author's helpers: nobody is left to use what they compute."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def arm_lifeline(fd: int) -> None:
    """Have the kernel SIGKILL this group once the supervisor's end closes.

    The thread that reads cancels cannot do it alone: it is blind while author code holds the GIL. Where the kernel
    cannot (not Linux), the end of its socket has to do.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        return
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:  # it closed before the signal was armed
        die_with_group()


def beat(channel: Channel) -> None:
    """Show that the GIL is free: a metric, never a reason to kill."""
    while True:
        time.sleep(HEARTBEAT_S)
        channel.send({"ev": "heartbeat"}, lossy=True)


def start(channel: Channel, path: str) -> Any:
    """Import, prepare, wait for the device, load; return module, model, device, result limit. Or one frame, exit 3."""
    try:
        begun = time.monotonic()
        sys.path.insert(0, os.path.dirname(path))
        module = load_file("headrace_pipeline", path)
        if not callable(getattr(module, "run", None)):
            raise TypeError(f"{os.path.basename(path)} has no function run(model, inputs, job)")
        prepared = module.prepare() if hasattr(module, "prepare") else None
        channel.send({"ev": "prepared", "ms": elapsed_ms(begun)})
        order = channel.receive()
        device = Device(**order["device"])
        device.grant()
        begun = time.monotonic()
        model = module.load(device, prepared) if hasattr(module, "load") else None
        ready: dict[str, Any] = {"ev": "ready", "ms": elapsed_ms(begun)}
        if not device.is_gpu and prepared is not None:  # what is let go here must not hide what load() took
            before, prepared = host_memory(), None
            after = host_memory()
            ready["host"] = {name: max(0, size - after[name]) for name, size in before.items()}
    except BaseException as error:
        channel.send({**author.died_of(error, "model_load_failed"), "ev": "load_failed"})
        os._exit(3)
    channel.send(with_allocator(ready, device))
    return module, model, device, order["result_bytes"]


def host_memory() -> dict[str, int]:
    """Return what this process has asked for and what of it is in memory, as its supervisor measures it."""
    try:
        with open("/proc/self/status") as status:
            figures = dict(line.split(":", 1) for line in status)
        return {"data": int(figures["VmData"].split()[0]) << 10, "resident": int(figures["VmRSS"].split()[0]) << 10}
    except (OSError, KeyError, ValueError):  # not Linux
        return {}


def elapsed_ms(begun_s: float) -> float:
    return round((time.monotonic() - begun_s) * 1000, 3)


def release_memory() -> None:
    """Give back what a failed attempt held, so that the next one starts from the same base."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def with_allocator(frame: Any, device: Any) -> Any:
    """Tell what torch holds of the device at the end of a pass, if anything."""
    if frame.get("lost"):  # no call to the device works any more, and some hang
        return frame
    try:
        told = device.end_pass(failed=frame["ev"] in ("failed", "cancelled"))
    except Exception as error:  # the device is gone: the next pass will say so
        print(f"the allocator cannot be asked: {error}", flush=True)
        told = None
    return frame if told is None else {**frame, "allocator": told}


def serve(channel: Channel, cancels: Cancels, path: str) -> None:
    """Answer `run` and `run_batch` frames one after another until `close`."""
    module, model, device, result_bytes = start(channel, path)
    home, pid = os.getcwd(), os.getpid()
    while True:
        frame = channel.receive()
        if frame["op"] == "close":
            if hasattr(module, "close"):
                module.close(model)
            return
        if frame["op"] == "slice":
            device.resize(frame["bytes"], frame["context_bytes"])
            continue
        device.begin_pass()
        if frame["op"] == "run_batch":
            ends = run_batch(channel, cancels, module, model, device, frame["members"], result_bytes, pid)
        else:
            job = author.Job(frame, channel.send)
            cancels.watch((job,))
            os.chdir(job.dir)  # a relative path of the author's lands in scratch, not beside the code
            begun = time.perf_counter()
            end = author.attempt(module.run, model, job, result_bytes)
            if os.getpid() != pid:  # a fork made by author code came back from run()
                os._exit(0)
            run_s = time.perf_counter() - begun
            job._end(with_allocator(end, device), run_s)
            ends = [end]
        os.chdir(home)
        if any(end["ev"] != "done" for end in ends):
            release_memory()


def run_batch(
    channel: Channel, cancels: Cancels, module: Any, model: Any, device: Any, members: Any, result_bytes: int, pid: int
) -> Any:
    """Answer a `run_batch` frame: an end frame for each member, then `batch_over`."""
    jobs: Any = []
    jobs += [author.Member(member, channel.send, jobs) for member in members]
    cancels.watch(jobs)
    os.chdir(jobs[0].dir)
    begun = time.perf_counter()
    ends = author.attempt_batch(getattr(module, "run_batch", author.no_run_batch), model, jobs, result_bytes)
    if os.getpid() != pid:
        os._exit(0)
    run_s = time.perf_counter() - begun
    first, told = jobs[0]._key, list(zip(jobs, ends))  # noqa: B905 - `strict` is newer than some interpreters
    cancels.watch(())
    jobs.clear()  # the pass is over: a thread of the author is not stopped by the others' cancels
    for job, end in told:
        if not job._over:
            job._end(end, run_s)
    channel.send(with_allocator({"ev": "batch_over", **first, "run_ms": round(run_s * 1000, 3)}, device))
    return ends


def widen_stack() -> None:
    """Give the main thread, Python's own and the author's helpers the usual stack again.

    The limit was low when this process started for the many threads of native libraries, whose default it became.
    """
    threading.stack_size(STACK_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != resource.RLIM_INFINITY and soft < STACK_BYTES:
        wide = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_STACK, (wide, hard))


def main() -> None:
    widen_stack()
    control_fd, cancel_fd, lifeline_fd = map(int, sys.argv[1:4])
    arm_lifeline(lifeline_fd)
    channel, cancels = Channel(control_fd), Cancels(cancel_fd)
    threading.Thread(target=beat, args=(channel,), daemon=True).start()
    status = 1
    try:
        serve(channel, cancels, os.path.abspath(sys.argv[4]))
        status = 0
    except BaseException as error:
        author.died_of(error, "internal")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # a thread of the author must not keep a closed child alive


if __name__ == "__main__":
    main()
