"""Leases are judged by counters seen in successful reads: nothing else may cost a worker its attempts."""

from services.scheduler.leases import Leases, Pulse

LEASE_MS = 10_000
HELD = frozenset({("job_1", 1)})
RUNNING = [("w1", ("job_1", 1))]


class Reads:
    """Reads of the pulses, one every 500 ms unless the test says otherwise."""

    def __init__(self) -> None:
        self.leases = Leases(LEASE_MS)
        self.now_ms = 1_000
        self.counter = 1

    def read(
        self, *, beats: bool, held: frozenset[tuple[str, int]] = HELD, after_ms: int = 500, took_ms: int = 1
    ) -> None:
        self.now_ms += after_ms
        self.counter += beats
        self.leases.read(self.now_ms - took_ms, self.now_ms, {"w1": Pulse(self.counter, held)}, RUNNING)

    def silent_for(self, ms: int) -> None:
        for _ in range(ms // 500):
            self.read(beats=False)

    @property
    def lost(self) -> list[str]:
        return [worker.worker_id for worker in self.leases.lost_workers(["w1"])]


def test_a_worker_is_lost_when_its_counter_stood_still_for_a_whole_lease() -> None:
    """Field case 47: the lease does not depend on how long a job may run."""
    reads = Reads()
    reads.read(beats=True)
    reads.silent_for(LEASE_MS - 500)
    assert reads.lost == []

    reads.read(beats=False)

    assert reads.lost == ["w1"]
    assert reads.leases.lost_workers(["w1"])[0].counter == reads.counter


def test_a_worker_that_beats_is_never_lost_however_long_its_job_is() -> None:
    """Field cases 35, 40, 43 and 46: an hour of work, renewed, stays with its owner."""
    reads = Reads()
    for _ in range(7_200):
        reads.read(beats=True)
        assert reads.lost == []


def test_a_worker_that_never_beat_after_it_registered_is_lost_too() -> None:
    """Field case 49: death before the first heartbeat."""
    reads = Reads()
    reads.silent_for(LEASE_MS + 500)

    assert reads.lost == ["w1"]


def test_a_failed_read_restarts_all_leases() -> None:
    reads = Reads()
    reads.silent_for(LEASE_MS - 500)

    reads.leases.restart()
    reads.silent_for(LEASE_MS)

    assert reads.lost == []
    reads.read(beats=False)
    assert reads.lost == ["w1"]


def test_a_late_read_restarts_all_leases() -> None:
    """A leader that was stopped for a minute has seen nothing in that minute."""
    reads = Reads()
    reads.silent_for(LEASE_MS - 500)

    reads.read(beats=False, after_ms=60_000)
    assert reads.lost == []
    reads.silent_for(LEASE_MS - 500)
    assert reads.lost == []


def test_a_read_that_took_too_long_counts_as_late() -> None:
    reads = Reads()
    reads.silent_for(LEASE_MS - 500)

    reads.read(beats=False, after_ms=LEASE_MS, took_ms=LEASE_MS - 1)

    assert reads.lost == []


def test_nothing_is_lost_before_anything_was_read() -> None:
    assert Leases(LEASE_MS).lost_workers(["w1"]) == []


def test_a_worker_in_the_log_that_the_store_does_not_know_is_lost_after_a_lease() -> None:
    leases = Leases(1_000)
    for now_ms in range(0, 1_001, 250):
        leases.read(now_ms, now_ms, {}, [])
        lost = leases.lost_workers(["w9"])

    assert [worker.counter for worker in lost] == [-1]


def test_an_attempt_that_two_beats_begun_after_its_start_do_not_list_is_lost() -> None:
    reads = Reads()
    reads.read(beats=True, held=frozenset())
    reads.read(beats=True, held=frozenset())  # this beat may have been under way at the start
    reads.read(beats=True, held=frozenset())
    assert reads.leases.lost_attempts() == []
    reads.read(beats=False, held=frozenset())  # the same beat seen again is no second one
    assert reads.leases.lost_attempts() == []

    reads.read(beats=True, held=frozenset())

    assert [(lost.job_id, lost.fence) for lost in reads.leases.lost_attempts()] == [("job_1", 1)]


def test_a_beat_that_lists_the_attempt_begins_the_count_anew() -> None:
    reads = Reads()
    for _ in range(3):
        reads.read(beats=True, held=frozenset())
    reads.read(beats=True)
    reads.read(beats=True, held=frozenset())

    assert reads.leases.lost_attempts() == []


def test_another_fence_of_the_same_job_is_not_the_attempt() -> None:
    reads = Reads()
    for _ in range(5):
        reads.read(beats=True, held=frozenset({("job_1", 2)}))

    assert len(reads.leases.lost_attempts()) == 1
