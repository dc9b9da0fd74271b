"""Baseline of the POST: a bare aiohttp handler that validates the same body with pydantic and XADDs it.

No key, no schema of the model, no quota, no idempotency, no state: what anybody would write in ten lines.
`python -m benchmarks.bare_http <store URL>` prints {"port": N} when it listens.
"""

import asyncio
import json
import sys
from itertools import count

import uvloop
from aiohttp import web
from redis.asyncio import Redis

from contracts.api import GenerationJobData

STREAM = "bench:raw"


def make_app(redis: Redis) -> web.Application:
    """One route."""
    numbers = count(1)

    async def post(request: web.Request) -> web.Response:
        raw = await request.read()
        job = GenerationJobData.model_validate_json(raw)
        await redis.xadd(STREAM, {"model": job.model, "d": raw})
        return web.json_response({"id": next(numbers)}, status=201)

    app = web.Application()
    app.router.add_post("/v1/jobs", post)
    return app


async def main(store_url: str) -> None:
    """Serve until the process is ended."""
    redis = Redis.from_url(store_url)
    runner = web.AppRunner(make_app(redis), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
