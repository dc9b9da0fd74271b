"""Fifty receivers in one process: most answer at once, some after five seconds, some every other time with 500.

`python -m benchmarks.hostile_receiver` prints {"port": N} when it listens. The path says which: `/ok/3`, `/slow/1`,
`/flap/2`. `GET /all` answers every POST that came: [path, webhook-id, wall time, status].
"""

import asyncio
import json
import random
import time

import uvloop
from aiohttp import web

SLOW_S = 5.0


def make_app() -> web.Application:
    """Answer by path, and remember."""
    seen: list[tuple[str, str, float, int]] = []
    chance = random.Random(5)

    async def post(request: web.Request) -> web.Response:
        await request.read()
        kind = request.match_info["kind"]
        status = 500 if kind == "flap" and chance.random() < 0.5 else 200
        seen.append((request.path, request.headers["webhook-id"], time.time(), status))
        if kind == "slow":
            await asyncio.sleep(SLOW_S)
        return web.Response(status=status, headers={"Connection": "keep-alive"})

    async def everything(_: web.Request) -> web.Response:
        return web.json_response(seen)

    app = web.Application()
    app.router.add_post("/{kind}/{number}", post)
    app.router.add_get("/all", everything)
    return app


async def main() -> None:
    """Serve until the process is ended."""
    runner = web.AppRunner(make_app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1_000)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
