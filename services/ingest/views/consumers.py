"""How far the readers of a log are, as the operator's API shows it. Pure."""

from shlex import quote

from contracts.consumers import OldestPending, Standing
from contracts.store import keys
from services.ingest.views.body_lines import JsonObject

#: Made again by whoever needs them, so that dropping one is nothing but a gap.
OURS = frozenset({keys.GROUP_SCHEDULER, keys.GROUP_NOTIFIER, keys.GROUP_WORK, "archivist"})


def consumer_view(standing: Standing, now_ms: int) -> JsonObject:
    """Return one; `lag` null is not known, which is not none."""
    is_read = standing.is_read(now_ms)
    dead = standing.stream == "log" and standing.group not in OURS and not is_read
    return {
        "id": name_of(standing),
        "object": "consumer_group",
        "pool": standing.pool,
        "stream": standing.stream,
        "group": standing.group,
        "lastId": standing.position,
        "lag": standing.lag,
        "behindSeconds": standing.behind_ms / 1000,
        "pending": standing.pending,
        "oldestPending": _oldest(standing.oldest),
        "members": [
            {"name": each.name, "pending": each.pending, "idleSeconds": each.idle_ms / 1000}
            for each in standing.members
        ],
        "active": is_read,
        "holdsLog": standing.holds_log,
        "drop": drop_command(standing) if dead else None,
    }


def name_of(standing: Standing) -> str:
    """Return what names a group among all."""
    return f"{standing.pool}/{standing.stream}/{standing.group}"


def drop_command(standing: Standing) -> str:
    """Return what an operator types to be rid of it."""
    return f"headrace consumers drop {standing.pool} {quote(standing.group)} --reason '...'"


def _oldest(oldest: OldestPending | None) -> JsonObject | None:
    if oldest is None:
        return None
    return {
        "id": oldest.position,
        "member": oldest.member,
        "ageSeconds": oldest.age_ms / 1000,
        "deliveries": oldest.deliveries,
    }
