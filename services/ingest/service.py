"""One ingest process: composes context, handlers and server, and stops them in order.

Promises: it serves from its first moment (`/readyz` says since when it is useful), and at the stop signal it takes no
new connections, answers what it has accepted, and closes the store last.
"""

import asyncio
import functools
import os
import resource
import secrets
import time
from importlib import metadata

import structlog
from aiohttp import web

from contracts import profile_folder
from contracts.archive import open_archive
from contracts.artifacts import Shelf, open_objects
from contracts.models import load
from contracts.settings import Settings
from contracts.store import Store
from contracts.store.vitals import Vitals, read_vitals
from contracts.telemetry import Logger
from services.ingest.app import make_app, warn_of_slow_parser
from services.ingest.audits.handlers import AuditHandlers
from services.ingest.audits.table import audit_routes
from services.ingest.audits.worker import AuditWorker
from services.ingest.authenticate import Authenticator
from services.ingest.context import Context
from services.ingest.dead_letters.worker import LetterWorker
from services.ingest.edge.body import BodyLimits
from services.ingest.edge.middleware import EdgeState
from services.ingest.edge.server import ConnectionLimits, GuardedRunner
from services.ingest.event_table import (
    action_routes,
    document_routes,
    event_routes,
    replay_routes,
    reproduce_routes,
    retry_routes,
)
from services.ingest.events.actions import ActionReader
from services.ingest.events.finding import EventReader
from services.ingest.file_table import artifact_routes, upload_routes
from services.ingest.fleet_table import scheduling_routes, worker_routes
from services.ingest.handlers.actions import ActionHandler
from services.ingest.handlers.admin import AdminHandlers
from services.ingest.handlers.admin_webhooks import AdminWebhookHandlers
from services.ingest.handlers.artifacts import ArtifactHandler
from services.ingest.handlers.batch import BatchHandler
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.cancel_many import CancelManyHandler
from services.ingest.handlers.change import ChangeHandler
from services.ingest.handlers.consumers import ConsumerHandlers
from services.ingest.handlers.dead_letters import DeadLetterHandlers
from services.ingest.handlers.deliveries import DeliveryHandlers
from services.ingest.handlers.documents import DocumentHandlers
from services.ingest.handlers.endpoint_actions import EndpointActionHandlers
from services.ingest.handlers.endpoint_sending import EndpointSendingHandlers
from services.ingest.handlers.endpoints import EndpointHandlers
from services.ingest.handlers.erase import EraseHandlers
from services.ingest.handlers.event_export import ExportHandler
from services.ingest.handlers.event_import import ImportHandler
from services.ingest.handlers.events import EventHandlers
from services.ingest.handlers.explain import ExplainHandlers
from services.ingest.handlers.info import InfoHandlers
from services.ingest.handlers.job_list import JobListHandler
from services.ingest.handlers.jobs import JobHandlers
from services.ingest.handlers.limits import LimitsHandler
from services.ingest.handlers.logs import LogHandler
from services.ingest.handlers.pauses import PauseHandlers
from services.ingest.handlers.pools import PoolHandlers
from services.ingest.handlers.read import JobReader
from services.ingest.handlers.replays import ReplayHandlers
from services.ingest.handlers.reproduce import ReproduceHandler
from services.ingest.handlers.retention import RetentionHandlers
from services.ingest.handlers.retry import RetryHandler
from services.ingest.handlers.state import StateHandler
from services.ingest.handlers.submissions import Submissions
from services.ingest.handlers.submit import SubmitHandler
from services.ingest.handlers.uploads import UploadHandlers
from services.ingest.handlers.usage import UsageHandler
from services.ingest.handlers.webhook_keys import WebhookKeysHandler
from services.ingest.handlers.worker_commands import WorkerCommandHandlers
from services.ingest.handlers.workers import WorkerHandlers
from services.ingest.live.access import StreamAccess
from services.ingest.live.hub import Hub
from services.ingest.live.socket import SocketHandler
from services.ingest.live.sse import StreamHandlers
from services.ingest.live.table import stream_routes
from services.ingest.live.tokens import TokenHandler
from services.ingest.log_tails import LogTails
from services.ingest.metrics import IngestMetrics
from services.ingest.operator_table import consumer_routes, dead_letter_routes, import_routes, retention_routes
from services.ingest.readiness import Readiness
from services.ingest.replays.running import Runs
from services.ingest.routes import Route
from services.ingest.table import (
    admin_routes,
    change_routes,
    erase_routes,
    explain_routes,
    info_routes,
    job_routes,
    submit_routes,
    usage_routes,
)
from services.ingest.views.openapi import openapi
from services.ingest.watch import JobWatch
from services.ingest.webhook_table import (
    admin_webhook_routes,
    delivery_routes,
    endpoint_action_routes,
    endpoint_routes,
    endpoint_sending_routes,
)

log: Logger = structlog.get_logger(service="ingest")

DRAIN_S = 10.0
BACKLOG = 1_024
SPARE_FILES = 128  # for the store, the files being sent, the log


def wall_ms() -> int:
    """Return this host's wall time."""
    return time.time_ns() // 1_000_000


class IngestService:
    """Build with settings, `start`, then `stop`."""

    def __init__(self, settings: Settings) -> None:
        # One try each: a caller waits two seconds at most, and knows how to repeat.
        store = Store(settings.redis.url, retries=0)
        archive = self._archive = open_archive(store, settings)
        readiness = Readiness(
            clock=time.monotonic,
            wall_ms=wall_ms,
            memory_ratio_limit=settings.admission.memory_ratio,
            log_bytes_limit=settings.log.max_bytes,
        )
        body = BodyLimits(settings.ingest.body_bytes, max_s=settings.ingest.body_timeout_s)
        self.context = Context(
            settings=settings,
            store=store,
            models=load(settings.pipelines),
            metrics=IngestMetrics(),
            readiness=readiness,
            now_ms=wall_ms,
            body_limits=body,
            shelf=Shelf(open_objects(settings)),
        )
        self.events = EventReader(self.context, archive)
        self._edge = EdgeState(secrets.token_hex(4), self.context.metrics)
        self._hub = Hub(self.context, archive)
        self._watch = JobWatch(store, self._hub)
        self._tails = LogTails(store, settings.ingest.tenant_followers)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: GuardedRunner | None = None
        self.app = self._make_app()
        self.port = 0

    async def start(self) -> None:
        """Listen, and open the store in the background."""
        settings = self.context.settings.ingest
        warn_of_slow_parser()
        limits = ConnectionLimits(max_connections=room_for_connections(settings.connections))
        runner = self._runner = GuardedRunner(self.app, limits, self._edge.mint_request_id)
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.port, backlog=BACKLOG, reuse_address=True).start()
        self.port = int(runner.addresses[0][1])
        self._tasks = [
            asyncio.create_task(self._open_and_follow()),
            asyncio.create_task(self._watch_readiness()),
            asyncio.create_task(self._watch_capacity()),
            asyncio.create_task(profile_folder.follow(self.context.models, self._stop)),
            asyncio.create_task(self._uploads.sweep(self._stop)),
            asyncio.create_task(self._work_on_letters()),
            asyncio.create_task(self._work_on_audits()),
        ]
        log.info("ingest_started", host=settings.host, port=self.port, pid=os.getpid())

    async def stop(self) -> None:
        """Answer what was accepted, then end."""
        self._edge.is_draining = True
        await self._tails.aclose()
        await self._hub.aclose()
        await self._replays.aclose()
        if self._runner is not None:
            await self._runner.drain(DRAIN_S)
            await self._runner.cleanup()
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.context.asker.aclose()
        await self.context.store.aclose()
        log.info("ingest_stopped")

    def _make_app(self) -> web.Application:
        """Build the web application with all its routes."""
        context = self.context
        admin_key = context.settings.admin.key
        authenticate = Authenticator(
            lambda: context.store.directory.configuration, admin_key.get_secret_value() if admin_key else None
        )
        reader = JobReader(context)
        submissions, canceller = Submissions(context, reader), Canceller(context, reader)
        info, workers = InfoHandlers(context), WorkerHandlers(context)
        states = StateHandler(context, self.events, reader)
        self._uploads = UploadHandlers(context)
        routes: tuple[Route, ...] = (
            *submit_routes(SubmitHandler(context, submissions, self._watch), BatchHandler(context, submissions)),
            *job_routes(
                JobListHandler(context, reader),
                JobHandlers(context, reader),
                LogHandler(context, reader, self._watch, self._tails),
            ),
            *self._stream_routes(reader, canceller, authenticate),
            *change_routes(ChangeHandler(context, reader), canceller, CancelManyHandler(context, reader, canceller)),
            *erase_routes(EraseHandlers(context, self.events)),
            *explain_routes(ExplainHandlers(context, reader)),
            *artifact_routes(ArtifactHandler(context, authenticate)),
            *upload_routes(self._uploads),
            *admin_routes(AdminHandlers(context)),
            *worker_routes(workers, WorkerCommandHandlers(context, workers)),
            *scheduling_routes(PoolHandlers(context), PauseHandlers(context)),
            *endpoint_routes(EndpointHandlers(context), WebhookKeysHandler(context)),
            *endpoint_action_routes(EndpointActionHandlers(context)),
            *endpoint_sending_routes(EndpointSendingHandlers(context)),
            *delivery_routes(DeliveryHandlers(context)),
            *admin_webhook_routes(AdminWebhookHandlers(context)),
            *retention_routes(RetentionHandlers(context)),
            *consumer_routes(ConsumerHandlers(context)),
            *dead_letter_routes(DeadLetterHandlers(context, reader)),
            *import_routes(ImportHandler(context)),
            *event_routes(EventHandlers(self.events), ExportHandler(self.events), states),
            *retry_routes(RetryHandler(context, reader, self.events)),
            *usage_routes(UsageHandler(context, self._archive)),
            *action_routes(ActionHandler(ActionReader(context, self._archive, self.events))),
            *audit_routes(AuditHandlers(context, self._archive)),
            *reproduce_routes(ReproduceHandler(context, reader, self.events, submissions)),
            *document_routes(DocumentHandlers(info, _version())),
            *info_routes(info, LimitsHandler(context)),
        )
        info.publish(lambda: openapi(routes, _version()))
        return make_app(routes, self._edge, authenticate, context.settings.ingest.body_bytes)

    def _stream_routes(
        self, reader: JobReader, canceller: Canceller, authenticate: Authenticator
    ) -> tuple[Route, ...]:  # fmt: skip
        access = StreamAccess(self.context, authenticate)
        sse = StreamHandlers(self.context, reader, self._hub, access.is_still_valid)
        sockets = SocketHandler(self.context, reader, self._hub, access, canceller)
        self._replays = Runs(self.context.settings)
        replays = ReplayHandlers(self.context, self.events, self._hub, sse, self._replays)
        return (
            *stream_routes(sse, sockets, TokenHandler(self.context, reader), access),
            *replay_routes(replays),
        )

    async def _open_and_follow(self) -> None:
        await self.context.open(self._stop)
        await self.context.store.directory.follow(self._stop)

    async def _watch_readiness(self) -> None:
        await self.context.opened.wait()
        await self.context.readiness.watch(self._probe, self._stop)

    async def _work_on_letters(self) -> None:
        await self.context.opened.wait()
        await LetterWorker(self.context, JobReader(self.context)).run(self._stop)

    async def _work_on_audits(self) -> None:
        await self.context.opened.wait()
        await AuditWorker(self.context).run(self._stop)

    async def _watch_capacity(self) -> None:
        await self.context.opened.wait()
        await self.context.capacity.watch(self.context.pools, self._stop)

    async def _probe(self) -> Vitals:
        context = self.context
        context.metrics.connections.set(self._runner.open_count if self._runner else 0)
        vitals = await read_vitals(context.store.client, context.models.pools)
        of_others = context.pools.keys() - set(context.models.pools)  # of models that are gone from the file
        context.note_epochs(vitals.epochs | {pool: await context.store.archive.epoch(pool) for pool in of_others})
        return vitals


def room_for_connections(wanted: int) -> int:
    """Raise the limit of open files as far as the host allows and return how many connections fit below it.

    Without room, accepting a connection fails over and over, and nobody is told to go away.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - SPARE_FILES))


@functools.cache  # its package is read and parsed each time: 10 ms
def _version() -> str:
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        return "0"
