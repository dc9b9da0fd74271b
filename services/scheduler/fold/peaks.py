"""What jobs were seen to need of a device beyond what they were created with, by model and bucket. A fold. Pure.

Promises: the most that was told of a bucket counts; bounded, whatever is told. An audit takes back all of its model.
"""

MOST_MODELS = 1024  # the one of which was told first makes room
MOST_BUCKETS = 256  # of a model; later ones share one figure
_OTHERS = ""


class Peaks:
    """Bytes to reserve, by model and bucket."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}  # bucket "": jobs without one, and those of all later buckets

    def bytes(self, model: str, bucket: str) -> int:
        """Return what a job of the bucket needs at least; 0 where nothing was told.

        >>> peaks = Peaks(); peaks.learn("a@1", "n=1", 7); peaks.learn("a@1", "n=1", 5)
        >>> peaks.bytes("a@1", "n=1"), peaks.bytes("a@1", "n=2"), peaks.bytes("b@1", "")
        (7, 0, 0)
        """
        of_model = self._of.get(model)
        return 0 if of_model is None else of_model.get(bucket) or of_model.get(_OTHERS, 0)

    def learn(self, model: str, bucket: str, needed_bytes: int) -> None:
        """Fold one figure."""
        if model not in self._of and len(self._of) >= MOST_MODELS:
            del self._of[next(iter(self._of))]
        of_model = self._of.setdefault(model, {})
        key = bucket if bucket in of_model or len(of_model) < MOST_BUCKETS else _OTHERS
        of_model[key] = max(of_model.get(key, 0), needed_bytes)

    def forget(self, model: str) -> None:
        """Take back what was told of a model."""
        self._of.pop(model, None)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return all figures."""
        return {model: dict(buckets) for model, buckets in self._of.items()}

    def restore(self, of: dict[str, dict[str, int]]) -> None:
        """Take over figures from a snapshot."""
        self._of = {model: dict(buckets) for model, buckets in of.items()}
