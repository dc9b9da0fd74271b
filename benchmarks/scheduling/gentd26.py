"""Load that looks like Alibaba's GenTD26 (image generation served to 4,247 tenants; 26,823 requests). Pure, seeded.

The numbers are a fit of that public trace: run times lognormal inside a model, models and tenants by Zipf's law, a
tenant mostly asks for the model it asked for before, loading is quick where the weights lie in the host's cache and
slow where not, LoRA and the number of pictures decide how long a run takes, and no hour or day is like another where
`tide` says so. The trace itself is not here.
"""

import math
import operator
import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from contracts.events import Tier
from services.scheduler.simulate.arrivals import Arrival

GIB = 1 << 30
MODEL_ZIPF, MODEL_SHIFT = 2.35, 2.8  # the shift meets top 1, 5 and 10 at once, which plain 1.43 does not
TENANT_ZIPF = 0.81
SAME_MODEL = 0.72  # as the same tenant's job before
SESSION_GAP_S = 105.0  # mean inside a tenant's session; the median is the trace's 73 s
RUN_SIGMA = 0.30  # inside one model and bucket
MODEL_SIGMA = 0.40  # between models
COLD_LOAD_S = 29.0
CACHED_LOADS = 0.27  # of all loads, from the host's cache
IMAGES = ((1, 0.58, 20), (2, 0.08, 24), (4, 0.19, 29), (8, 0.15, 30))  # pictures, share of jobs, median s
LORA_SHARE, LORA_FACTOR = 0.17, 2.1
MEAN_RUN_S = 28.7
DAY_VARIANCE, HOUR_VARIANCE = 0.57, 1.4  # of the rate, as a multiple of its mean: dispersion 670 in days, 140 in hours
# mean of a job's run over the median of its model's plainest jobs
_COST = (
    sum(share * median_s / 20 for _, share, median_s in IMAGES)
    * (1 + LORA_SHARE * (LORA_FACTOR - 1))
    * math.exp(RUN_SIGMA**2 / 2)
)


@dataclass(frozen=True, slots=True)
class Model:
    """A model: the median of its plainest runs and of its cold loads, and what it holds in memory."""

    name: str
    run_s: float
    load_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """Tenants of one tier. `load`: how much of the fleet's time they ask for, 1.0 is all of it. `session`: how many
    jobs a tenant sends in a row, in the mean; 1 is a steady stream.
    """

    tier: Tier
    load: float
    tenants: int
    session: int = 1


@dataclass(frozen=True, slots=True)
class Burst:
    """Arrivals come `factor` times as densely for `on_s`, and hardly for `off_s`."""

    factor: float
    on_s: float
    off_s: float


def models(
    chance: random.Random, count: int = 87, run_s: float | None = None, load_s: float | None = None
) -> list[Model]:
    """Return models by popularity; `run_s` and `load_s` give all of them the same medians."""
    drawn = [run_s or math.exp(chance.gauss(0, MODEL_SIGMA)) for _ in range(count)]
    # what the popular ones take decides the mean of all, so it is set to the trace's
    mean_s = sum(map(operator.mul, drawn, _shares(_zipf(count, MODEL_ZIPF, MODEL_SHIFT)))) * _COST
    scale = 1 if run_s else MEAN_RUN_S / mean_s
    return [
        Model(
            f"base{i:02}@1",
            median_s * scale,
            load_s or COLD_LOAD_S * chance.uniform(0.85, 1.15),
            chance.choice((2, 4, 5, 7, 7, 9, 12)) * GIB,
        )
        for i, median_s in enumerate(drawn)
    ]


def tide(chance: random.Random, seconds: float) -> list[float]:
    """Return by how much each hour is busier than the mean; the mean of all is 1."""
    days = [_gamma(chance, DAY_VARIANCE) for _ in range(math.ceil(seconds / 86_400))]
    hours = [days[hour // 24] * _gamma(chance, HOUR_VARIANCE) for hour in range(math.ceil(seconds / 3600))]
    mean = sum(hours) / len(hours)
    return [hour / mean for hour in hours]


def arrivals(
    chance: random.Random, known: Sequence[Model], crowds: Sequence[Crowd], devices: int, seconds: float,
    burst: Burst | Sequence[float] | None = None,
) -> list[Arrival]:  # fmt: skip
    """Return the jobs of `seconds`, in order of arrival; `burst`: bursts, or the tide of the hours."""
    made = [job for crowd in crowds for job in _of_crowd(chance, known, crowd, devices, seconds, burst)]
    return sorted(made, key=lambda job: (job.at_ms, job.job_id))


def flood(chance: random.Random, model: Model, tenant_id: str, count: int, at_ms: int) -> list[Arrival]:
    """Return many jobs of one tenant at one moment."""
    return [
        _job(chance, f"{tenant_id}-{number:06}", at_ms, tenant_id, "standard", model)
        for number in range(count)
    ]  # fmt: skip


def _of_crowd(
    chance: random.Random, known: Sequence[Model], crowd: Crowd, devices: int, seconds: float,
    burst: Burst | Sequence[float] | None,
) -> list[Arrival]:  # fmt: skip
    jobs: list[Arrival] = []
    popular, loyal = _zipf(len(known), MODEL_ZIPF, MODEL_SHIFT), _zipf(crowd.tenants, TENANT_ZIPF)
    last: dict[str, Model] = {}
    mean_s = sum(model.run_s * share for model, share in zip(known, _shares(popular), strict=True)) * _COST
    per_s = crowd.load * devices / mean_s
    # sessions begin before the clock does, or the first minutes would be too quiet
    for begin_s in _times(chance, per_s / crowd.session, (1 - crowd.session) * SESSION_GAP_S, seconds, burst):
        tenant = f"t_{crowd.tier}-{_draw(chance, loyal):04}"
        at_s = begin_s
        while True:
            model = last.get(tenant)
            if model is None or chance.random() >= SAME_MODEL:
                model = last[tenant] = known[_draw(chance, popular)]
            if 0 <= at_s < seconds:
                jobs.append(_job(chance, f"{crowd.tier}-{len(jobs):06}", round(at_s * 1000), tenant, crowd.tier, model))
            if chance.random() < 1 / crowd.session:
                break
            at_s += chance.expovariate(1 / SESSION_GAP_S)
    return jobs


def _job(chance: random.Random, job_id: str, at_ms: int, tenant: str, tier: Tier, model: Model) -> Arrival:
    images, median_s = _pictures(chance)
    lora = chance.random() < LORA_SHARE
    run_s = model.run_s * median_s / 20 * (LORA_FACTOR if lora else 1) * math.exp(chance.gauss(0, RUN_SIGMA))
    load_s = chance.uniform(2, 4) if chance.random() < CACHED_LOADS else model.load_s * chance.uniform(0.35, 1.6)
    return Arrival(
        job_id, at_ms, tenant, model.name, max(1000, round(run_s * 1000)), round(load_s * 1000), tier,
        bucket=f"images={images};lora={int(lora)}", bytes=model.bytes,
    )  # fmt: skip


def _pictures(chance: random.Random) -> tuple[int, int]:
    at = chance.random()
    for images, share, median_s in IMAGES:
        if at < share:
            return images, median_s
        at -= share
    return IMAGES[-1][0], IMAGES[-1][2]


def _times(
    chance: random.Random, per_s: float, begin_s: float, end_s: float, burst: Burst | Sequence[float] | None
) -> Iterator[float]:  # fmt: skip
    if burst is None:
        yield begin_s
    for since_s, until_s, density in _phases(begin_s, end_s, burst):
        at_s = since_s  # Poisson's process forgets, so it may begin anew where its rate changes
        while (at_s := at_s + chance.expovariate(max(1e-12, per_s * density))) < until_s:
            yield at_s


def _phases(
    begin_s: float, end_s: float, burst: Burst | Sequence[float] | None
) -> Iterator[tuple[float, float, float]]:  # fmt: skip
    """Yield from when until when arrivals are how dense."""
    if burst is None:
        yield begin_s, end_s, 1.0
    elif isinstance(burst, Burst):
        cycle_s = burst.on_s + burst.off_s
        low = max(0.0, (cycle_s - burst.factor * burst.on_s) / burst.off_s)
        for cycle in range(math.floor(begin_s / cycle_s), math.ceil(end_s / cycle_s)):
            on_s = cycle * cycle_s
            yield max(begin_s, on_s), min(end_s, on_s + burst.on_s), burst.factor
            yield max(begin_s, on_s + burst.on_s), min(end_s, on_s + cycle_s), low
    else:
        for hour, factor in enumerate(burst):
            yield hour * 3600, min(end_s, (hour + 1) * 3600), factor


def _gamma(chance: random.Random, variance: float) -> float:
    return chance.gammavariate(1 / variance, variance)


def _zipf(count: int, exponent: float, shift: float = 0.0) -> list[float]:
    return list(accumulate(1 / (rank + 1 + shift) ** exponent for rank in range(count)))


def _shares(cumulated: Sequence[float]) -> list[float]:
    return [(high - low) / cumulated[-1] for low, high in zip((0.0, *cumulated), cumulated, strict=False)]


def _draw(chance: random.Random, cumulated: Sequence[float]) -> int:
    return bisect(cumulated, chance.random() * cumulated[-1])
