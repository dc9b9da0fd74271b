"""The child: loads one author's pipeline and runs one attempt, or one batch of them, at a time for its supervisor.

Started as `<interpreter> -I -u -X faulthandler main.py <3 descriptors> <author file>`; the frames
are in PROTOCOL.md. Promises: every attempt of a frame is answered by one end frame or by the death of this process;
a cancel is seen while author code is busy; nothing in this process group outlives the supervisor. Standard
library only: `<interpreter>` may belong to another environment. Never imported. Does not promise to survive
author code.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import resource
import sys
import threading
import time
import types
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .channel import Cancels, Channel

OWN_PACKAGE = "headrace_child"
STACK_BYTES = 8 << 20


def load_file(name: str, path: str) -> Any:
    """Import the file at `path` as module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_own(name: str) -> Any:
    """Import a file of this folder, as part of a package whose name stands in no author's way."""
    if OWN_PACKAGE not in sys.modules:
        package = sys.modules[OWN_PACKAGE] = types.ModuleType(OWN_PACKAGE)
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    return importlib.import_module(f"{OWN_PACKAGE}.{name}")


author, Device, died_of = load_own("job"), load_own("device").Device, load_own("ends").died_of
lines = load_own("channel")


class Loaded(NamedTuple):
    """An author's pipeline, ready to run; `model` is what its load() returned."""

    module: Any
    model: Any
    device: Any
    result_bytes: int


def start(channel: Channel, path: str) -> Loaded:
    """Import, prepare, wait for the device, load. Or one frame, exit 3."""
    try:
        module, prepared = prepare(channel, path)
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
        channel.send({**died_of(error, "model_load_failed"), "ev": "load_failed"})
        os._exit(3)
    channel.send(with_allocator(ready, device))
    return Loaded(module, model, device, order["result_bytes"])


def prepare(channel: Channel, path: str) -> tuple[Any, Any]:
    """Import the author's file and have it do what needs no device; returns the module and what it prepared."""
    begun = time.monotonic()
    sys.path.insert(0, os.path.dirname(path))
    module = load_file("headrace_pipeline", path)
    if not callable(getattr(module, "run", None)):
        raise TypeError(f"{os.path.basename(path)} has no function run(model, inputs, job)")
    prepared = module.prepare() if hasattr(module, "prepare") else None
    channel.send({"ev": "prepared", "ms": elapsed_ms(begun)})
    return module, prepared


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
    loaded = start(channel, path)
    home = os.getcwd()
    while True:
        frame = channel.receive()
        if frame["op"] == "close":
            if hasattr(loaded.module, "close"):
                loaded.module.close(loaded.model)
            return
        if frame["op"] == "slice":
            loaded.device.resize(frame["bytes"], frame["context_bytes"])
            continue
        loaded.device.begin_pass()
        ended_well = (run_batch if frame["op"] == "run_batch" else run)(channel, cancels, loaded, frame)
        os.chdir(home)
        if not ended_well:
            release_memory()


def run(channel: Channel, cancels: Cancels, loaded: Loaded, frame: Any) -> bool:
    """Answer a `run` frame by an end frame; returns whether the attempt is done."""
    job = author.Job(frame, channel.send)
    cancels.watch((job,))
    os.chdir(job.dir)  # a relative path of the author's lands in scratch, not beside the code
    begun = time.perf_counter()
    end = author.attempt(loaded.module.run, loaded.model, job, loaded.result_bytes)
    channel.end_fork()
    run_s = time.perf_counter() - begun
    job._end(with_allocator(end, loaded.device), run_s)
    return bool(end["ev"] == "done")


def run_batch(channel: Channel, cancels: Cancels, loaded: Loaded, frame: Any) -> bool:
    """Answer a `run_batch` frame: an end frame for each member, then `batch_over`; returns whether all are done."""
    jobs: Any = []
    jobs += [author.Member(member, channel.send, jobs) for member in frame["members"]]
    cancels.watch(jobs)
    os.chdir(jobs[0].dir)
    begun = time.perf_counter()
    authors = getattr(loaded.module, "run_batch", author.no_run_batch)
    ends = author.attempt_batch(authors, loaded.model, jobs, loaded.result_bytes)
    channel.end_fork()
    run_s = time.perf_counter() - begun
    first, told = jobs[0]._key, list(zip(jobs, ends))  # noqa: B905 - `strict` is newer than some interpreters
    cancels.watch(())
    jobs.clear()  # the pass is over: a thread of the author is not stopped by the others' cancels
    for job, end in told:
        if not job._over:
            job._end(end, run_s)
    channel.send(with_allocator({"ev": "batch_over", **first, "run_ms": round(run_s * 1000, 3)}, loaded.device))
    return all(end["ev"] == "done" for end in ends)


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
    load_own("lifeline").arm_lifeline(lifeline_fd)
    channel, cancels = lines.Channel(control_fd), lines.Cancels(cancel_fd)
    threading.Thread(target=lines.beat, args=(channel,), daemon=True).start()
    status = 1
    try:
        serve(channel, cancels, os.path.abspath(sys.argv[4]))
        status = 0
    except BaseException as error:
        died_of(error, "internal")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # a thread of the author must not keep a closed child alive


if __name__ == "__main__":
    main()
