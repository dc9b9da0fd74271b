"""Base of all events and the values inside them."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Event(BaseModel):
    """Base of all events. Unknown fields are ignored, so that an older reader survives a newer writer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", ser_json_inf_nan="null"
    )
    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1

    def to_json(self) -> str:
        """Return the `d` field of the wire: camelCase JSON without nulls."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True).decode()


class Acted(Event):
    """Base of what somebody with the admin key does: beside `reason` and `by`, from which address and with what.

    The address is that of the connection, so a proxy's where there is one; the client is what it says itself.
    """

    ip: str | None = None
    user_agent: str | None = None


class Part(BaseModel):
    """Base of values inside events."""

    model_config = Event.model_config


class ArtifactRef(Part):
    """A stored file. `path` is below the public URL; the bytes are served until `expires_at_ms`."""

    id: str
    kind: str
    variant: str
    mime: str
    bytes: int
    sha256: str
    path: str
    expires_at_ms: int
    width: int | None = None
    height: int | None = None


class Manifest(Part):
    """What a completed attempt ran with: equal ones give equal bytes for equal inputs. None: could not be read."""

    model_hash: str | None = None  # of the model's files and how they are started
    code_version: str | None = None  # of Headrace and of what computes
    device: str | None = None  # kind and model
    batch_size: int = 1


Match = Literal["exact", "close", "different"]


class Reproduction(Part):
    """How near a job came to the one it reproduces."""

    of: str
    match: Match
    distance: float | None = None  # 0 to 1; None: it could not be measured
    changed: tuple[str, ...] | None = None  # of the manifest, what was another one after all


class Timings(Part):
    """Where the time of a finished attempt went."""

    queued_ms: int | None = None
    model_load_ms: int | None = None
    run_ms: int | None = None
    upload_ms: int | None = None
    gpu_seconds: float | None = None


class ErrorFacts(Part):
    """Why an attempt ended, without any text of the author or the caller (that is in the body)."""

    code: str
    retryable: bool = False
    exit_code: int | None = None
    signal: int | None = None
    phase: str | None = None
    requested_bytes: int | None = None  # out_of_memory, as far as the error said so: what it asked for,
    free_bytes: int | None = None  # what the device had left,
    reserved_bytes: int | None = None  # and what its own allocator held


class SlotInfo(Part):
    """One slot of a worker: what it may hold, in bytes of its device."""

    index: int
    device: str
    kind: str
    bytes: int  # beside what pinned models keep
    models: tuple[str, ...] = ()
    pinned: dict[str, int] | None = None  # bytes that a model keeps: its own jobs have them, too
    total_bytes: int | None = None  # of a GPU, without its reserve: what other programs hold is not in `bytes`
