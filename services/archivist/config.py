"""What the archivist is told: times in ms, sizes as counts. Read from `Settings` in `__main__` only."""

from dataclasses import dataclass

from contracts.retention import Kept, from_settings
from contracts.settings import Settings


@dataclass(frozen=True, slots=True)
class Pace:
    """When entries are sealed."""

    seal_ms: int = 60_000  # at latest so long after they were written,
    seal_entries: int = 10_000  # or when so many wait; the most in one segment
    settle_ms: int = 10_000  # and never before


@dataclass(frozen=True, slots=True)
class ArchivistConfig:
    """Settings of one archivist."""

    pace: Pace = Pace()
    kept: Kept = Kept(3_600.0, 86_400.0)  # where the configuration says nothing else
    known_for_s: int = 86_400  # how long a forgotten id stays known
    checkpoint_ms: int = 600_000
    usage_ms: int = 400 * 86_400_000  # how long the days of usage are kept
    lease_ms: int = 10_000
    artifacts_ms: int = 604_800_000  # how long files are kept; each says itself until when
    sweep_ms: int = 3_600_000  # between two looks at all of them

    @property
    def look_ms(self) -> int:
        """Time between two looks at a pool."""
        return max(20, min(1_000, self.pace.seal_ms // 5, self.lease_ms // 4))


def make_config(settings: Settings) -> ArchivistConfig:
    """Return what the archivist needs of all settings."""
    archive, retention = settings.archive, settings.retention
    return ArchivistConfig(
        Pace(_ms(archive.seal_s), archive.seal_entries, _ms(archive.settle_s)),
        kept=from_settings(retention),
        known_for_s=max(1, round(retention.idempotency_s)),
        checkpoint_ms=_ms(archive.checkpoint_s),
        usage_ms=_ms(retention.usage_s),
        artifacts_ms=_ms(retention.artifacts_s),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
