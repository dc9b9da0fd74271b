"""How long a job occupies a device, learnt from what was measured. A fold: integers, no clock.

The nearest knowledge counts: the average of the model's jobs with the same bucket, else of all its jobs, else of all
jobs, else a constant. Loading a model is averaged apart from running it, so that an estimate can tell a warm place from
a cold one. Estimates are never exact, which is why every charge is trued up afterwards.
"""

UNKNOWN_MS = 10_000
SHIFT = 3  # each measurement moves the average by an eighth of the difference
MOST_BUCKETS = 256  # of a model; later ones share the model's average
_ALL = ""


class Estimates:
    """Moving averages in ms: of running, by model and bucket, and of loading, by model."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, int]] = {}  # model -> bucket -> average; bucket "" is the whole model
        self._loads: dict[str, int] = {}

    def run_ms(self, model: str, bucket: str = _ALL) -> int:
        """Return the estimate for the next job of `model`, the model being loaded; never 0.

        >>> estimates = Estimates(); estimates.learn_run("a", "", 800); estimates.learn_run("a", "", 1600)
        >>> estimates.run_ms("a"), estimates.run_ms("a", "steps=9"), estimates.run_ms("b")
        (900, 900, 900)
        """
        of_model = self._runs.get(model)
        if of_model is not None:
            return of_model.get(bucket) or of_model[_ALL]
        of_all = self._runs.get(_ALL)
        return UNKNOWN_MS if of_all is None else of_all[_ALL]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was measured: every estimate is a mere constant."""
        return not self._runs

    def knows(self, model: str) -> bool:
        """Whether a run of the model was measured."""
        return model in self._runs

    def load_ms(self, model: str) -> int:
        """Return how long loading the model takes; 0 while nobody has measured it."""
        return self._loads.get(model, 0)

    def learn_run(self, model: str, bucket: str, device_ms: int) -> None:
        """Fold one measurement; nothing costs less than a millisecond."""
        of_model = self._runs.setdefault(model, {})
        if bucket != _ALL and (bucket in of_model or len(of_model) <= MOST_BUCKETS):
            of_model[bucket] = _moved(of_model.get(bucket), device_ms)
        for averages in (of_model, self._runs.setdefault(_ALL, {})):
            averages[_ALL] = _moved(averages.get(_ALL), device_ms)

    def learn_load(self, model: str, load_ms: int) -> None:
        """Fold how long one load took."""
        self._loads[model] = _moved(self._loads.get(model), load_ms)

    def snapshot(self) -> dict[str, dict[str, dict[str, int]] | dict[str, int]]:
        """Return all averages."""
        return {"runs": {model: dict(buckets) for model, buckets in self._runs.items()}, "loads": dict(self._loads)}

    def restore(self, runs: dict[str, dict[str, int]], loads: dict[str, int]) -> None:
        """Take over averages from a snapshot."""
        self._runs = {model: dict(buckets) for model, buckets in runs.items()}
        self._loads = dict(loads)


def _moved(average: int | None, measured: int) -> int:
    return max(1, measured if average is None else average + (measured - average >> SHIFT))
