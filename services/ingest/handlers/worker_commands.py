"""Commands to one worker: drain, undrain, load a model, evict one.

Promises: each is one event with who and why, in one write with the message to the worker; what is so already is
answered as done and writes nothing. 202 means that the worker will hear of it, not that it has done it: what came of
it is shown by the worker, and `worker.command_failed` is in the log if it could not.
"""

from collections.abc import Mapping

from aiohttp import web

from contracts import events as ev
from contracts.admin_api import Because, WorkerDrain, WorkerModel
from contracts.store.words import Word
from contracts.store.write import WorkEntry
from services.ingest.context import Context
from services.ingest.edge.problems import Fault, Problem
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.configured import ConfiguredHandlers
from services.ingest.handlers.workers import WorkerHandlers
from services.ingest.minting import Mint
from services.ingest.requests import invalid_input, no_such_model
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject


class WorkerCommandHandlers(ConfiguredHandlers):
    """Routes below `/admin/v1/workers/{worker}`."""

    def __init__(self, context: Context, workers: WorkerHandlers) -> None:
        super().__init__(context)
        self._workers, self._mint = workers, Mint(context.now_ms)

    async def drain(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a worker finish and take nothing new."""
        wanted = await self._read(request, WorkerDrain)
        worker = await self._workers.need(request.match_info["worker"])
        deadline_ms = None if wanted.deadline_seconds is None else round(wanted.deadline_seconds * 1000)
        if worker["state"] != "open" and deadline_ms is None:
            return json_answer(worker)
        event = ev.WorkerCommanded(
            worker_id=str(worker["id"]),
            command="drain",
            deadline_ms=deadline_ms,
            **caller.signed(wanted.reason),
        )
        return await self._tell(worker, event)

    async def undrain(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a drained worker work again."""
        because = await self._read(request, Because)
        worker = await self._workers.need(request.match_info["worker"])
        if worker["state"] == "open":
            return json_answer(worker)
        event = ev.WorkerCommanded(worker_id=str(worker["id"]), command="undrain", **caller.signed(because.reason))
        return await self._tell(worker, event)

    async def load_model(self, request: web.Request, caller: Caller) -> web.Response:
        """Have a model in memory before a job asks for it."""
        return await self._with_model(request, caller, "load_model")

    async def evict_model(self, request: web.Request, caller: Caller) -> web.Response:
        """Take a model out of memory once it is idle."""
        return await self._with_model(request, caller, "evict_model")

    async def _with_model(self, request: web.Request, caller: Caller, command: ev.WorkerCommand) -> web.Response:
        wanted = await self._read(request, WorkerModel)
        worker = await self._workers.need(request.match_info["worker"])
        models = self._context.models
        known = models.find(wanted.model)
        if known is None and (command == "load_model" or wanted.model not in _resident(worker)):
            raise no_such_model(models, () if command == "load_model" else _resident(worker))
        if wanted.device is not None and wanted.device not in _devices(worker):
            raise invalid_input((Fault("/device", "unknown", "the worker has no such device"),))
        event = ev.WorkerCommanded(
            worker_id=str(worker["id"]),
            command=command,
            model=known.reference if known is not None and command == "load_model" else wanted.model,
            device=wanted.device,
            **caller.signed(wanted.reason),
        )
        return await self._tell(worker, event)

    async def _tell(self, worker: JsonObject, event: ev.WorkerCommanded) -> web.Response:
        told = {
            "command": event.command, "model": event.model, "device": event.device, "deadlineMs": event.deadline_ms,
            "reason": event.reason,
        }  # fmt: skip
        entry = WorkEntry(event.worker_id, "command", told)
        call = self._context.store.attempts.announce(
            str(worker["pool"]), event.worker_id, event, self._mint.token(), work=(entry,)
        )
        reply = await self._context.within(call)
        if reply.word is Word.GONE:
            raise Problem("worker_not_found")
        return json_answer(worker, 202)


def _resident(worker: Mapping[str, object]) -> set[str]:
    """Return what a worker has in memory, by name and by reference: what is gone from the file may still be there."""
    devices = worker["devices"]
    told = [each for device in devices for each in device["models"]] if isinstance(devices, list) else []
    references = {str(each["model"]) for each in told}
    return references | {reference.partition("@")[0] for reference in references}


def _devices(worker: Mapping[str, object]) -> list[object]:
    devices = worker["devices"]
    return [device["uuid"] for device in devices] if isinstance(devices, list) else []
