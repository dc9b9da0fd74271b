"""All jobs of a tenant, or of one of its users, or those that a token names."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from contracts.errors import Corrupt
from contracts.job import TERMINAL, JobState, JobStatus
from contracts.wire import Entry
from services.ingest.admission.draft import user_digest
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.filters import JobFilter
from services.ingest.handlers.read import Details, JobReader, Shown, job_not_found
from services.ingest.live.hub import Hub
from services.ingest.live.query import Wanted
from services.ingest.live.tenant_feed import TenantListener
from services.ingest.live.viewer import Viewed, Viewer
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

MOST_SHOWN = 100  # jobs of a snapshot
_OPEN = frozenset(JobStatus) - TERMINAL


class TenantAudience:
    """One caller. Raises Problem `job_not_found` for a user that its token does not name."""

    def __init__(self, context: Context, reader: JobReader, hub: Hub, caller: Caller, wanted: Wanted) -> None:
        self._context, self._reader, self._hub, self._caller = context, reader, hub, caller
        if wanted.user_id is None:
            wanted = replace(wanted, user_id=caller.user_id)
        elif caller.user_id not in (None, wanted.user_id):
            raise job_not_found()
        self._wanted = wanted
        self.pools = tuple(context.pools)
        self._user = None if wanted.user_id is None else user_digest(context.secret("users"), wanted.user_id)

    def follow(self, pool: str, listener: TenantListener) -> AbstractContextManager[None]:
        return self._hub.of_tenants(pool).follow(self._caller.tenant_id, listener)

    async def view(self, viewer: Viewer, entries: Sequence[Entry]) -> list[Viewed]:
        return await viewer.show(entries, self._caller.tenant_id.__eq__)

    def is_wanted(self, viewed: Viewed) -> bool:
        return (
            (not self._wanted.statuses or viewed.status in self._wanted.statuses)
            and self._user in (None, viewed.user_digest)
            and (not self._caller.job_ids or viewed.subject in self._caller.job_ids)
        )

    async def snapshot(self) -> JsonObject:
        ids = await self._reader.ids(self._caller, JobFilter(statuses=_OPEN), "", MOST_SHOWN + 1)
        found = await asyncio.gather(*map(self._details, ids[:MOST_SHOWN]))
        jobs = [self._reader.show(each) for each in found if each is not None and self._fits(each)]
        return {"jobs": jobs, "hasMore": len(ids) > MOST_SHOWN}

    async def _details(self, job_id: str) -> Details | None:
        meta = self._context.pool_of(job_id)
        try:
            return None if meta is None else await self._reader.details(Shown(meta, JobState(job_id)))
        except (Problem, Corrupt):  # forgotten meanwhile; or it cannot be read, and must not stand before all others
            return None

    def _fits(self, details: Details) -> bool:
        wanted = self._wanted
        if self._caller.job_ids and details.state.id not in self._caller.job_ids:
            return False
        is_of_user = wanted.user_id is None or details.lines.spec.get("userId") == wanted.user_id
        return is_of_user and (not wanted.statuses or details.state.status in wanted.statuses)
