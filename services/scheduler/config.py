"""What the scheduler is told: times in ms, sizes as counts. Read from `Settings` in `__main__` only."""

from dataclasses import dataclass

from contracts.policy import SchedulingPolicy
from contracts.retry import Backoff
from contracts.settings import Settings
from services.scheduler.retention import Retention
from services.scheduler.turns import Rules


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings of one candidate."""

    rules: Rules
    leader_lease_ms: int = 3_000  # a leader that is silent for so long may be replaced
    tick_ms: int = 500  # longest wait between two turns
    worker_lease_ms: int = 10_000  # a worker whose counter stands still for so long is lost
    snapshot_entries: int = 20_000  # folded since the last snapshot: a standby keeps one, a leader after twice that
    snapshot_ms: int = 300_000  # the same by time, if anything happened
    policy: SchedulingPolicy = SchedulingPolicy()  # where no operator has changed a knob of the pool

    @property
    def pulse_ms(self) -> int:
        """Time between two reads of the workers' counters."""
        return max(50, min(500, self.worker_lease_ms // 8))


def make_config(settings: Settings) -> SchedulerConfig:
    """Return what the scheduler needs of all settings."""
    retention, worker = settings.retention, settings.worker
    grace_s = 30 + worker.cancel_grace_s + worker.term_grace_s  # a worker that works has long stopped by then
    rules = Rules(
        retention=Retention(_ms(retention.completed_s), _ms(retention.failed_s)),
        known_for_s=max(1, round(retention.idempotency_s)),
        run_grace_ms=_ms(grace_s),
        backoff=Backoff(base_ms=_ms(settings.retry.base_s), cap_ms=_ms(settings.retry.cap_s)),
        rate_limited_ms=_ms(settings.retry.rate_limited_s),
    )
    return SchedulerConfig(
        rules=rules,
        leader_lease_ms=_ms(settings.scheduler.lease_s),
        tick_ms=_ms(settings.scheduler.tick_s),
        worker_lease_ms=_ms(worker.lease_s),
        policy=settings.scheduler.policy,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
