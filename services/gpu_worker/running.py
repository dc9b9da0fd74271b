"""One accepted attempt, from its start to its last event: what it is, what it has said, what it holds."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from contracts import events as ev
from contracts.artifacts import Upload
from contracts.file_inputs import ARTIFACT_POOLS
from contracts.ids import artifact_id, log_id, preview_id
from contracts.model_spec import ModelSpec
from contracts.positions import entry_ms
from contracts.reproduction import Pins, read_pins
from contracts.store.attempts import Attempt as Right
from contracts.store.attempts import Offer
from contracts.store.live import Live, Piece
from contracts.store.replies import Started
from services.gpu_worker.artifacts import Intake
from services.gpu_worker.input_files import InputFault, InputFiles, Wanted
from services.gpu_worker.live_log import LiveLog
from services.gpu_worker.previews import LIMIT_BYTES, Previews
from services.gpu_worker.process.frames import ArtifactFile, Milestone, Preview, Progress, Telemetry
from services.gpu_worker.slots.attempt import Attempt, Loaded
from services.gpu_worker.slots.watchdog import Limits
from services.gpu_worker.writer import AttemptWriter

_HAS_ARTIFACTS = f'"{ARTIFACT_POOLS}"'.encode()


class Running:
    """The listener of its own attempt: what the child tells becomes events, files and timings."""

    def __init__(
        self,
        right: Right,
        started: Started,
        writer: AttemptWriter,
        scratch: Path,
        intake: Intake,
        keep_s: float,
        live: Live,
    ) -> None:
        self.right, self.writer, self.scratch = right, writer, scratch
        self.previews = Previews(self._store_preview, self._tell)
        self.live_log = LiveLog(self._show_log)
        self.log_at = self.log_path = log_path(scratch)
        self.is_log_stored = False
        self.is_log_withheld = False  # others' words are in it: it is neither shown nor stored
        self.files: list[ArtifactFile] = []
        self.load_ms: int | None = None
        self.gpu_ms = 0
        self.released = False  # job.device_released is written
        self.asked: Attempt | None = None  # of the slot
        self.freed = asyncio.Event()  # the store has it, or the attempt is over: the slot's next start may follow
        self._body, self._intake, self._keep_s, self._live = started.body, intake, keep_s, live
        self._started_ms, self._begun_s = entry_ms(started.position), time.monotonic()
        self._total_steps: int | None = None
        self._brought: dict[str, Any] | None = None  # the inputs with paths in the place of files
        self.file_digests: Mapping[str, str] = {}  # of those files, by JSON Pointer
        self.batch_size = 1
        self.pins: Pins | None = None  # of the job that this one is to give again

    @property
    def key(self) -> tuple[str, int]:
        return self.right.job_id, self.right.fence

    @property
    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self._begun_s) * 1000)

    @property
    def now_ms(self) -> int:
        """The server's time: that of our start and what passed since; this host's clock may be wrong."""
        return self._started_ms + self.elapsed_ms

    def attempt(self, spec: ModelSpec) -> Attempt:
        """Return what the slot runs. Raises ValueError, KeyError or TypeError if the body is not a job's."""
        asked = orjson.loads(self._body.partition(b"\n")[0])
        self.pins = read_pins(asked)
        self.asked = Attempt(
            job=self.right.job_id,
            fence=self.right.fence,
            model=spec,
            inputs={"prompt": asked["prompt"], **(self._brought or asked.get("input", {}))},
            budget_bytes=budget_of(self.right.offer, spec),
            scratch=self.scratch,
            log_path=self.log_path,
            limits=Limits(self.right.offer.timeout_ms / 1000, spec.silence_s),
            alone=self.right.offer.alone,
        )
        return self.asked

    def has_files(self, spec: ModelSpec) -> bool:
        """Tell whether something has to be brought before author code runs."""
        return bool(spec.schema.files) or _HAS_ARTIFACTS in self._body

    async def bring(self, files: InputFiles, spec: ModelSpec) -> None:
        """Bring the files that the inputs name. Raises InputFault; ValueError, KeyError if the body is not a job's."""
        asked = orjson.loads(self._body.partition(b"\n")[0])
        wanted = Wanted(
            key=f"{self.right.job_id}.{self.right.fence}",
            fields=asked.get("input", {}),
            pools=asked.get(ARTIFACT_POOLS, {}),
            tenant_id=self.right.offer.tenant_id,
            now_ms=self.now_ms,
        )
        self._brought, self.file_digests = await files.bring(wanted, spec.schema.files, self.scratch)
        if (pins := read_pins(asked)) is not None:
            _hold(pins, self.file_digests)

    def upload(self, index: int, file: ArtifactFile) -> Upload:
        """Describe file number `index` of this attempt for the store."""
        job_id, now_ms = self.right.job_id, self.now_ms
        return Upload(
            id=artifact_id(job_id, self.right.fence, index),
            pool=self.right.pool,
            job_id=job_id,
            tenant_id=self.right.offer.tenant_id,
            name=file.name,
            kind=file.kind,
            variant=file.variant,
            width=file.width,
            height=file.height,
            created_ms=now_ms,
            expires_at_ms=now_ms + round(self._keep_s * 1000),
        )

    def follow_log(self, path: Path) -> None:
        """Show what the child prints from now on; in a batch it is the log of the pass that all share."""
        self.log_at = path
        self.live_log.follow(path)

    def log_upload(self) -> Upload:
        """Describe the attempt's log for the store."""
        file = ArtifactFile(*self.key, f"{self.key[0]}.{self.key[1]}.log", "", "log", "log", None, None)
        return replace(self.upload(0, file), id=log_id(*self.key), mime="text/plain; charset=utf-8")

    def on_load_started(self) -> None:
        self._tell(ev.ModelLoadStarted(model=self.right.offer.model))

    def on_loaded(self, loaded: Loaded) -> None:
        self.load_ms = round(loaded.ms)
        self._tell(
            ev.ModelLoadCompleted(
                model=self.right.offer.model, ms=self.load_ms, bytes=loaded.bytes, evicted=loaded.evicted
            )
        )

    def on_telemetry(self, frame: Telemetry) -> None:
        match frame:
            case Progress():
                self._total_steps = int(frame.total) if frame.total else None
                self.writer.telemetry.add_progress(frame, time.monotonic())
                self.writer.flush_soon()
            case Milestone():
                self.writer.telemetry.add_milestone(frame)
                self.writer.flush_soon()
            case ArtifactFile():
                self.files.append(frame)
            case Preview():
                self.previews.show(frame, self._total_steps)

    def _tell(self, event: ev.Event) -> None:
        self.writer.telemetry.add(event)
        self.writer.flush_soon()

    async def _show_log(self, offset: int, data: bytes) -> None:
        await self._live.publish(self.right.pool, Piece(*self.key, offset, data))

    async def _store_preview(self, frame: Preview) -> ev.ArtifactRef:
        file = ArtifactFile(frame.job, frame.fence, frame.name, frame.file, "preview", "preview", None, None)
        upload = replace(self.upload(0, file), id=preview_id(self.right.job_id))
        try:
            return await self._intake.store(self.scratch, frame.file, upload, LIMIT_BYTES)
        except OSError:  # the next one will do
            await self._intake.discard(upload.id)
            raise


def _hold(pins: Pins, digests: Mapping[str, str]) -> None:
    """Refuse other files than the job to be given again had. Raises InputFault."""
    for pointer, digest in pins.files.items():
        if digests.get(pointer) != digest:
            message = f"the file of {pointer} is not the one that {pins.job} was given"
            raise InputFault("input_rejected", message, retryable=False)


def budget_of(offer: Offer, spec: ModelSpec) -> int:
    """Return the bytes a job may use; 0: all there is, as nobody has measured it, or as it is to be alone."""
    return 0 if offer.alone else offer.bytes or spec.vram_bytes


@lru_cache(maxsize=256)  # directories are used again, and making a path costs more than it seems
def log_path(scratch: Path) -> Path:
    """Return where the log of the attempt with this scratch directory is written: beside it, out of its reach."""
    return scratch.with_name(scratch.name + ".log")
