"""The leader's turns: fold, decide, one call, read back, and only then the next.

Promises: a turn is sent byte for byte until it has an answer or the token is lost; the next one is built only when the
fold has reached the position the answer names; a turn with a refusal is followed at once by another; an empty turn
appends nothing, renews the lease and moves the cursor, at latest every tick. Never acts on what it has not folded.
"""

import asyncio
import random
from collections.abc import Callable

from contracts.errors import StoreUnavailable
from contracts.ids import mint_token
from contracts.positions import START, entry_key
from contracts.store import Store, Word
from contracts.store.leadership import Turn, build_turn
from contracts.store.log import pause
from contracts.store.replies import TurnReply
from contracts.telemetry import Logger
from services.scheduler import retention
from services.scheduler.answering import Answering
from services.scheduler.clock import ServerClock
from services.scheduler.config import SchedulerConfig
from services.scheduler.copying import Copying
from services.scheduler.decisions import Decision
from services.scheduler.explain.oracle import Oracle
from services.scheduler.fold.state import PoolState
from services.scheduler.leases import Attempt, Leases
from services.scheduler.purse import Purse
from services.scheduler.suspicion import Suspicions
from services.scheduler.turns import Observed, next_due_ms, plan_turn
from services.scheduler.watch import Watch, mono_ms

MOST_FRUITLESS = 5
GIVE_UP_S = 2.0  # when told to stop while the store is away


class Leader:
    """One term of leadership. `fold` takes in what was read: the fold is the candidate's, and outlives the term.

    `on_turn` is told after each turn where the newest snapshot stands.
    """

    def __init__(
        self, store: Store, pool: str, token: str, state: PoolState, fold: Callable[[], None], wake: asyncio.Event,
        config: SchedulerConfig, log: Logger, on_turn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._store, self._pool, self._token, self._config, self._log = store, pool, token, config, log
        self._state, self._fold, self._wake, self._on_turn = state, fold, wake, on_turn
        self._clock = ServerClock()
        self._suspicions = Suspicions()
        self._copying = Copying(pool, config.policy)
        self._purse = Purse(store, wake, mono_ms)
        self._random = random.SystemRandom()
        self.watch = Watch(store, pool, Leases(config.worker_lease_ms), self._running, wake)
        self._oracle = Oracle(state)
        self._answering = Answering(store, pool, token, self._oracle, wake)
        self._wanted: dict[str, int] = {}  # tokens of external limits
        self._number = 0
        self._must_fold = START
        self._turned_ms: int | None = None  # monotonic time of the last answer; None: the time is not known yet
        self._trimmed = START
        self._fruitless = 0  # turns in a row of which everything was refused
        self.refused_count = 0  # decisions, in all; somebody else was faster, or something is wrong

    async def lead(self, number: int, stop: asyncio.Event) -> None:
        """Make turns after turn `number` until `stop`, or until the token is lost."""
        self._number = number
        ended = asyncio.Event()
        watching = asyncio.create_task(self.watch.follow(self._config.pulse_ms, ended))
        answering = asyncio.create_task(self._answering.follow(ended))
        try:
            self._must_fold = await self._store.end_of_log(self._pool)
            while not stop.is_set() and await self._run_once(stop):
                if watching.done():
                    watching.result()  # raises what ended it: without pulses there is no leading
        finally:
            ended.set()
            for task in (watching, answering):
                task.cancel()
            await asyncio.gather(
                watching, answering, self._answering.aclose(), self._purse.aclose(), return_exceptions=True
            )

    async def _run_once(self, stop: asyncio.Event) -> bool:
        """Make a turn if there is reason for one, else wait for a reason. False: the lead is lost."""
        self._wake.clear()
        self._fold()
        if entry_key(self._state.position) < entry_key(self._must_fold):
            await self._wait(self._config.tick_ms)
            return True
        if self._fruitless >= MOST_FRUITLESS:  # whatever it is, it must not turn in a tight loop
            await self._wait(self._config.tick_ms)
            self._fold()
        if self._turned_ms is not None:
            self._oracle.watch(self._clock.now_ms(mono_ms()))
            self._answering.answer(self._clock.now_ms(mono_ms()))
        decisions = self._plan()
        if not decisions and not self._tick_is_due():
            await self._wait(self._pause_ms())
            return True
        return await self._make_turn(decisions, stop)

    def _plan(self) -> list[Decision]:
        if self._turned_ms is None:  # the first turn is empty: its answer tells the time
            return []
        state, leases = self._state, self.watch.leases
        self._ask_for_tokens()
        seen = Observed(
            now_ms=self._clock.now_ms(mono_ms()),
            turn=self._number + 1,
            needed_from=self._needed_from,
            lost_workers=leases.lost_workers(state.workers),
            lost_attempts=leases.lost_attempts(),
            mismatches=self._suspicions.judge(state),
            policy=self._copying.changed(self._store.directory.configuration, state),
            limits=self._purse.take(),
        )
        return plan_turn(state, self._config.rules, seen, self._random.random, self._mint)

    async def _make_turn(self, decisions: list[Decision], stop: asyncio.Event) -> bool:
        basis = self._state.position
        turn = self._build(decisions)
        reply = await self._send(turn, stop)
        if reply is None or reply.word is not Word.APPLIED:
            self._log.warning("lead_lost", pool=self._pool, word=str(reply.word) if reply else "no answer")
            return False
        self._number += 1
        self._turned_ms = mono_ms()
        self._clock.hear(reply.now_ms, self._turned_ms)
        self._must_fold = reply.last or basis
        refused = decisions and not any(verdict.applied for verdict in reply.verdicts)
        self._fruitless = self._fruitless + 1 if refused else 0
        self._judge(decisions, reply, basis)
        self._on_turn(self.watch.snapshot_position)
        return True

    def _build(self, decisions: list[Decision]) -> Turn:
        trim = retention.trim_below(self._state, self._needed_from, self.watch.snapshot_position)
        trims = entry_key(trim) > entry_key(self._trimmed)
        self._trimmed = trim if trims else self._trimmed
        return build_turn(
            self._pool, self._token, self._number + 1, self._config.leader_lease_ms,
            [decision.write for decision in decisions], cursor=self._state.position,
            entries_read=self._state.entries_read, trim_below=trim if trims else "",
            set_aside=self._state.aside_count,
        )  # fmt: skip

    async def _send(self, turn: Turn, stop: asyncio.Event) -> TurnReply | None:
        """Send a turn until it has an answer; None when told to stop and the store stays away."""
        failures, stopped_ms = 0, None
        while True:
            try:
                return await self._store.leadership.turn(turn)
            except StoreUnavailable:
                failures += 1
                # A store that takes no writes may still be read: then every counter stands still, and nobody is lost.
                self.watch.leases.restart()
                if stop.is_set():
                    stopped_ms = stopped_ms or mono_ms()
                    if mono_ms() - stopped_ms > GIVE_UP_S * 1000:
                        return None
                await pause(min(failures, 3), asyncio.Event(), self._random.random())

    def _judge(self, decisions: list[Decision], reply: TurnReply, basis: str) -> None:
        for decision, verdict in zip(decisions, reply.verdicts, strict=True):
            self._suspicions.note(decision, verdict, basis)
            self.refused_count += not verdict.applied
            guard = decision.write.worker_guard
            if not verdict.applied and guard is not None and guard.heartbeat is not None:
                self.watch.leases.forget(guard.worker_id)  # it lives: its lease begins anew
            for event in decision.write.events if verdict.applied else ():
                if event.TYPE in _NOTABLE:
                    self._log.warning(_NOTABLE[event.TYPE], pool=self._pool, subject=decision.write.subject)

    @property
    def _needed_from(self) -> str:
        """From where the log and its jobs are still needed, as far as it is ours to forget and to trim."""
        return START if self.watch.is_archived else self.watch.needed_from

    def _ask_for_tokens(self) -> None:
        limits, now_ms = self._state.limits, self._clock.now_ms(mono_ms())
        if limits.known:
            pauses_ms = {name: until_ms - now_ms for name, until_ms in limits.refusals().items()}
            self._wanted = self._state.wanted_tokens()
            self._purse.ask(limits.known, self._wanted, pauses_ms)

    def _tick_is_due(self) -> bool:
        return self._turned_ms is None or mono_ms() - self._turned_ms >= self._config.tick_ms

    def _pause_ms(self) -> int:
        assert self._turned_ms is not None
        until_tick_ms = self._config.tick_ms - (mono_ms() - self._turned_ms)
        now_ms = self._clock.now_ms(mono_ms())
        due_ms, ask_ms = next_due_ms(self._state, self._config.rules, now_ms), self._purse.next_ask_ms(self._wanted)
        waits_ms = [
            until_tick_ms,
            *([] if due_ms is None else [due_ms - now_ms]),
            *([] if ask_ms is None else [ask_ms]),
        ]
        return max(1, min(waits_ms))

    async def _wait(self, ms: int) -> None:
        """Wait for something to arrive (to be told to stop is one such thing), or for `ms`."""
        try:
            async with asyncio.timeout(ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _running(self) -> list[tuple[str, Attempt]]:
        state = self._state
        jobs = (
            (worker_id, state.jobs[job_id]) for worker_id, held in state.seating.on_worker.items() for job_id in held
        )
        return [(worker_id, (job.id, job.fence)) for worker_id, job in jobs if job.worker_id == worker_id]

    def _mint(self) -> str:
        return mint_token(self._random.getrandbits(80))


_NOTABLE = {
    "job.lease_lost": "lease_expired",
    "worker.lost": "worker_lost",
    "scheduler.mismatch": "mismatch_found",
}
