"""How long a job of a model occupies a device, learnt from what was measured. A fold: integers, no clock.

The nearest knowledge counts: the model's own average, else that of all models, else a constant. Estimates are never
exact, which is why every charge is trued up afterwards.
"""

UNKNOWN_MS = 10_000
SHIFT = 3  # each measurement moves the average by an eighth of the difference
_ALL = ""


class Estimates:
    """Moving averages of device time by model, in ms."""

    def __init__(self) -> None:
        self._average: dict[str, int] = {}

    def of(self, model: str) -> int:
        """Return the estimate for the next job of `model`.

        >>> estimates = Estimates(); estimates.learn("a", 800); estimates.learn("a", 1600); estimates.of("a")
        900
        """
        return self._average.get(model) or self._average.get(_ALL) or UNKNOWN_MS

    def learn(self, model: str, device_ms: int) -> None:
        """Fold one measurement; nothing costs less than a millisecond."""
        for name in (model, _ALL):
            before = self._average.get(name)
            self._average[name] = max(1, device_ms if before is None else before + (device_ms - before >> SHIFT))

    def snapshot(self) -> dict[str, int]:
        """Return all averages."""
        return dict(self._average)

    def restore(self, averages: dict[str, int]) -> None:
        """Take over averages from a snapshot."""
        self._average = dict(averages)
