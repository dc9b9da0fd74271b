"""How much device time each tenant was charged today, and whose budget is used up. Pure; a day begins by an entry."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.times import DAY_MS


@dataclass(slots=True)
class Budgets:
    """Device time charged in the present UTC day, by tenant, in ms."""

    day: int = 0  # days since 1970; 0: nothing was charged yet
    used_ms: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)  # whose exhaustion is in the log, and since when

    def charge(self, tenant_id: str, device_ms: int, now_ms: int) -> None:
        """Count device time, or give some back (negative)."""
        self.day = self.day or now_ms // DAY_MS
        used_ms = max(0, self.used_ms.get(tenant_id, 0) + device_ms)
        if used_ms:
            self.used_ms[tenant_id] = used_ms
        else:
            self.used_ms.pop(tenant_id, None)

    def renew(self, day: int) -> None:
        """Begin a day."""
        self.day = day
        self.used_ms.clear()
        self.told.clear()

    @property
    def renews_at_ms(self) -> int | None:
        """Return when the day is over; None while nothing was used in it."""
        return (self.day + 1) * DAY_MS if self.used_ms else None

    def snapshot(self) -> list[object]:
        """Return everything."""
        return [self.day, self.used_ms, self.told]

    def restore(self, day: int, used_ms: Mapping[str, int], told: Mapping[str, int]) -> None:
        """Take over a snapshot."""
        self.day, self.used_ms, self.told = day, dict(used_ms), dict(told)
