"""Endpoints through the API, for the tests about them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.ingest.api import JOB_SCOPES, Answer, Api

URL = "https://app.example/hook?token=t0ken"
WEBHOOKS = ["webhooks:read", "webhooks:write"]
PATH = "/v1/webhook-endpoints"


class Hooks:
    """A client whose key may do all about webhooks, and jobs."""

    def __init__(self, api: Api, key: str) -> None:
        self.api, self.key = api, key

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        return await self.api.call(method, path, key=self.key, **more)

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def create(self, url: str = URL, idempotency_key: str = "", **fields: Any) -> Answer:
        sent = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return await self.call("POST", PATH, json={"url": url, **fields}, headers=sent)

    async def endpoint(self, url: str = URL, **fields: Any) -> str:
        """Create one and return its id."""
        made = await self.create(url, **fields)
        assert made.status == 201, made.body
        return str(made.body["id"])

    async def patch(self, endpoint_id: str, **fields: Any) -> Answer:
        return await self.call("PATCH", f"{PATH}/{endpoint_id}", json=fields)

    async def do(self, endpoint_id: str, action: str, **fields: Any) -> Answer:
        more = {"json": fields} if fields else {}
        return await self.call("POST", f"{PATH}/{endpoint_id}/{action}", **more)


async def hooks_of(api: Api, tenant: str = "t_a") -> Hooks:
    return Hooks(api, await api.new_key(tenant, [*JOB_SCOPES, *WEBHOOKS]))


@asynccontextmanager
async def counting_connections() -> AsyncIterator[tuple[int, list[object]]]:
    """Listen on loopback; gives the port and a list that grows with each connection."""
    seen: list[object] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen
