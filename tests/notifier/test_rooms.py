"""Who gets the places of a sender."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.notifier.sending.rooms import DueEndpoint, share

tenants = st.sampled_from(["t_a", "t_b", "t_c"])
endpoints = st.lists(
    st.tuples(st.integers(0, 30), tenants, st.integers(1, 6)), max_size=30, unique_by=lambda each: each[0]
).map(lambda listed: [DueEndpoint(f"e{number}", tenant, most) for number, tenant, most in listed])
running = st.dictionaries(tenants, st.integers(0, 20))


@given(places=st.integers(1, 64), running=running, due=endpoints)
def test_nobody_gets_more_than_there_is_or_than_it_takes(places, running, due):
    given_ = share(places, running, due)
    free = max(0, places - sum(running.values()))
    of_tenant: Counter[str] = Counter()
    for endpoint in due:
        assert 0 <= given_.get(endpoint.name, 0) <= endpoint.most
        of_tenant[endpoint.tenant_id] += given_.get(endpoint.name, 0)
    assert sum(given_.values()) <= free
    assert all(count <= max(1, free // 2) for count in of_tenant.values())
    assert 0 not in given_.values()


@given(places=st.integers(2, 64), running=running, due=endpoints)
def test_a_place_never_goes_past_a_tenant_that_has_less(places, running, due):
    """Max-min: who got a place had no more under way, before it, than anybody who could have used one more."""
    given_ = share(places, running, due)
    free = places - sum(running.values())
    most: Counter[str] = Counter()
    got: Counter[str] = Counter()
    for endpoint in due:
        most[endpoint.tenant_id] += endpoint.most
        got[endpoint.tenant_id] += given_.get(endpoint.name, 0)
    for short in most:
        if got[short] >= min(most[short], max(1, free // 2)):
            continue
        for other in got:
            if got[other]:
                assert running.get(other, 0) + got[other] - 1 <= running.get(short, 0) + got[short]


def test_a_tenant_with_many_slow_endpoints_leaves_places_to_one_that_comes():
    slow = [DueEndpoint(f"slow{number}", "t_many", 5) for number in range(100)]
    busy = Counter[str]()
    for _ in range(20):  # round after round nothing ends
        busy["t_many"] += sum(share(256, busy, slow).values())
    assert busy["t_many"] == 256 - 16
    assert share(256, busy, [*slow, DueEndpoint("new", "t_new", 5)]) == {"new": 1}, (
        "and further ones as places get free"
    )


def test_the_endpoints_of_a_tenant_take_turns_longest_waiting_first():
    due = [DueEndpoint(name, "t_a", 5) for name in ("first", "second", "third")]
    assert share(8, {}, due) == {"first": 2, "second": 1, "third": 1}
