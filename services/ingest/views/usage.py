"""What tenants used as it is asked for and shown: days, groups, lines. Pure."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contracts.times import DAY_MS, day_number, day_text
from contracts.usage.rows import METRICS, Key, Row, add
from services.ingest.edge.problems import Problem
from services.ingest.views.body_lines import JsonObject

GROUPS = ("day", "tenantId", "model", "pool")
MOST_DAYS = 400
DEFAULT_DAYS = 30

Group = tuple[str, ...]
_TELLS: Mapping[str, Callable[[Key, str], str]] = {
    "day": lambda key, pool: day_text(key.day),
    "tenantId": lambda key, pool: key.tenant_id,
    "model": lambda key, pool: key.model,
    "pool": lambda key, pool: pool,
}


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """`days`: since 1970, UTC. `group_by`: names of `GROUPS`, in the order of the answer."""

    days: range
    group_by: Group
    tenant_id: str | None = None
    model: str | None = None

    @property
    def canonical(self) -> str:
        """The same text for the same question: what a cursor is bound to."""
        return repr(self)


def read_usage_query(query: Mapping[str, str], tenant_id: str | None, today: int) -> UsageQuery:
    """Read what is asked; `tenant_id` None: an operator asks. Raises Problem `bad_parameter`."""
    end = _day(query, "to", today + 1)
    begin = _day(query, "from", end - DEFAULT_DAYS)
    if not 0 < end - begin <= MOST_DAYS:
        raise Problem("bad_parameter", f"from comes before to, by {MOST_DAYS} days at most; to is not included")
    allowed = GROUPS if tenant_id is None else tuple(name for name in GROUPS if name != "tenantId")
    names = tuple(name for name in query.get("groupBy", ",".join(allowed[:-1])).split(",") if name)
    if not set(names) <= set(allowed) or len(set(names)) < len(names):
        raise Problem("bad_parameter", f"groupBy names some of {', '.join(allowed)}, with commas between")
    return UsageQuery(range(begin, end), names, tenant_id or query.get("tenantId"), query.get("model"))


def grouped(query: UsageQuery, rows: Mapping[str, Mapping[Key, Row]]) -> dict[Group, Row]:
    """Add up rows, given by pool, of what belongs together."""
    found: dict[Group, Row] = {}
    tells = [_TELLS[name] for name in query.group_by]
    for pool, of_pool in rows.items():
        for key, row in of_pool.items():
            if query.model in (None, key.model, key.model.partition("@")[0]):
                group = tuple([tell(key, pool) for tell in tells])
                if group in found:
                    add(found[group], [row])
                else:
                    found[group] = list(row)
    return found


def usage_line(query: UsageQuery, group: Group, row: Row, as_of_ms: int) -> JsonObject:
    """Return one line. `final`: its days are over and all of them is counted, so that it will never change."""
    told = dict(zip(query.group_by, group, strict=True))
    last = day_number(told["day"]) if "day" in told else query.days[-1]
    return told | dict(zip(METRICS, row, strict=True)) | {"final": (last + 1) * DAY_MS <= as_of_ms}


def as_csv(query: UsageQuery, lines: Sequence[JsonObject]) -> str:
    """Return lines as CSV with a header (RFC 4180); truth as true and false."""
    text = io.StringIO()
    writer = csv.DictWriter(text, (*query.group_by, *METRICS, "final"))
    writer.writeheader()
    writer.writerows(line | {"final": str(line["final"]).lower()} for line in lines)
    return text.getvalue()


def _day(query: Mapping[str, str], name: str, otherwise: int) -> int:
    text = query.get(name)
    if text is None:
        return otherwise
    try:
        number = day_number(text)
        if day_text(number) == text:
            return number
    except ValueError:
        pass
    raise Problem("bad_parameter", f"{name} is a UTC day, such as 2026-11-30")
