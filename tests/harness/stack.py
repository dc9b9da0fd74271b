"""A whole stack of a test's own, driven over HTTP and watched through its log."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import aiohttp
import orjson

from contracts.archive import Archive
from contracts.artifacts.local import LocalObjects
from contracts.audit import Beside, verify
from contracts.store import Store, keys
from contracts.usage.audit import UsageAudit
from contracts.wire import Entry
from headrace.stack.plan import SERVICES
from services.scheduler.audit import SnapshotAudit
from tests.harness.audit import Verdict, audit
from tests.harness.processes import Process
from tests.harness.tail import LIMIT_S, LogTail, eventually
from tests.harness.up import Up

POOL = "default"
_tenants = count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `json` is {} when the body is none."""

    status: int
    headers: dict[str, str]
    json: Any


class Stack(Up):
    """Start it, enter `watched()` inside a test's event loop, stop it; it may be watched again by the next test."""

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator["Stack"]:
        """Open what a test needs: an HTTP session, the store, and the log from here on."""
        self.jobs, self.key = [], self.ready["apiKey"]
        self._heard = (self.folder / "up.log").stat().st_size
        self.store = Store(self.store_url)
        self.log = LogTail(self.store_url, POOL)
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as self.http:
            await self.log.open()
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
        scopes = ["jobs:write", "jobs:read", "events:read", "models:read", "webhooks:read", "webhooks:write"]
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
        archive = Archive(self.store, LocalObjects(self.folder / "d" / "archive"))
        beside: list[Beside] = [SnapshotAudit(self.store, POOL), UsageAudit(self.store, POOL)]
        verified = await verify(self.store, archive, POOL, beside=beside)
        assert verified.ok, (verified.findings.kept, [each.sample for each in verified.projections])
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
            services = {process.service for process in self.processes()}
            alive = {process.pid for process in self.processes("gpu_worker")}
            usage = await self.store.client.hget(keys.usage(POOL), "jobs")
            return (
                len(services) == len(SERVICES)
                and len(known) == len(alive) == workers
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
