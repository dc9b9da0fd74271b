"""Profiles against what jobs really take: what has to be told of a job that took more.

Promises: the first job of a bucket that nobody has measured makes a provisional profile; a peak more than a twentieth
above what is known raises it, and so does each job that needed a device for itself; else nothing is told twice, and
whatever is asked there is an end to it. What an earlier job has left in a warm child is not laid at the door of a
smaller one. Does not judge members of a batch: their pass has no peak of each. A job that reaches the end of its slice
has no peak either: it is out of memory.
"""

from collections.abc import Mapping
from typing import NamedTuple

from contracts import events as ev
from contracts.model_spec import ModelSpec, bucket_of
from contracts.profiles import DRIFT_PERCENT, expect, raised, reserved
from services.gpu_worker.devices import Device
from services.gpu_worker.machine import device_key

MOST_BUCKETS = 256  # of a model; later ones share one figure, as they do where it is folded
_OTHERS = ""


class Seen(NamedTuple):
    """A completed run: what was asked, what it took, whether its child was fresh."""

    spec: ModelSpec
    inputs: Mapping[str, object]
    peak_bytes: int
    device: Device
    room_bytes: int  # that a job may have there
    is_fresh: bool
    after_oom: bool = False  # it ran out of memory before, and this was with a device for itself


class ProfileWatch:
    """What this supervisor knows and has told; it forgets with its process, and may tell once more after that."""

    def __init__(self) -> None:
        # device and model -> bucket -> the highest peak and the most bytes that were told
        self._told: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        self._left: dict[tuple[str, str], int] = {}  # device and model -> what its jobs may have left in the child

    def saw(self, seen: Seen) -> ev.ModelProfiled | None:
        """Return what has to be told of a run."""
        spec, device = seen.spec, device_key(seen.device)
        measured = spec.profile.nearest(device) if spec.profile else ()
        context_bytes = max((profile.context_bytes for profile in measured), default=0)
        peak_bytes = max(0, seen.peak_bytes - context_bytes)  # as in the profile
        left_bytes = self._after(seen, peak_bytes)
        bucket = bucket_of(spec, seen.inputs)
        told = self._told.setdefault((device, spec.reference), {})
        key = bucket or "" if bucket in told or len(told) < MOST_BUCKETS else _OTHERS
        expected = [expect(profile, seen.inputs)[0] for profile in measured]
        is_new = not measured and key not in told
        told_peak_bytes, told_bytes = told.get(key, (0, 0))
        known_bytes = max(told_peak_bytes, left_bytes, *expected)
        if not seen.after_oom and not is_new and peak_bytes * 100 <= known_bytes * (100 + DRIFT_PERCENT):
            return None
        source: ev.ProfileSource = "oom" if seen.after_oom else "provisional" if is_new else "drift"
        more_bytes = raised(peak_bytes) if seen.after_oom else reserved(peak_bytes)
        needed_bytes = min(seen.room_bytes, context_bytes + more_bytes)
        told[key] = max(told_peak_bytes, peak_bytes), max(told_bytes, needed_bytes)
        if needed_bytes <= told_bytes:  # jobs that were created before run out of memory, too
            return None
        return ev.ModelProfiled(
            model=spec.reference, bucket=bucket, source=source, device=device, peak_bytes=seen.peak_bytes,
            bytes=needed_bytes,
        )  # fmt: skip

    def forget(self, reference: str) -> None:
        """Let go of what was told of a model that was measured anew: the scheduler has forgotten it, too."""
        for key in [key for key in self._told if key[1] == reference]:
            del self._told[key]

    def _after(self, seen: Seen, peak_bytes: int) -> int:
        """Return what earlier jobs may have left in the child of this run, and note the run."""
        child = (seen.device.name, seen.spec.reference)
        left_bytes = 0 if seen.is_fresh else self._left.get(child, 0)
        self._left[child] = max(left_bytes, peak_bytes)
        return left_bytes
