"""The function library on a real server beside a plain model of it, with replies lost at random.

Rules are what ingest, the leader and workers do, each of them also late, twice or with old knowledge. After every step
the words, job hashes, bodies, lists, counters, decks, work streams and the log must be what the model says; the log
must fold to the hash, its back pointers must have no gap, and every run must have one terminal event.
"""

from operator import attrgetter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.servers import Server
from tests.store.decisions import KINDS
from tests.store.ingest_steps import Ingest
from tests.store.leader_steps import Leaders
from tests.store.side_by_side import Chance, SideBySide
from tests.store.worker_steps import WHAT, Workers

ACTIONS = (
    *["ingest.admit_a_job"] * 4,
    *["ingest.admit_an_id_again"] * 2,
    "ingest.refuse_an_id",
    *["ingest.ingest_cancels_or_retries"] * 3,
    "ingest.write_about_a_job_that_is_not_there",
    *["workers.a_worker_registers"] * 2,
    "workers.a_worker_beats",
    *["workers.a_worker_starts"] * 6,
    *["workers.a_worker_writes"] * 10,
    *["workers.a_slot_goes_from_one_job_to_the_next"] * 2,
    "workers.a_worker_declines",
    *["leaders.the_leader_takes_a_turn"] * 8,
    "leaders.the_turn_arrives_again",
    "leaders.a_turn_out_of_order_is_refused",
    "leaders.another_leader_takes_over",
)


index, stale = st.integers(0, 255), st.sampled_from([0, 0, 0, 0, 0, 0, 1])
chances = st.builds(
    Chance,
    i=index,
    j=index,
    stale=stale,
    lost=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]),
    what=st.sampled_from(WHAT),
    step=st.sampled_from([1, 1, 1, 1, 0, -1, 2]),
    decisions=st.lists(st.tuples(st.sampled_from(KINDS), index, index, stale), min_size=1, max_size=4),
)


class Library(RuleBasedStateMachine):
    """The rules. `server` is set by the test."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide(self.server)
        self.ingest, self.workers, self.leaders = Ingest(self.both), Workers(self.both), Leaders(self.both)

    @initialize()
    def open(self) -> None:
        self.both.open()
        self.leaders.open()
        for number in range(4):
            self.ingest.admit_a_job(Chance(i=number))
            self.workers.a_worker_registers(Chance())

    # One rule, since Hypothesis leaves out some rules of each run: without admissions, turns or starts nothing happens.
    @rule(action=st.sampled_from(ACTIONS), chance=chances)
    def something_happens(self, action: str, chance: Chance) -> None:
        attrgetter(action)(self)(chance)

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        self.both.compare()

    def teardown(self) -> None:
        self.both.close()


@pytest.mark.timeout(600)
def test_the_library_keeps_its_promises_when_replies_are_lost(any_server: Server) -> None:
    class OnThisServer(Library):
        server = any_server

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=25,
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
