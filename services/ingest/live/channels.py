"""What a socket may subscribe to, by name: a job, a user, the tenant; for operators a pool or all workers."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.read import JobReader
from services.ingest.live.access import may_see
from services.ingest.live.hub import Hub
from services.ingest.live.job_stream import JobStream
from services.ingest.live.log_stream import LogStream
from services.ingest.live.messages import Message
from services.ingest.live.operator_audience import OperatorAudience
from services.ingest.live.query import ALL_TYPES, NAMES, OPERATOR_NAMES, TENANT_NAMES, Wanted, read_wanted
from services.ingest.live.tenant_audience import TenantAudience
from services.ingest.tenancy import Caller

_ASKED = NAMES | TENANT_NAMES - {"token"}

Told = AsyncGenerator[Message, None]


def read_asked(channel: str, query: Mapping[str, str]) -> Wanted:
    """Read what a subscription asks for. Raises Problem."""
    if channel == "workers" or channel.startswith("pool:"):
        return replace(read_wanted(query, None, OPERATOR_NAMES, ALL_TYPES), previews="none")
    return read_wanted({"previews": "inline"} | dict(query), None, _ASKED)


class Channels:
    """Opens channels."""

    def __init__(self, context: Context, reader: JobReader, hub: Hub) -> None:
        self._context, self._reader, self._hub = context, reader, hub

    async def open(self, channel: str, caller: Caller, wanted: Wanted, stack: ExitStack) -> Told:
        """Begin what a channel is told; `stack` ends it. Raises Problem, HeadraceError."""
        kind, _, name = channel.partition(":")
        if kind == "pool" or channel == "workers":
            caller.require("admin")
            return await self._of_operators(name, wanted)
        caller.require("jobs:read")
        if kind == "job":
            return await self._of_job(name, caller, wanted, stack)
        if kind == "user" and name:
            wanted = _of_user(wanted, name)
        elif channel != "tenant":
            raise Problem("invalid_input", "channel is job:<id>, user:<id>, tenant, pool:<name> or workers")
        audience = TenantAudience(self._context, self._reader, self._hub, caller, wanted)
        return await self._begin(LogStream(self._context, self._hub, audience, wanted))

    async def _of_job(self, job_id: str, caller: Caller, wanted: Wanted, stack: ExitStack) -> Told:
        shown = await may_see(self._reader, caller, job_id)
        feed = self._hub.feed(shown.meta.name)
        listener = stack.enter_context(feed.follow(shown.state.id))
        job = JobStream(self._context, self._reader, feed, listener, wanted)
        await job.begin(shown)
        return job.messages()

    async def _of_operators(self, pool: str, wanted: Wanted) -> Told:
        pools = tuple(self._context.pools) if not pool else (pool,)
        if not set(pools) <= self._context.pools.keys():
            raise Problem("pool_not_found")
        audience = OperatorAudience(
            self._context, self._hub, pools,
            shows=lambda event_type: bool(pool) or event_type.startswith("worker."), with_pools=bool(pool),
        )  # fmt: skip
        return await self._begin(LogStream(self._context, self._hub, audience, wanted))

    async def _begin(self, stream: LogStream) -> Told:
        await stream.begin()
        return stream.messages()


def _of_user(wanted: Wanted, user_id: str) -> Wanted:
    if wanted.user_id not in (None, user_id):
        raise Problem("invalid_input", "userId is not that of the channel")
    return replace(wanted, from_start=False, user_id=user_id)
