"""What is known about a model before it runs: one frozen `ModelSpec` for each table of pipelines.toml.

Promises: immutable, complete (defaults filled in, paths absolute), looked up by `name` or `name@version`.
Does not read files (`models.py` does). What a model needs of a device is measured by an audit and comes as its profile.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from contracts import buckets, model_inputs
from contracts.model_inputs import InputFault, InputSchema
from contracts.profiles import ModelProfiles, Prediction, predict_for


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """An external rate limit shared by all workers: at most `rate` units in any window of `window_s`."""

    name: str
    rate: int
    window_s: float


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model: where its code is, what may be asked of it, what a job of it may use."""

    name: str
    version: str
    entry: Path
    inputs: Path
    schema: InputSchema = field(repr=False, compare=False)
    pools: tuple[str, ...]  # the first one is the default of the model
    vram_mib: int | None  # what its author says; None: nobody knows
    max_batch: int
    timeout_s: float
    silence_s: float | None  # None: no limit on the time since the last progress
    interpreter: str  # "": the worker's own
    env: Mapping[str, str] = field(repr=False, hash=False)  # may hold an author's tokens: kept out of logs
    resources: Mapping[str, int] = field(hash=False)
    cost_inputs: tuple[str, ...] = ()  # they decide how long a job takes
    vram_grid: Mapping[str, tuple[int | float, ...]] = field(default_factory=dict, hash=False)
    profile: ModelProfiles | None = field(default=None, repr=False, compare=False)  # what an audit has measured
    keep_warm_s: float | None = None  # for which it stays loaded unused; None: until its room is needed
    pin: bool = False  # once loaded it stays

    @property
    def reference(self) -> str:
        """The full name, `name@version`, as it is stored with a job."""
        return f"{self.name}@{self.version}"

    @property
    def vram_bytes(self) -> int:
        """Bytes to reserve on a device until an audit has measured better; 0: nobody knows."""
        return (self.vram_mib or 0) * 1024 * 1024


class ModelRegistry:
    """All models of one pipelines.toml, in the order of the file. Of them only what was measured may change."""

    def __init__(
        self, specs: tuple[ModelSpec, ...], resources: Mapping[str, ResourceSpec], base: Path = Path()
    ) -> None:  # fmt: skip
        self._set(specs)
        self.resources = resources
        self.base = base  # the folder of the file

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def find(self, reference: str) -> ModelSpec | None:
        """Return the model called `name` or `name@version`; None when there is no such model or version."""
        return self._by_reference.get(reference)

    def put_profile(self, reference: str, profile: ModelProfiles | None) -> None:
        """Replace what was measured of a model; who has its spec already goes on with the old one."""
        self._set(tuple(replace(spec, profile=profile) if spec.reference == reference else spec for spec in self.specs))

    def _set(self, specs: tuple[ModelSpec, ...]) -> None:
        self.specs = specs
        self._by_reference = {key: spec for spec in specs for key in (spec.name, spec.reference)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models, in the order of the file."""
        return tuple(spec.name for spec in self.specs)

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool a model names, sorted."""
        return tuple(sorted({pool for spec in self.specs for pool in spec.pools}))


def check_input(spec: ModelSpec, prompt: object, fields: Mapping[str, object]) -> tuple[InputFault, ...]:
    """Check a request's `prompt` (None when absent) and `input` against the model; empty when all is well."""
    return model_inputs.check_input(spec.schema, prompt, fields)


def draw_seed(spec: ModelSpec, fields: Mapping[str, object], random_bits: int) -> dict[str, object]:
    """Return `fields` with a missing `seed` drawn from `random_bits` if the model has one."""
    return model_inputs.draw_seed(spec.schema, fields, random_bits)


def bucket_of(spec: ModelSpec, fields: Mapping[str, object]) -> str | None:
    """Return the bucket of a job with these inputs: jobs of one bucket take about the same time."""
    return buckets.bucket_of(spec.schema, spec.cost_inputs, fields)


def predict_vram(
    spec: ModelSpec, fields: Mapping[str, object], fleet: Sequence[tuple[str, bool]] = ()
) -> Prediction:  # fmt: skip
    """Return what a job with these inputs needs of a device; see `profiles.predict_for`."""
    profile = spec.profile
    if profile is None or not profile.profiles:
        return Prediction(spec.vram_bytes, spec.vram_bytes)
    values = [value for _, value in buckets.given(spec.schema, profile.inputs, fields)]
    try:
        return _predicted(profile, tuple(fleet), spec.vram_bytes, *values)
    except TypeError:  # a list or object, which is no number and cannot be remembered
        return predict_for(profile, {}, fleet, spec.vram_bytes)


@lru_cache(maxsize=4096, typed=True)
def _predicted(
    profile: ModelProfiles, fleet: tuple[tuple[str, bool], ...], declared_bytes: int, *values: object
) -> Prediction:  # fmt: skip
    # Most jobs of a model have parameters that another one had.
    return predict_for(profile, dict(zip(profile.inputs, values, strict=True)), fleet, declared_bytes)


def describe(spec: ModelSpec) -> dict[str, object]:
    """Return what callers may know: no paths, no environment, no interpreter."""
    return {
        "name": spec.name,
        "version": spec.version,
        "pools": list(spec.pools),
        "vramMib": spec.vram_mib,
        "maxBatch": spec.max_batch,
        "timeoutSeconds": spec.timeout_s,
        "silenceSeconds": spec.silence_s,
        "resources": dict(spec.resources),
        "inputs": dict(spec.schema.document),
    }
