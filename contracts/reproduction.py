"""What a reproduction is held to, and how near it came: pins in the body of the new job, and the verdict. Pure.

Promises: equal files and an equal result are `exact`; otherwise the distance is 0 to 1, the largest
of any file's and the result's, and what of the pins was another one in the end is named.
"""

from collections.abc import Iterable
from typing import Any

from contracts.events import Manifest, Match, Reproduction
from contracts.events.root import Part

PINS = "reproduces"  # in a job's body
CLOSE = 0.01  # of full scale: pictures whose pixels differ by 2.5 of 255 on average look the same
MOST_RESULT_BYTES = 65_536  # of the first job's result; a larger one is not compared
_PINNED = ("model_hash", "code_version", "device", "batch_size")


class PinnedFile(Part):
    """A file of the first job."""

    id: str
    sha256: str


class Pins(Part):
    """What the first job ran with and made. `files`: digests of its input files by JSON Pointer."""

    job: str
    pool: str
    manifest: Manifest
    files: dict[str, str] = {}
    artifacts: tuple[PinnedFile, ...] = ()
    result: dict[str, Any] | None = None


def read_pins(spec: dict[str, Any]) -> Pins | None:
    """Return the pins in a job's body. Raises ValueError."""
    found = spec.get(PINS)
    return None if found is None else Pins.model_validate(found)


def verdict(pins: Pins, now: Manifest, distances: Iterable[float | None], *, is_equal: bool) -> Reproduction:
    """Judge by the distance of each file and of the result; None: nobody can say how far it is.

    `is_equal`: byte by byte; pictures may show the same and be written otherwise.
    """
    found = list(distances)
    worst = None if None in found else max((each for each in found if each is not None), default=0.0)
    match: Match = "exact" if is_equal else "different" if worst is None or worst > CLOSE else "close"
    changed = tuple(name for name in _PINNED if getattr(pins.manifest, name) != getattr(now, name))
    names = {"model_hash": "modelHash", "code_version": "codeVersion", "batch_size": "batchSize"}
    return Reproduction(
        of=pins.job, match=match, distance=worst, changed=tuple(names.get(name, name) for name in changed) or None
    )


def result_distance(first: object, second: object) -> float:
    """Return how far two results are from each other: of numbers by their size, else all or nothing.

    >>> result_distance({"a": [1]}, {"a": [1]}), result_distance({"a": 99}, {"a": 100}), result_distance(1, "1")
    (0.0, 0.01, 1.0)
    """
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return max((result_distance(first[name], second[name]) for name in first), default=0.0)
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return max((result_distance(*each) for each in zip(first, second, strict=True)), default=0.0)
    if first == second and type(first) is type(second):
        return 0.0
    if _is_number(first) and _is_number(second):
        assert isinstance(first, int | float)
        assert isinstance(second, int | float)
        return min(1.0, abs(first - second) / (max(abs(first), abs(second)) or 1.0))
    return 1.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
