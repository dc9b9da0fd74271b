"""What happens inside an attempt: the model, the author's milestones, files."""

from typing import ClassVar

from contracts.events.root import ArtifactRef, Event


class ModelLoadStarted(Event):
    """worker: a cold model is being loaded."""

    TYPE: ClassVar[str] = "model.load_started"
    model: str


class ModelLoadCompleted(Event):
    """worker: the model is resident."""

    TYPE: ClassVar[str] = "model.load_completed"
    model: str
    ms: int
    bytes: int | None = None  # that it holds, where the device can tell
    evicted: tuple[str, ...] | None = None  # models that left to make room; None: a slot holds one, so all others


class PromptEncoded(Event):
    """author: the text is encoded."""

    TYPE: ClassVar[str] = "prompt.encoded"
    ms: int | None = None
    tokens: int | None = None


class LatentsDecoded(Event):
    """author: latents became pixels."""

    TYPE: ClassVar[str] = "latents.decoded"
    step: int | None = None
    shape: tuple[int, ...] | None = None
    ms: int | None = None


class FrameRendered(Event):
    """author: one frame of a video is done."""

    TYPE: ClassVar[str] = "frame.rendered"
    index: int
    total: int | None = None


class PreviewAvailable(Event):
    """worker: the job's preview file was replaced; only the reference is kept, older bytes are gone."""

    TYPE: ClassVar[str] = "preview.available"
    artifact_id: str
    path: str
    mime: str
    bytes: int
    step: int | None = None
    total_steps: int | None = None


class ThumbnailReady(Event):
    """worker: a thumbnail is stored."""

    TYPE: ClassVar[str] = "thumbnail.ready"
    artifact: ArtifactRef


class ArtifactUploadStarted(Event):
    """worker: the slot is free, this file is on its way to the store."""

    TYPE: ClassVar[str] = "artifact.upload_started"
    artifact_id: str
    kind: str
    variant: str
    bytes: int


class ArtifactUploaded(Event):
    """worker: this file is stored and readable."""

    TYPE: ClassVar[str] = "artifact.uploaded"
    artifact: ArtifactRef
    ms: int


class MilestoneReached(Event):
    """author: any milestone without a name of its own."""

    TYPE: ClassVar[str] = "milestone.reached"
    name: str
    data: dict[str, str | int | float | bool | None] | None = None
