"""What can be asked about the service itself: models, health, metrics, the OpenAPI document."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable

import orjson
from aiohttp import web

from contracts.consumers import Standing
from contracts.deliveries import Survey
from contracts.errors import StoreUnavailable
from contracts.model_spec import ModelSpec, describe
from contracts.questions import Backlog
from services.ingest.context import Context
from services.ingest.edge.conditional import etag, is_unchanged
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.explain import TARGET_S
from services.ingest.handlers.workers import told_devices
from services.ingest.requests import no_such_model
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

_NOTHING: frozenset[str] = frozenset()


class InfoHandlers:
    """Answers from memory, but for what the leaders say waits."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._openapi: asyncio.Future[bytes] | None = None
        self._make: Callable[[], JsonObject] = dict

    async def list_models(self, request: web.Request, caller: Caller) -> web.Response:
        """List the models of the pipelines file."""
        check_query(request, _NOTHING)
        data = [self._model_view(model) for model in self._context.models]
        return json_answer({"data": data, "hasMore": False, "nextCursor": None})

    async def get_model(self, request: web.Request, caller: Caller) -> web.Response:
        """Show a model by `name` or `name@version`, with the JSON Schema of its inputs."""
        check_query(request, _NOTHING)
        model = self._context.models.find(request.match_info["name"])
        if model is None:
            raise no_such_model(self._context.models)
        return json_answer(self._model_view(model))

    def _model_view(self, model: ModelSpec) -> JsonObject:
        paused = self._context.store.directory.configuration.is_model_paused(model.reference)
        return describe(model) | {"paused": paused}

    async def healthz(self, request: web.Request) -> web.Response:
        """Say that the process lives; the store has no part in it."""
        return json_answer({"status": "alive"})

    async def readyz(self, request: web.Request) -> web.Response:
        """Say whether the log can be written, from the cached verdict."""
        is_ready, _ = self._context.readiness.verdict
        headers = {} if is_ready else {"Retry-After": "2"}
        return json_answer(self._context.readiness.document(), 200 if is_ready else 503, headers)

    async def metrics(self, request: web.Request) -> web.Response:
        """Show the metrics of this process, and what the leaders say waits."""
        metrics = self._context.metrics
        metrics.note_backlogs(await self._backlogs())
        metrics.body_bytes.set(self._context.room.used_bytes)
        metrics.log_writable.set(float(self._context.readiness.verdict[0]))
        metrics.note_set_aside(self._context.readiness.vitals)
        metrics.note_archives(self._context.readiness.vitals)
        metrics.note_audits(self._context.readiness.vitals)
        metrics.note_mirrors(self._context.readiness.vitals)
        metrics.note_gpus(await self._devices())
        metrics.note_deliveries(await self._deliveries())
        metrics.note_operators(*await self._operators())
        return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _backlogs(self) -> dict[str, Backlog]:
        pools, asker = list(self._context.pools), self._context.asker
        told = await asyncio.gather(*(asker.backlog(pool, TARGET_S * 1000) for pool in pools))
        return {pool: each for pool, each in zip(pools, told, strict=True) if each is not None}

    async def _deliveries(self) -> dict[str, Survey]:
        """Return how the deliveries of each pool do; nothing while the store is away."""
        found: dict[str, Survey] = {}
        with contextlib.suppress(StoreUnavailable, Problem):
            for pool in self._context.pools:
                found[pool] = await self._context.within(self._context.store.deliveries.survey(pool))
        return found

    async def _operators(self) -> tuple[dict[str, list[Standing]], dict[str, int]]:
        """Return how far the readers of each pool's log are, and its dead letters; nothing while the store is away."""
        store, standings, letters = self._context.store, dict[str, list[Standing]](), dict[str, int]()
        with contextlib.suppress(StoreUnavailable, Problem):
            for pool in self._context.pools:
                _, standings[pool] = await self._context.within(store.consumers.standings(pool))
                letters[pool] = await self._context.within(store.dead_letters.count(pool))
        return standings, letters

    async def _devices(self) -> list[tuple[str, JsonObject]]:
        """Return what the workers of each pool said of their devices last; nothing while the store is away."""
        store, found = self._context.store, list[tuple[str, JsonObject]]()
        with contextlib.suppress(StoreUnavailable, Problem):
            for pool in self._context.pools:
                workers = await self._context.within(store.workers(pool))
                found += [(pool, each) for fields in workers.values() for each in told_devices(fields)]
        return found

    async def openapi_document(self, request: web.Request) -> web.Response:
        """Show the OpenAPI document."""
        document = await self.openapi()
        tag = etag(hashlib.sha256(document).hexdigest()[:32])
        if is_unchanged(request.headers.get("If-None-Match"), tag):
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(body=document, headers={"Content-Type": "application/json", "ETag": tag})

    def publish(self, make: Callable[[], JsonObject]) -> None:
        """Say how the OpenAPI document is made, once the route table is known."""
        self._make = make

    async def openapi(self) -> bytes:
        """Return the document, made when it is first asked for: that costs more than all else of a start together."""
        if self._openapi is None:
            # In a thread: a tenth of a second of this loop is what everybody else would wait.
            self._openapi = asyncio.ensure_future(asyncio.to_thread(self._written))
        return await asyncio.shield(self._openapi)

    def _written(self) -> bytes:
        return orjson.dumps(self._make(), option=orjson.OPT_INDENT_2)
