"""`python -m services.scheduler.simulate`: recorded jobs once more, under the policy they had and under another one.

The same fold and the same simulation as `headrace policy simulate`, as a process that answers one question. Promises:
nothing is scheduled, offered or written; the answer says for how many jobs it stands.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from contracts.archive import Archive
from contracts.aside import CannotAnswer, JsonObject, answer, entries_of
from contracts.errors import Corrupt
from contracts.events import PolicyFacts
from contracts.wire import Entry
from services.scheduler.simulate.compared import Outcome, compare
from services.scheduler.simulate.recorded import ALL, Recorded

MOST_JOBS = 20_000


async def what_if(question: Mapping[str, Any], archive: Archive) -> JsonObject:
    """Answer with the waits before and after. Raises CannotAnswer."""
    recorded = await record(question, archive)
    weights, facts = question["weights"], PolicyFacts.model_validate(question["knobs"])
    if not (arrivals := recorded.arrivals()):
        raise CannotAnswer("no_jobs", "no job was created in this stretch")
    if len(arrivals) > MOST_JOBS:
        raise CannotAnswer("too_large", f"{len(arrivals)} jobs were created in this stretch, more than {MOST_JOBS}")
    if unknown := sorted(set(weights) - {arrival.tenant_id for arrival in arrivals}):
        raise CannotAnswer("unknown_tenant", f"{unknown[0]} has no job in this stretch")
    if not recorded.fleet:
        raise CannotAnswer("no_worker", "no worker was there in this stretch")
    return told(*compare(recorded, recorded.fleet, facts, weights))


async def record(question: Mapping[str, Any], archive: Archive) -> Recorded:
    """Fold the log, from what there is of its beginning to its end. Raises CannotAnswer."""
    begin, end = question.get("from"), question.get("to")
    recorded = Recorded(tuple(begin) if begin else ALL[0], tuple(end) if end else ALL[1])
    async for entry in entries_of(archive, question["pool"]):
        _take(recorded, entry)
    return recorded


def _take(recorded: Recorded, entry: Entry) -> None:
    try:
        recorded.apply(entry)
    except (Corrupt, ValueError) as fault:
        raise CannotAnswer("unreadable", f"{entry.position}: {fault}") from None


def told(before: Outcome, after: Outcome) -> JsonObject:
    """Return both outcomes side by side."""
    waits = [
        {"of": name, "jobs": was.jobs, "before": _waits(was), "after": _waits(after.waits[name])}
        for name, was in before.waits.items()
    ]
    return {"waits": waits, "before": _use(before), "after": _use(after)}


def _waits(found: Any) -> JsonObject:
    return {"p50S": found.p50_s, "p95S": found.p95_s, "p99S": found.p99_s}


def _use(found: Outcome) -> JsonObject:
    use = asdict(found.use)
    return {
        "usefulShare": round(use["useful_share"], 4),
        "swapsPer100": round(use["swaps_per_100"], 2),
        "neverStarted": found.never_started,
    }


if __name__ == "__main__":
    sys.exit(answer(what_if))
