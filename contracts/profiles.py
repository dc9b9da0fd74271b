"""What an audit has measured of a model's memory, and what follows for a job: the bytes to reserve for its parameters.

Pure. A profile belongs to one model on one kind of device; a model's file holds one for each device it was measured on.
Promises: no job reserves less than the same parameters took in the audit; more of a parameter never reserves less;
beyond half as much again as the largest measured point nothing is trusted, the job has a device for itself. Does not
promise anything about inputs that were not in the grid: that is what drift is watched for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from contracts.profile_fit import Fit, Inputs, dominates, fit_points, product_of

HEADROOM_PERCENT = 8  # above the measured peak: repeats differ, and worst errors up to 5 % are accepted
PADDING_PERCENT = 25  # where the profile was measured on something else
OOM_PERCENT = 10  # above the peak of a job that had run out of memory before
DRIFT_PERCENT = 5  # a peak in production that is further above the profile raises it
MOST_BYTES = 1 << 62


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class Machine(_Part):
    """What a measurement depends on beside the parameters."""

    kind: str  # cuda, rocm, cpu; a simulated device is a CPU with a limit
    name: str = ""  # NVIDIA L4; of a CPU its architecture
    driver: str = ""
    runtimes: dict[str, str] = {}  # version of what allocates: torch, onnxruntime ...
    revision: str = ""  # digest of the model's folder

    @property
    def device(self) -> str:
        """What a profile is looked up by."""
        return f"{self.kind}/{self.name}"


class Point(_Part):
    """One set of parameters: the highest of its peaks, or none where it ran out of memory."""

    inputs: dict[str, int | float] = {}
    peak_bytes: int | None = Field(default=None, ge=0)
    run_ms: int | None = None


class Profile(_Part):
    """A model on one kind of device."""

    machine: Machine
    budget_bytes: int = Field(gt=0)  # what a point without a peak did not fit into
    context_bytes: int = Field(default=0, ge=0)  # of a process, whatever it computes
    weights_bytes: int | None = None  # what a child holds once the model is loaded, before it has run
    load_peak_bytes: int | None = Field(default=None, ge=0)  # the most it held until then; a job may have to load
    points: tuple[Point, ...] = Field(min_length=1)
    fit: Fit
    measured_at: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not any(point.peak_bytes is not None for point in self.points):
            raise ValueError("no point has a peak")
        if any(set(point.inputs) != set(self.fit.inputs) for point in self.points):
            raise ValueError("a point does not have the inputs of the fit")
        return self


class ModelProfiles(_Part):
    """The file of one model."""

    model: str
    profiles: tuple[Profile, ...] = ()

    def __hash__(self) -> int:
        return hash(self.model)  # it is compared with itself, mostly

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the memory of a job depends on."""
        return tuple(sorted({name for profile in self.profiles for name in profile.fit.inputs}))

    def of(self, device: str) -> Profile | None:
        """Return what was measured on this kind of device."""
        return next((profile for profile in self.profiles if profile.machine.device == device), None)

    def nearest(self, device: str) -> tuple[Profile, ...]:
        """Return what was measured on this kind of device, else on others that compute in the same way."""
        own = self.of(device)
        kind = device.partition("/")[0]
        return (own,) if own else tuple(profile for profile in self.profiles if profile.machine.kind == kind)

    def with_profile(self, profile: Profile) -> "ModelProfiles":
        """Return the file with this profile in place of an older one of the same device."""
        others = (each for each in self.profiles if each.machine.device != profile.machine.device)
        profiles = sorted((*others, profile), key=lambda each: each.machine.device)
        return self.model_copy(update={"profiles": tuple(profiles)})

    def to_json(self) -> str:
        """Return the text of the file."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a job needs. `alone`: nobody has measured that much, it gets a device for itself."""

    bytes: int  # to reserve: with headroom, and padding if need be
    least_bytes: int  # a smaller device cannot hold it, as far as is known
    alone: bool = False


def read_profiles(text: bytes) -> ModelProfiles:
    """Read a profile file. Raises ValueError with the first thing that is wrong."""
    try:
        return ModelProfiles.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def make_profile(
    machine: Machine, inputs: Sequence[str], points: Sequence[Point], budget_bytes: int, context_bytes: int = 0,
    measured_at: str = "", weights_bytes: int | None = None, load_peak_bytes: int | None = None,
) -> Profile:  # fmt: skip
    """Fit what was measured. Raises ValueError if no point has a peak."""
    measured = [(point.inputs, point.peak_bytes) for point in points]
    return Profile(
        machine=machine, budget_bytes=budget_bytes, context_bytes=context_bytes, points=tuple(points),
        fit=fit_points(tuple(inputs), measured), measured_at=measured_at, weights_bytes=weights_bytes,
        load_peak_bytes=load_peak_bytes,
    )  # fmt: skip


def predict(profile: Profile, inputs: Mapping[str, object]) -> Prediction:
    """Return what to reserve for a job with these inputs on the device that was measured."""
    peak_bytes, alone = expect(profile, inputs)
    context_bytes = profile.context_bytes
    return Prediction(min(MOST_BYTES, context_bytes + reserved(peak_bytes)), context_bytes + peak_bytes, alone)


def expect(profile: Profile, inputs: Mapping[str, object]) -> tuple[int, bool]:
    """Return the peak of a job with these inputs, be it in its load or its run; is it only the least that it can be?"""
    peak_bytes, alone = expect_of_run(profile, inputs)
    return max(peak_bytes, profile.load_peak_bytes or 0), alone


def expect_of_run(profile: Profile, inputs: Mapping[str, object]) -> tuple[int, bool]:
    """Return the peak of a run with these inputs, and whether it is only the least that it can be."""
    fit = profile.fit
    values = _values(fit.inputs, inputs)
    if values is None:  # the pipeline decides for itself: no less than the largest that is known
        return fit.largest_peak_bytes, True
    if fit.kind == "table":
        return _from_table(profile, values)
    x = product_of(fit.inputs, values)
    if fit.out_of_memory_from is not None and x >= fit.out_of_memory_from:
        return max(fit.peak_bytes(x), profile.budget_bytes + 1), True
    return fit.peak_bytes(x), x > fit.reaches


def predict_for(
    profiles: ModelProfiles, inputs: Mapping[str, object], fleet: Sequence[tuple[str, bool]], declared_bytes: int
) -> Prediction:  # fmt: skip
    """Return what to reserve where it is not known yet which device will run the job: the most any of them needs.

    Args:
        fleet: the devices that may get it, each with whether it is unlike what was measured; without one, all measured.
        declared_bytes: what its author says, for devices that compute in another way (a CPU, a GPU); 0: nobody knows.
    """
    known = fleet or [(profile.machine.device, False) for profile in profiles.profiles]
    found = []
    for device, is_unlike in known:
        measured = profiles.nearest(device)
        found += [padded(one) if is_unlike else one for one in (predict(profile, inputs) for profile in measured)]
        if not measured and not declared_bytes:
            return Prediction(0, 0)
        if not measured:
            found.append(Prediction(declared_bytes, declared_bytes))
    least_bytes = min(one.least_bytes for one in found)  # the least needy device may be the one that gets it
    return Prediction(max(one.bytes for one in found), least_bytes, any(one.alone for one in found))


def padded(prediction: Prediction) -> Prediction:
    """Return more, for what was measured on something else.

    >>> padded(Prediction(1000, 1000)).bytes
    1250
    """
    return replace(prediction, bytes=_more(prediction.bytes, PADDING_PERCENT))


def reserved(peak_bytes: int) -> int:
    """Return what is reserved for a job that was seen to take so much.

    >>> reserved(1000), reserved(0), reserved(1)
    (1080, 0, 2)
    """
    return _more(peak_bytes, HEADROOM_PERCENT)


def raised(peak_bytes: int) -> int:
    """Return what is reserved from now on for jobs like one that ran out of memory and then took so much.

    >>> raised(1000), raised(1)
    (1100, 2)
    """
    return _more(peak_bytes, OOM_PERCENT)


def concurrency(device_bytes: int, reserve_bytes: int, context_bytes: int, peak_bytes: int) -> int:
    """Return how many children with jobs of this peak fit on a device at once, exactly.

    >>> concurrency(8 << 30, 0, 0, 1 << 30), concurrency(8 << 30, 1 << 30, 400 << 20, 1 << 30)
    (7, 4)
    """
    return max(0, device_bytes - reserve_bytes) // max(1, context_bytes + reserved(peak_bytes))


def has_drifted(profile: Profile, inputs: Mapping[str, object], peak_bytes: int) -> bool:
    """Whether a job took more than its profile says by more than what is put down to chance."""
    return peak_bytes * 100 > expect(profile, inputs)[0] * (100 + DRIFT_PERCENT)


def unlike(profile: Profile, here: Machine) -> tuple[str, ...]:
    """Say in what `here` differs from where the profile was measured; empty where it can be trusted."""
    there = profile.machine
    faults = [
        f"{name} {ours or 'unknown'} here, {theirs or 'unknown'} in the audit"
        for name, ours, theirs in (
            ("device", here.device, there.device), ("driver", here.driver, there.driver),
            ("model's files", here.revision, there.revision),
        )
        if ours != theirs
    ]  # fmt: skip
    for name, theirs in sorted(there.runtimes.items()):  # what was not used then does not matter now
        ours = here.runtimes.get(name, "absent")
        if ours != theirs:
            faults.append(f"{name} {ours} here, {theirs} in the audit")
    return tuple(faults)


def _values(names: Sequence[str], inputs: Mapping[str, object]) -> dict[str, float] | None:
    values: dict[str, float] = {}
    for name in names:
        value = inputs.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            return None
        values[name] = value
    return values


def _from_table(profile: Profile, values: Inputs) -> tuple[int, bool]:
    """Read the next grid point upwards; a point counts for no less than a smaller one."""
    known = [(point.inputs, point.peak_bytes) for point in profile.points if point.peak_bytes is not None]
    largest_bytes = profile.fit.largest_peak_bytes
    if any(dominates(values, point.inputs) for point in profile.points if point.peak_bytes is None):
        return max(largest_bytes, profile.budget_bytes + 1), True
    upwards = [
        max(below_bytes for below, below_bytes in known if dominates(inputs, below))
        for inputs, _ in known
        if dominates(inputs, values)
    ]
    return min(upwards, default=largest_bytes), not upwards


def _more(amount: int, percent: int) -> int:
    return min(MOST_BYTES, -(-amount * (100 + percent) // 100))
