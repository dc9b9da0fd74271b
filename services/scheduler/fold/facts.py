"""What the policy is told, fact by fact. Pure."""

from dataclasses import dataclass

from contracts.events import PolicyFacts
from services.scheduler.fold.accounts import DEFAULT_WEIGHT_MILLI
from services.scheduler.fold.lines import Waiting
from services.scheduler.fold.placement import Place


@dataclass(frozen=True, slots=True)
class Waits:
    """A job became eligible."""

    job: Waiting


@dataclass(frozen=True, slots=True)
class Leaves:
    """A job is not eligible any more."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """An eligible job needs other room than was thought; in everything else, its place included, it is the same."""

    job: Waiting


@dataclass(frozen=True, slots=True)
class Charged:
    """A waiting job got its first offer: the estimate counts from now on. `place`: None when it is not known."""

    job_id: str
    tenant_id: str
    user: str
    est_ms: int
    phase: str
    anchor: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Recharged:
    """A job runs far beyond its estimate: so much is charged for it from now on."""

    job_id: str
    device_ms: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A charged job is done with the device after `device_ms`; None: nothing is to be charged."""

    job_id: str
    device_ms: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job is not in flight any more: no offer stands and no attempt runs, uploads included."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Ruled:
    """What the configuration says of a tenant from now on. None: no limit."""

    tenant_id: str
    weight_milli: int = DEFAULT_WEIGHT_MILLI
    tier: str = "standard"
    concurrency: int | None = None
    user_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Nothing of the tenant is offered (it is paused, or its budget of the day is used), or something is again."""

    tenant_id: str
    parked: bool


@dataclass(frozen=True, slots=True)
class Knobbed:
    """The knobs from now on."""

    facts: PolicyFacts


@dataclass(frozen=True, slots=True)
class ModelsPaused:
    """The models, by name or name and version, of which nothing is offered from now on."""

    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tokens:
    """So many starts may draw on the resource now."""

    resource: str
    n: int


PolicyEvent = (
    Waits | Leaves | Replaced | Charged | Recharged | Settled | Ended | Ruled | Parked | Knobbed | ModelsPaused | Tokens
)  # fmt: skip
