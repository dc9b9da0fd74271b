"""A notifier starts with 50,000 deliveries due: how soon the first one is sent, and whether a rate is exceeded."""

import asyncio
import time
from collections import defaultdict
from contextlib import ExitStack

from benchmarks.deliveries import SECRET, notifier, planned, prepare
from benchmarks.delivery_kills import posts_of
from benchmarks.figures import Row
from benchmarks.processes import end, running
from benchmarks.rig import POOL, TENANT, own_store
from contracts import events as ev
from contracts import ids
from contracts.endpoints import Private, SigningSecret, endpoint_secret
from contracts.store import Store

DUE = 50_000
ENDPOINTS = 50
RATED = 10  # of them, with a rate
RATE_PER_S = 20.0
WATCH_S = 8.0
BEGIN_BAR_S = 1.0


def measure() -> list[Row]:
    """Run it once."""
    begin_s, most = run()
    allowed = RATE_PER_S * 1.1
    return [
        Row(
            f"a notifier starts with {DUE:,} deliveries due",
            f"first POST {begin_s:.2f} s after its start; at most {most} in a second, allowed {RATE_PER_S:.0f}",
            "",
            bar=f"{BEGIN_BAR_S:.0f} s, no burst",
            holds=begin_s <= BEGIN_BAR_S and most <= allowed + 1,
        )
    ]


def run() -> tuple[float, int]:
    """Return seconds until the first POST, and the most POSTs to a rated endpoint in any second."""
    with own_store() as (url, _), running("-m", "benchmarks.hostile_receiver") as (receiver, _pid):
        asyncio.run(prepare(url))
        asyncio.run(_plan(url, receiver["port"]))
        with ExitStack() as stack:
            begun_s = time.time()
            stack.callback(end, notifier(url))
            time.sleep(WATCH_S)
        posts = posts_of(receiver["port"])
    at_s = defaultdict(list)
    for path, _, when_s, _ in posts:
        at_s[path].append(when_s)
    most = max((_busiest(at_s[f"/ok/{number}"]) for number in range(RATED)), default=0)
    return min(when_s for _, _, when_s, _ in posts) - begun_s, most


def _busiest(at_s: list[float]) -> int:
    ordered, first, most = sorted(at_s), 0, 0
    for last, when_s in enumerate(ordered):
        while ordered[first] <= when_s - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


async def _plan(url: str, port: int) -> None:
    store = Store(url)
    await store.directory.open()
    names = [await _endpoint(store, number, f"http://127.0.0.1:{port}/ok/{number}") for number in range(RATED)]
    names += [f"anon{number:012}" for number in range(RATED, ENDPOINTS)]
    listed = [
        planned(names[each % ENDPOINTS], f"http://127.0.0.1:{port}/ok/{each % ENDPOINTS}", each, each + 1)
        for each in range(DUE)
    ]
    for first in range(0, DUE, 500):
        await store.deliveries.plan(POOL, "", listed[first : first + 500], [])
    await store.aclose()


async def _endpoint(store: Store, number: int, url: str) -> str:
    endpoint_id = ids.mint_endpoint_id(1_764_457_200_000, number)
    created = ev.EndpointCreated(
        tenant_id=TENANT, endpoint_id=endpoint_id, origin="http://127.0.0.1", events=("*",), rate_per_s=RATE_PER_S
    )
    private = Private(url, {}, (SigningSecret(SECRET),))
    await store.directory.change(lambda _: created, endpoint_id, {endpoint_secret(endpoint_id): private.to_json()})
    return endpoint_id.removeprefix("wh_")
