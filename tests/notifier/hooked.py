"""Jobs with a webhook, written straight to a real store, and a notifier beside the test."""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

import orjson
import structlog

from contracts import events as ev
from contracts import ids
from contracts.deliveries import circuit_of
from contracts.events import DEFAULT_WEBHOOK_EVENTS
from contracts.outbound.guard import Outbound
from contracts.outbound.terms import Route
from contracts.retry import Schedule
from contracts.store import Store, keys
from contracts.store.jobs import Limits
from contracts.store.write import Write
from contracts.wire import Entry, decode
from services.notifier.attempt.delivery import Sender
from services.notifier.sending.courier import Courier, Places
from services.notifier.sending.delivering import Plan
from services.notifier.service import Identity, Notifier

POOL = "default"
TENANT = "t_acme"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PUBLIC_URL = "https://gen.example"
SYSTEM = Route()

_numbers = itertools.count(1)


async def make_tenant(store: Store, tenant_id: str = TENANT, secret: str = SECRET) -> None:
    await store.directory.change(
        lambda _: ev.TenantCreated(tenant_id=tenant_id), tenant_id, {f"webhook:{tenant_id}": secret}
    )


async def admit(
    store: Store, url: str | None, *, tenant_id: str = TENANT, events: Sequence[str] = (), pool: str = POOL, **spec
) -> str:
    """Admit a job; without a URL nobody subscribes to it."""
    job_id = ids.mint_job_id(1_764_457_200_000, next(_numbers), store.directory.configuration.pools[pool])
    subscribed = tuple(events or DEFAULT_WEBHOOK_EVENTS) if url else None
    asked = {"prompt": "x", "userId": "u_42", "metadata": {"cart": "9"}, "webhookUrl": url, **spec}
    if events:
        asked["webhookEvents"] = list(events)
    created = ev.JobCreated(
        tenant_id=tenant_id, model="echo@1", timeout_ms=60_000, body_bytes=20, webhook_events=subscribed
    )
    write = Write(job_id, (created,), hooked=frozenset(subscribed or ()))
    body = orjson.dumps({name: value for name, value in asked.items() if value is not None})
    await store.jobs.admit(pool, write, body, tenant_id, Limits())
    return job_id


async def append(store: Store, job_id: str, *events: ev.Event, hooked: Sequence[str] = DEFAULT_WEBHOOK_EVENTS) -> None:
    write = Write(job_id, events, fence=1, hooked=frozenset(hooked))
    await store.jobs.append(POOL, write, f"w{next(_numbers)}")


def started(attempt: int = 1) -> ev.JobStarted:
    return ev.JobStarted(worker_id="wrk_1", offer_id="off_1", slot=0, device="cpu-0", attempt=attempt)


def completed(job_id: str) -> ev.JobCompleted:
    picture = ids.artifact_id(job_id, 1, 0)
    artifact = ev.ArtifactRef(
        id=picture, kind="image", variant="original", mime="image/png", bytes=9, sha256="00",
        path=f"/v1/artifacts/{picture}/content", expires_at_ms=1764457209999,
    )  # fmt: skip
    return ev.JobCompleted(artifacts=(artifact,), timings=ev.Timings(run_ms=5), attempt=1)


async def finish(store: Store, job_id: str, *, result: object = None) -> None:
    """Let a job start and complete."""
    await append(store, job_id, started())
    await store.client.append(keys.body(POOL, job_id), b"\n" + orjson.dumps({"result": result}))
    await append(store, job_id, completed(job_id))


async def log_of(store: Store, *types: str) -> list[Entry]:
    entries = [decode(position.decode(), fields) for position, fields in await store.client.xrange(keys.log(POOL))]
    return [entry for entry in entries if not types or entry.type in types]


async def pending(store: Store) -> int:
    return (await store.client.xpending(keys.log(POOL), keys.GROUP_NOTIFIER))["pending"]


async def settled(store: Store) -> bool:
    """Whether nothing is planned, due or under way any more."""
    return await pending(store) == 0 and await store.client.zcard(keys.due(POOL)) == 0


async def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    """Wait until an awaitable condition holds: polls the store, which is the only one who knows."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  the store sets no event in this process
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def notifier(
    url: str,
    *,
    delays_s: Sequence[float] = (0, 0.1, 0.2),
    timeout_s: float = 5,
    consumer: str = "one",
    places: int = 64,
    of_endpoint: int = 5,
    circuit_s: float = 0.5,
    disable_after_s: float = 432_000,
    claim_ms: int = 6_000,  # a machine that runs other tests stands still for longer than a claim may last
    route: Route = SYSTEM,
) -> AsyncIterator[Notifier]:
    """Run a notifier in this loop, and stop it in order."""
    store = Store(url)
    log = structlog.get_logger()
    outbound = Outbound.by(route)
    sender = Sender(timeout_s=timeout_s, allow_private="loopback", user_agent="headrace/test", outbound=outbound)
    courier = Courier(
        store,
        sender,
        plan=Plan(Schedule(tuple(delays_s)), circuit_of(circuit_s), disable_after_s),
        places=Places(places, of_endpoint),
        log=log,
        claim_ms=claim_ms,
    )
    service = Notifier(store, courier, Identity(consumer, PUBLIC_URL), log, block_ms=50)
    stop = asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    try:
        yield service
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await running
        await store.aclose()


async def attempts(store: Store) -> list[ev.WebhookAttempted]:
    """All attempts in the log, oldest first."""
    return [entry.event() for entry in await log_of(store, "webhook.attempted")]


async def has_tried(store: Store, count: int) -> bool:
    return len(await attempts(store)) >= count
