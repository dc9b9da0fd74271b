"""The time between an accepted start and author code in which a job's input files are brought: it can be stopped."""

import asyncio

from contracts.model_spec import ModelSpec
from services.gpu_worker.input_files import InputFault, InputFiles
from services.gpu_worker.running import Running
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict

_STOPPED = {
    Stop.FENCED: Outcome(Verdict.FENCED),
    Stop.CANCEL: Outcome(Verdict.CANCELLED, how="cooperative"),
    Stop.HAND_BACK: Outcome(Verdict.HANDED_BACK),
}


class Bringing:
    """What is being brought for the attempts of one supervisor."""

    def __init__(self, files: InputFiles) -> None:
        self._files = files
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._stops: dict[tuple[str, int], Stop] = {}

    async def bring(self, running: Running, model: ModelSpec) -> Outcome | None:
        """Bring the files of an attempt; returns how it ended if author code cannot begin."""
        if not running.has_files(model):
            return None
        task = self._under_way[running.key] = asyncio.ensure_future(running.bring(self._files, model))
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            del self._under_way[running.key]
        stop = self._stops.pop(running.key, None)
        return _STOPPED[stop] if stop is not None else _ended(task)

    def stop(self, key: tuple[str, int], reason: Stop) -> None:
        """End it if it is under way; otherwise nothing happens."""
        task = self._under_way.get(key)
        if task is not None and reason in _STOPPED and reason.outranks(self._stops.get(key)):
            self._stops[key] = reason
            task.cancel()


def _ended(task: "asyncio.Task[None]") -> Outcome | None:
    fault = task.exception()
    if isinstance(fault, InputFault):
        return Outcome(Verdict.FAILED, fault.code, str(fault), fault.retryable)
    if fault is not None:
        raise fault
    return None
