"""A server process with the real edge and one route, for tests that need a process of their own.

Run as a script it prints its port and serves until SIGTERM. `POST /echo` answers with the parsed body.
"""

import asyncio
import json
import signal
import sys

from aiohttp import web

from contracts.telemetry import configure_logging
from services.ingest.app import make_app, warn_of_slow_parser
from services.ingest.edge.body import BodyLimits, BodyRoom, read_body
from services.ingest.edge.middleware import EdgeState
from services.ingest.edge.problems import Problem
from services.ingest.edge.server import ConnectionLimits, GuardedRunner
from services.ingest.edge.strict_json import BadJson, parse_object
from services.ingest.metrics import IngestMetrics
from services.ingest.routes import Route
from services.ingest.tenancy import Caller

BODY_BYTES = 1 << 20


def make_echo_app(edge: EdgeState, limits: BodyLimits, room: BodyRoom) -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        with room.share() as share:
            raw = await read_body(request, limits, share)
            try:
                return web.json_response({"fields": len(parse_object(raw)), "bytes": len(raw)})
            except BadJson as error:
                raise Problem("malformed_json", error.message) from None

    async def fail(request: web.Request) -> web.Response:
        raise RuntimeError("a secret of the inside")

    async def nobody(request: web.Request) -> Caller:
        raise Problem("unauthenticated")

    routes = (
        Route("POST", "/echo", echo, "Count the fields."),
        Route("GET", "/fail", fail, "Fail."),
        Route("GET", "/fast", lambda request: _fine(), "Answer."),
        Route("GET", "/closed", lambda request, caller: _fine(), "Never.", scope="jobs:read"),
    )
    return make_app(routes, edge, nobody, limits.max_bytes)


async def _fine() -> web.Response:
    return web.json_response({"ok": True})


async def main(options: dict[str, float]) -> None:
    edge = EdgeState("test", IngestMetrics())
    body = BodyLimits(BODY_BYTES, max_s=4, grace_s=options.get("grace_s", 1), min_bytes_per_s=64_000)
    limits = ConnectionLimits(
        max_connections=int(options.get("max_connections", 2_000)),
        head_timeout_s=options.get("head_timeout_s", 1),
        linger_s=0.2,
    )
    runner = GuardedRunner(make_echo_app(edge, body, BodyRoom()), limits, edge.mint_request_id)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024).start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    print(json.dumps({"port": runner.addresses[0][1], "slow_parser": warn_of_slow_parser()}), flush=True)
    await stopped.wait()
    edge.is_draining = True
    await runner.drain(10)
    await runner.cleanup()


if __name__ == "__main__":
    configure_logging("ingest", "info")
    asyncio.run(main(json.loads(sys.argv[1])))
