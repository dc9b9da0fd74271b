"""The verbs of deliveries on a real server beside a plain model: planning, claims, outcomes, holding, reviving.

After every step states, tries, due times, claims, chains and the index of endpoints must be what the model says; and
whatever was claimed: never more in flight than an endpoint takes, one while its circuit is open, none above its rate.
"""

import asyncio
from typing import Any

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from contracts import events as ev
from contracts.deliveries import Ask, Attempted, PlannedDelivery, Settlement
from contracts.store import Store, Word, keys
from tests.servers import Server
from tests.store.delivery_model import CIRCUIT, DONE, Deliveries, Row

POOL, TENANT = "default", "t_a"
BEGINNING_MS = 4_000_000_000_000
endpoints, jobs = st.sampled_from(["a", "b"]), st.sampled_from(["j1", "j2"])
picks = st.integers(0, 1000)
outcomes = st.sampled_from(["ok", "ok", "again", "again", "dead"])
CLAIM_MS = 6000
STEPS_MS = [1, 10, 399, 400, 1000, 1500, 1500, 2500, 2500, 7000, 40_000, 700_000, 4_000_000, 31 * 86_400_000]


# What each step draws; how often it is drawn: without plans, claims and outcomes nothing happens.
STEPS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "plan": {
        "endpoint": endpoints, "job": jobs, "strict": st.booleans(), "back": st.sampled_from([0, 0, 0, 0, 1, 2]),
        "kind": st.sampled_from(["", "", "progress", "progress", "last"]),
    },
    "claim": {
        "endpoint": endpoints, "room": st.integers(1, 4), "most": st.integers(1, 4), "gap": st.sampled_from([0, 400]),
    },
    "settle": {
        "pick": picks, "outcome": outcomes, "gate": st.sampled_from([0, 0, 700]), "late": st.sampled_from([0, 0, 0, 1]),
    },
    "hold_claims": {"pick": picks, "late": st.sampled_from([0, 0, 1]), "claim_ms": st.sampled_from([CLAIM_MS, 0])},
    "hold_endpoint": {"endpoint": endpoints, "state": st.sampled_from(["held", "held", "endpoint_deleted"])},
    "revive": {"endpoint": endpoints},
    "redeliver": {"pick": picks},
    "time_passes": {"ms": st.sampled_from(STEPS_MS)},
    "forget": {},
}  # fmt: skip
WEIGHTS = {"plan": 7, "claim": 7, "settle": 7, "time_passes": 4, "hold_claims": 2}
ACTIONS = [name for name in STEPS for _ in range(WEIGHTS.get(name, 1))]


class Machine(RuleBasedStateMachine):
    """The rules. `server` is set by the test."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.direct = redis.Redis.from_url(self.server.url, decode_responses=True)
        self.direct.flushall()
        self.loop = asyncio.Runner()
        self.model = Deliveries()
        self.now = BEGINNING_MS
        self.number = 0

    @initialize()
    def open(self) -> None:
        async def opened() -> None:
            self.store = Store(self.server.url)
            await self.store.directory.open()
            await self.store.open_pool(POOL)

        self.loop.run(opened())

    def call(self, verb: str, *args: Any, **named: Any) -> Any:
        return self.loop.run(getattr(self.store.deliveries, verb)(POOL, *args, now_ms=self.now, **named))

    def plan(self, endpoint: str, job: str, strict: bool, kind: str, back: int) -> None:
        self.number += 1
        n = max(1, self.number - back)
        every = 1500 if kind == "progress" else None
        row = Row(f"dlv_{job}_{n:04}_{endpoint}_0", endpoint, job, n, strict, every)
        planned = PlannedDelivery(
            row.id, {"body": "{}", "event": "job.progress", "message": f"m{n}"}, endpoint, TENANT, job, n,
            strict=strict, interval_ms=every, last=kind == "last",
        )  # fmt: skip
        assert self.call("plan", "", [planned], []) == int(self.model.plan(row, self.now, kind == "last"))

    def claim(self, endpoint: str, room: int, most: int, gap: int) -> None:
        burst = 2
        allowed = self.model.room(endpoint, room, most, gap, burst, self.now)
        due = {row.id for row in self.model.due(endpoint, self.now)}
        now_ms, claims = self.call("claim", [Ask(endpoint, room, most, gap, burst)], CLAIM_MS)
        ids = [claim.id for claim in claims]
        assert now_ms == self.now
        assert len(ids) == len({*ids}) == min(allowed, len(due))
        assert {*ids} <= due
        oldest = min((row.due for row in self.model.due(endpoint, self.now)), default=0)
        if len(ids) > 1:
            assert oldest in [self.model.rows[name].due for name in ids]
        for claim in claims:
            assert claim.fields["try"] == str(self.model.rows[claim.id].tries)
        self.model.claimed(endpoint, ids, self.now + CLAIM_MS, self.now, gap)

    def in_flight(self, pick: int) -> Row | None:
        flying = [row for row in self.model.rows.values() if row.claimed_until is not None]
        return flying[pick % len(flying)] if flying else None

    def settle(self, pick: int, outcome: str, gate: int, late: int) -> None:
        row = self.in_flight(pick)
        if row is None:
            return
        ok, due = outcome == "ok", self.now + 2500 if outcome == "again" else None
        number = row.tries + 1 - late
        made = Attempted(ok, "2xx" if ok else "5xx", 20, gate_ms=0 if ok else gate)
        state = {"ok": {"state": "delivered"}, "dead": {"state": "exhausted"}}.get(outcome, {})
        settlement = Settlement(
            row.id, row.endpoint, number, state, made, due, 3600 if ok else 30 * 86400, outcome == "dead"
        )
        event = ev.WebhookAttempted(delivery_id=row.id, job_id="j", event_type="e", attempt=number, outcome="x")
        settled = self.call("settle", settlement, [event], CIRCUIT)
        if late:
            assert settled.word is Word.CONFLICT
            return
        assert settled.word is Word.APPLIED
        self.model.settle(row, ok, due, self.now, made.gate_ms)
        assert settled.row == self.model.receivers[row.endpoint].row

    def hold_claims(self, pick: int, late: int, claim_ms: int) -> None:
        row = self.in_flight(pick)
        if row is None:
            return
        claims = {row.endpoint: [(row.id, row.tries + 1 - late), ("dlv_nobody", 1)]}
        assert self.call("hold_claims", claims, claim_ms) == 1 - late
        if not late:
            row.due = self.now + claim_ms
            row.claimed_until = row.due if claim_ms else None

    def hold_endpoint(self, endpoint: str, state: str) -> None:
        count = 0
        while found := self.call("hold_endpoint", endpoint, 2, state=state):
            count += found
        assert count == self.model.hold(endpoint, state, self.now)

    def revive(self, endpoint: str) -> None:
        count = 0
        while found := self.call("revive", endpoint, most=2):
            count += found
        assert count == self.model.revive(endpoint, self.now)

    def redeliver(self, pick: int) -> None:
        rows = [*self.model.rows.values()]
        if not rows:
            return
        row = rows[pick % len(rows)]
        self.number += 1
        answer = self.call("redeliver", row.id, f"w{self.number}")
        if answer.word is Word.APPLIED:
            assert self.call("redeliver", row.id, f"w{self.number}") == answer, "its reply was lost"
        if row.state == "blocked":
            assert answer.word is Word.REFUSED
        elif row.dead_at is not None:
            assert answer.id == row.id
            self.model.revive_one(row, self.now)
        elif row.state == "waiting":
            assert answer.id == row.id
            if row.claimed_until is None:
                row.due = min(row.due, self.now)
        else:
            assert answer.id not in self.model.rows
            assert answer.id.rpartition("_")[0] == row.id.rpartition("_")[0]
            self.model.rows[answer.id] = Row(answer.id, row.endpoint, row.job, row.n, due=self.now)

    def time_passes(self, ms: int) -> None:
        self.now += ms

    def forget(self) -> None:
        count = 0
        while found := self.call("forget", most=2):
            count += found
        assert count == self.model.forget(self.now)

    # One rule, since Hypothesis leaves out some rules of each run.
    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def something_happens(self, action: str, data: st.DataObject) -> None:
        getattr(self, action)(**{name: data.draw(strategy) for name, strategy in STEPS[action].items()})

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        stored = {key.rpartition(":")[2] for key in self.direct.scan_iter(keys.delivery(POOL, "*"), count=1000)}
        assert stored == {*self.model.rows} == {*self.direct.zrange(keys.deliveries_of(POOL, TENANT), 0, -1)}
        for row in self.model.rows.values():
            self.compare_row(row)
        self.compare_queues()

    def compare_row(self, row: Row) -> None:
        found = self.direct.hgetall(keys.delivery(POOL, row.id))
        assert (found["state"], int(found["try"]), int(found.get("base", 0))) == (row.state, row.tries, row.base)
        expected = row.due if row.state == "waiting" else None
        assert self.direct.zscore(keys.due_of(POOL, row.endpoint), row.id) == expected
        assert self.direct.zscore(keys.flight(POOL, row.endpoint), row.id) == row.claimed_until
        assert self.direct.zscore(keys.dead(POOL, row.endpoint), row.id) == row.dead_at
        assert self.direct.zscore(keys.settled(POOL), row.id) == row.forget_at
        assert (row.forget_at is not None) == (row.state in DONE | {"held"})

    def compare_queues(self) -> None:
        index = dict(self.direct.zrange(keys.due(POOL), 0, -1, withscores=True))
        for endpoint in ("a", "b"):
            waiting = [row for row in self.model.of(endpoint) if row.state == "waiting"]
            assert (endpoint in index) == bool(waiting)
            if waiting:
                # never later than when something can be done: what waits is not forgotten
                self.compare_next(endpoint, min(row.due for row in waiting), index[endpoint])
        for (endpoint, job), order in self.model.orders.items():
            chain = self.direct.zrange(keys.chain(POOL, endpoint, job), 0, -1)
            assert chain == [name for _, name in order.chain]
            assert "blocked" not in {self.model.rows[name].state for name in chain[:1]}

    def compare_next(self, endpoint: str, earliest: int, score: float) -> None:
        receiver, flying = self.model.receivers[endpoint], self.model.flight(endpoint)
        free_at = min((row.claimed_until or 0 for row in flying), default=0)
        latest = max(self.now, earliest, receiver.gate, free_at, receiver.tat)
        assert score <= latest

    def teardown(self) -> None:
        self.loop.run(self.store.aclose())
        self.loop.close()
        self.direct.close()


def test_deliveries_are_what_the_model_says(any_server: Server) -> None:
    class OnThisServer(Machine):
        server = any_server

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=40,
            stateful_step_count=60,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
