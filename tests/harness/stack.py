"""One `headrace up` of a test's own, driven over HTTP and watched through its log.

Promises the settings below, a short folder of its own, and that `stop` tells how the process ended. `kill`, `pause`
and `resume` hit the processes that run now, not those that ran at the start: `up` restarts what dies.
"""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import IO, Any

import aiohttp
import orjson

from contracts.store import Store, keys
from contracts.wire import Entry
from tests.harness.audit import Verdict, audit
from tests.harness.processes import Process, end_all, processes_of
from tests.harness.tail import LIMIT_S, LogTail, eventually

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "tests/pipelines/pipelines.toml"
POOL = "default"
START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0
LEASE_S = 3.0

SETTINGS = {
    "HEADRACE_WORKER__HEARTBEAT_S": "0.5",
    "HEADRACE_WORKER__LEASE_S": f"{LEASE_S:g}",
    "HEADRACE_WORKER__DRAIN_S": "2",
    "HEADRACE_SCHEDULER__LEASE_S": "2",
    "HEADRACE_RETRY__BASE_S": "0.2",
    "HEADRACE_WEBHOOK__TIMEOUT_S": "2",
    "HEADRACE_WEBHOOK__SCHEDULE": "0,0.3,0.6,1,1,1,1,2,2,2,2,2,2,2,2",
    "HEADRACE_WEBHOOK__ALLOW_PRIVATE": "loopback",
}
_tenants = count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `json` is {} when the body is none."""

    status: int
    headers: dict[str, str]
    json: Any


class Stack:
    """Start it, enter `watched()` inside a test's event loop, stop it; it may be watched again by the next test."""

    python_path = str(ROOT)

    def __init__(
        self, *, store_url: str | None = None, workers: int = 1, devices: str = "cpu",
        settings: dict[str, str] | None = None, log_url: str | None = None,
    ) -> None:  # fmt: skip
        """`store_url`: a server of the test's own; `log_url`: the way to it that no proxy disturbs."""
        self.folder = Path(tempfile.mkdtemp(prefix="hr-"))
        self.settings = SETTINGS | (settings or {}) | ({"HEADRACE_REDIS__URL": store_url} if store_url else {})
        self.arguments = ["--port", "0", "--data-dir", str(self.folder / "d"), "--pipelines", str(PIPELINES),
                          "--workers", str(workers), "--devices", devices]  # fmt: skip
        self.ready: dict[str, Any] = {}
        self.jobs: list[str] = []
        self._log_url = log_url or store_url
        self._heard = 0
        self._up: subprocess.Popen[bytes] | None = None
        self._spawned: list[subprocess.Popen[bytes]] = []
        self._output: IO[bytes] = (self.folder / "up.log").open("ab")

    # -- the process

    def environment(self) -> dict[str, str]:
        """What `up` is started with."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        return plain | self.settings

    def start(self) -> None:
        """Start it and return when it said that it is ready."""
        command = [sys.executable, "-m", "headrace", "up", "--json", *self.arguments]
        self._up = subprocess.Popen(
            command, cwd=ROOT, env=self.environment(), stdout=subprocess.PIPE, stderr=self._output,
            start_new_session=True,
        )  # fmt: skip
        assert self._up.stdout is not None
        readable, _, _ = select.select([self._up.stdout], [], [], START_LIMIT_S)
        line = self._up.stdout.readline() if readable else b""
        if not line:
            raise AssertionError(f"the stack is not ready:\n{self.output()}")
        self.ready = orjson.loads(line)
        self.store_url: str = self._log_url or self.ready["redis"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it; returns its exit status. What was spawned beside it is stopped first."""
        self.end_spawned()
        up, self._up = self._up, None
        return _end(up, number) if up else 0

    def end_spawned(self) -> None:
        """Ask what was spawned beside it to end, and wait for that."""
        for process in self._spawned:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        while self._spawned:
            _end(self._spawned.pop(), signal.SIGTERM)

    def kill_up(self) -> None:
        """SIGKILL to `headrace up` itself; `stop` has nothing left to do then."""
        assert self._up is not None
        self._up.kill()
        self._up.wait()
        self._up = None

    def discard(self) -> list[Process]:
        """Remove everything; returns the processes that should not have been there any more."""
        left = end_all(self.folder)
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def said(self) -> str:
        """What it and its services wrote to standard error since `watched` was entered."""
        return (self.folder / "up.log").read_bytes()[self._heard :].decode(errors="replace")

    def output(self) -> str:
        """The end of that, for a failure's message."""
        return self.said()[-6000:]

    def leftovers(self) -> list[Process]:
        """Processes that still belong to it: services, store, author code and what author code started."""
        return processes_of(self.folder)

    # -- its services

    def processes(self, service: str | None = None) -> list[Process]:
        """Processes of the stack that run a service now, in the order of their pids; None: of any."""
        return sorted(
            (
                process
                for process in processes_of(self.folder)
                if process.service and service in (process.service, None)
            ),
            key=lambda process: process.pid,
        )

    def children(self, supervisor: int | None = None) -> list[Process]:
        """Processes that run author code, of one supervisor or of all."""
        found = (process for process in processes_of(self.folder) if process.is_child)
        return [process for process in found if supervisor in (process.parent, None)]

    def signal(self, service: str, number: int) -> list[int]:
        """Send a signal to all processes of a service that run now; returns their pids."""
        found = self.processes(service)
        assert found, f"no {service} is running:\n{self.output()}"
        for process in found:
            process.send(number)
        return [process.pid for process in found]

    def kill(self, service: str) -> list[int]:
        """SIGKILL to all processes of a service; returns their pids."""
        return self.signal(service, signal.SIGKILL)

    def spawn(self, service: str, **settings: str) -> subprocess.Popen[bytes]:
        """Run one more process of a service, that nobody restarts, with the stack's own settings and these."""
        environment = self.environment() | {
            "HEADRACE_REDIS__URL": self.ready["redis"],
            "HEADRACE_DATA_DIR": str(self.folder / "d"),
            "HEADRACE_PIPELINES": str(PIPELINES),
            "HEADRACE_WORKER__DEVICES": self.arguments[-1],
            "HEADRACE_INGEST__PORT": "0",
            "PYTHONPATH": self.python_path,
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"services.{service}"], cwd=ROOT, env=environment | settings,
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True,
        )  # fmt: skip
        self._spawned.append(process)
        return process

    # -- over HTTP

    @contextlib.asynccontextmanager
    async def watched(self, *, own_tenant: bool = False) -> AsyncIterator["Stack"]:
        """Open what a test needs: an HTTP session, the store, and the log from here on."""
        self.jobs, self.key = [], self.ready["apiKey"]
        self._heard = (self.folder / "up.log").stat().st_size
        self.store = Store(self.store_url)
        self.log = LogTail(self.store_url, POOL)
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as self.http:
            await self.log.open()
            if own_tenant:
                self.key = await self.make_tenant()
            try:
                yield self
            finally:
                await asyncio.to_thread(self.end_spawned)
                await self.log.close()
                await self.store.aclose()

    async def request(
        self, method: str, path: str, body: object = None, *, key: str | None = None, url: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Send one request with the tenant's key, or another; JSON in, JSON out."""
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json", **(headers or {})}
        data = None if body is None else orjson.dumps(body)
        async with self.http.request(method, (url or self.ready["url"]) + path, data=data, headers=headers) as reply:
            raw = await reply.read()
            is_json = "json" in reply.headers.get("Content-Type", "")
            return Answer(reply.status, dict(reply.headers), orjson.loads(raw) if raw and is_json else {})

    async def admin(self, method: str, path: str, body: object = None) -> Answer:
        """Send one request with the operator's key."""
        return await self.request(method, f"/admin/v1{path}", body, key=self.ready["adminKey"])

    async def make_tenant(self, **fields: object) -> str:
        """Make a tenant and return a key of it."""
        tenant = f"t_{os.getpid()}-{next(_tenants)}"
        made = await self.admin("POST", "/tenants", {"id": tenant, **fields})
        assert made.status in (200, 201), made
        scopes = ["jobs:write", "jobs:read", "events:read", "models:read"]
        return str((await self.admin("POST", f"/tenants/{tenant}/keys", {"scopes": scopes})).json["key"])

    async def post_job(
        self, model: str, inputs: dict[str, Any] | None = None, *, key: str | None = None, again: str = "",
        url: str | None = None, **fields: object,
    ) -> Answer:  # fmt: skip
        """POST one job; `again` is an Idempotency-Key, `fields` are fields of the body."""
        body = {"userId": "u", "prompt": "p", "model": model, "input": inputs or {}, **fields}
        headers = {"Idempotency-Key": f'"{again}"'} if again else {}
        return await self.request("POST", "/v1/jobs", body, key=key, url=url, headers=headers)

    async def submit(self, model: str, inputs: dict[str, Any] | None = None, **fields: Any) -> str:
        """POST one job that must be accepted; returns its id."""
        answer = await self.post_job(model, inputs, **fields)
        assert answer.status == 201, answer
        self.jobs.append(answer.json["id"])
        return self.jobs[-1]

    @staticmethod
    def later(seconds: float) -> str:
        """Return the time in so many seconds, as the API wants it; store and tests run on one host."""
        return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()

    async def get(self, job_id: str) -> dict[str, Any]:
        """Return the job as the API shows it."""
        answer = await self.request("GET", f"/v1/jobs/{job_id}")
        assert answer.status == 200, answer
        return dict(answer.json)

    async def cancel(self, job_id: str) -> Answer:
        """Ask for the job's cancellation."""
        return await self.request("POST", f"/v1/jobs/{job_id}/cancel")

    # -- its log

    async def wait_for(self, subject: str, *types: str, count: int = 1, limit_s: float = LIMIT_S) -> Entry:
        """Return the `count`-th event of one of these types about a job, as soon as it is in the log."""
        return await self.log.wait_for(subject, *types, count=count, limit_s=limit_s)

    async def wait_for_ends(self, *job_ids: str, limit_s: float = LIMIT_S) -> list[str]:
        """Wait until these jobs, or all of this test, have ended; returns the events that ended them."""
        waited = job_ids or tuple(self.jobs)
        await self.log.wait_until(lambda: all(map(self.log.has_ended, waited)), f"ends of {len(waited)} jobs", limit_s)
        return [self.log.of(job_id)[-1].type for job_id in waited]

    async def audit(self) -> Verdict:
        """Judge the log; raises when a promise is broken or a job of this test has not ended."""
        verdict = await audit(self.store, POOL, self.jobs, self.log.begin)
        verdict.must_hold()
        return verdict

    async def store_ms(self) -> int:
        """Return the store's time, the only one that counts."""
        seconds, micros = await self.store.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def worker_of(self, job_id: str) -> Process:
        """Return the supervisor that the job's newest attempt runs on."""
        started = self.log.of(job_id, "job.started")[-1].raw_data()
        pid = int((await self.store.workers(POOL))[str(started["workerId"])]["pid"])
        return next(process for process in self.processes("gpu_worker") if process.pid == pid)

    async def wait_until_quiet(self, workers: int) -> None:
        """Wait until nothing of the last test is left: all services up, so many workers open, no job under way."""
        for process in self.processes():
            process.send(signal.SIGCONT)
        await self.wait_ready()

        async def quiet() -> bool:
            known = await self.store.workers(POOL)
            alive = {process.pid for process in self.processes("gpu_worker")}
            usage = await self.store.client.hget(keys.usage(POOL), "jobs")
            return (
                len(known) == len(alive) == workers
                and int(usage or 0) == 0
                and all(int(fields["pid"]) in alive and fields.get("state") == "open" for fields in known.values())
            )

        await eventually(quiet, f"{workers} workers and no jobs")

    async def wait_ready(self, limit_s: float = LIMIT_S) -> None:
        """Wait until ingest answers that it is ready."""

        async def ready() -> bool:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                return (await self.request("GET", "/readyz")).status == 200
            return False

        await eventually(ready, "/readyz is green", limit_s)


def _end(process: "subprocess.Popen[bytes]", number: int) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
    try:
        return process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"{process.args} did not stop within {STOP_LIMIT_S:g} s") from None
