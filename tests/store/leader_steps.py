"""What leaders do to the store, also late, twice or when it is not their turn, beside what the model says of it."""

from contracts.store import Word
from contracts.store.leadership import Turn, build_turn
from contracts.store.write import Write
from tests.store.comparison import POOL
from tests.store.decisions import decide
from tests.store.side_by_side import Chance, SideBySide

LEASE_MS = 600_000


class Leaders:
    """See the module. One leads at a time; `open` makes the first one."""

    def __init__(self, both: SideBySide) -> None:
        self.both = both
        self._tokens, self._number = 0, 0
        self._sent: tuple[Turn, list[Word]] | None = None

    def open(self) -> None:
        self.both.call(0, lambda: self.both.store.leadership.lead(POOL, self._token, LEASE_MS))

    @property
    def _token(self) -> str:
        return f"token{self._tokens}"

    def the_leader_takes_a_turn(self, chance: Chance) -> None:
        """Each decision is judged after what the ones before it wrote, and a refused one stops no other."""
        made = [decision for one in chance.decisions if (decision := decide(self.both.model, *one)) is not None]
        self._number += 1
        turn = self._turn(self._token, self._number, [decision.write for decision in made])
        reply = self.both.call(chance.lost, lambda: self.both.store.leadership.turn(turn))
        words = [decision.judge() for decision in made]
        assert (reply.word, [verdict.word for verdict in reply.verdicts]) == (Word.APPLIED, words)
        self._sent = turn, words

    def the_turn_arrives_again(self, chance: Chance) -> None:
        if self._sent is None:
            return
        turn, words = self._sent
        reply = self.both.call(chance.lost, lambda: self.both.store.leadership.turn(turn))
        if turn.args[1] != self._token:
            assert reply.word is Word.FENCED
        else:
            assert (reply.word, [verdict.word for verdict in reply.verdicts]) == (Word.APPLIED, words)

    def a_turn_out_of_order_is_refused(self, chance: Chance) -> None:
        decision, off = decide(self.both.model, "offer", chance.i, chance.i, 0), (-2, -1, 1, 2)[chance.j % 4]
        turn = self._turn(self._token, self._number + 1 + off, [] if decision is None else [decision.write])
        reply = self.both.call(0, lambda: self.both.store.leadership.turn(turn))
        is_the_last_one = off == -1 and self._number > 0
        assert reply.word is (Word.APPLIED if is_the_last_one else Word.REFUSED)

    def another_leader_takes_over(self, chance: Chance) -> None:
        former, late = self._token, decide(self.both.model, "offer", chance.i, chance.i, 0)
        assert not self.both.call(0, lambda: self.both.store.leadership.lead(POOL, "impatient", LEASE_MS))[0]
        self.both.call(chance.lost, lambda: self.both.store.leadership.resign(POOL, former))
        self._tokens, self._number = self._tokens + 1, 0
        taken, _, turn = self.both.call(
            chance.lost, lambda: self.both.store.leadership.lead(POOL, self._token, LEASE_MS)
        )
        assert (taken, turn) == (True, 0)
        writes = [] if late is None else [late.write]
        for token, number, word in ((former, 1, Word.FENCED), (self._token, 0, Word.REFUSED)):
            never = self._turn(token, number, writes)
            assert self.both.call(0, lambda turn=never: self.both.store.leadership.turn(turn)).word is word

    def _turn(self, token: str, number: int, writes: list[Write]) -> Turn:
        return build_turn(POOL, token, number, LEASE_MS, writes, cursor="0-0", entries_read=0)
