"""Who gets the free places of a sender: deliveries are claimed for them and start at once. Pure.

Promises: the next place goes to the tenant with the fewest attempts under way, and in turn to its endpoints, those
that wait the longest first; a tenant takes at most half of what is free at once, and one that has attempts under way
leaves the last few places to those that have none. So neither a slow endpoint nor a tenant with many fills a sender.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

KEPT_FREE_PART = 16  # one of so many places is for tenants that have none


@dataclass(frozen=True, slots=True)
class DueEndpoint:
    """An endpoint with something to do. `most`: how many it takes at once."""

    name: str
    tenant_id: str
    most: int


def share(places: int, running: Mapping[str, int], due: Sequence[DueEndpoint]) -> dict[str, int]:
    """Return how many places each endpoint gets; endpoints that get none are left out.

    Args:
        places: of the sender, taken or not.
        running: attempts under way, by tenant.

    >>> share(8, {"t_a": 2}, [DueEndpoint("a", "t_a", 5), DueEndpoint("b", "t_b", 5)])
    {'b': 3, 'a': 2}
    """
    free = places - sum(running.values())
    at_most, kept_free = max(1, free // 2), max(1, places // KEPT_FREE_PART)
    lines: dict[str, deque[DueEndpoint]] = {}
    for endpoint in due:
        lines.setdefault(endpoint.tenant_id, deque()).append(endpoint)
    given: dict[str, int] = {}
    of_tenant = dict.fromkeys(lines, 0)
    turn = [(running.get(tenant_id, 0), number, tenant_id) for number, tenant_id in enumerate(lines)]
    heapify(turn)
    while turn and free > 0:
        busy, number, tenant_id = heappop(turn)
        if of_tenant[tenant_id] >= at_most or (busy > 0 and free <= kept_free):
            continue
        endpoint = lines[tenant_id].popleft()
        given[endpoint.name] = given.get(endpoint.name, 0) + 1
        of_tenant[tenant_id] += 1
        free -= 1
        if given[endpoint.name] < endpoint.most:
            lines[tenant_id].append(endpoint)
        if lines[tenant_id]:
            heappush(turn, (busy + 1, number, tenant_id))
    return given
