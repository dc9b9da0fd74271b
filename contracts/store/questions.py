"""Asking the leader of a pool something that only its fold knows. Lossy by design: whoever asks goes on without.

Questions lie in one stream of the pool, answers in one of each asking process; both are capped and go by themselves, so
a leader that is away, or an asker that is gone, leaves nothing behind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.positions import entry_ms
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.channel import Channel
from contracts.store.log import Message, StreamReader
from contracts.store.words import Word

MOST_BATCHES = 256  # in the stream of questions; who asks more often than a leader answers loses the oldest
MOST_ANSWERS = 64  # in the stream of one asker, which reads them as they come
KEPT_S = 30


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions of one asker that were sent together, still as bytes. `asked_ms`: server time."""

    asker: str
    number: int
    questions: bytes
    asked_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answers to a batch, still as bytes."""

    asker: str
    number: int
    answers: bytes


class Questions:
    """Both sides of the channel."""

    def __init__(self, batcher: Batcher, channel: Callable[[], Channel]) -> None:
        self._call, self._channel = batcher.call, channel

    async def ask(self, pool: str, asker: str, number: int, questions: bytes, now_ms: int = 0) -> bool:
        """Put a batch before the leader; False when nobody leads. Raises StoreUnavailable."""
        fixed = [keys.questions(pool), keys.leader(pool)]
        args = [now_ms, asker, number, questions, MOST_BATCHES, KEPT_S]
        return replies.reply(await self._call("ask", fixed, args)).applied

    async def answer(self, pool: str, token: str, said: Sequence[Reply]) -> Word:
        """Answer some batches; FENCED: somebody else leads. Raises StoreUnavailable."""
        fixed = [keys.leader(pool), *(keys.answers(pool, each.asker) for each in said)]
        args: list[object] = [token, MOST_ANSWERS, KEPT_S]
        for each in said:
            args += [each.number, each.answers]
        return replies.reply(await self._call("answer", fixed, args)).word

    def asked(self, pool: str) -> StreamReader:
        """Return a reader of the pool's questions, with a connection of its own."""
        return StreamReader(self._channel(), keys.questions(pool))

    def answered(self, pool: str, asker: str) -> StreamReader:
        """Return a reader of the answers to one asker, with a connection of its own."""
        return StreamReader(self._channel(), keys.answers(pool, asker))


def as_batch(message: Message) -> Batch:
    """Read an entry of the stream of questions."""
    asker, number, questions = _fields(message, b"a", b"b", b"q")
    return Batch(asker.decode(), int(number), questions, entry_ms(message.position))


def as_reply(message: Message, asker: str) -> Reply:
    """Read an entry of the stream of answers."""
    number, answers = _fields(message, b"b", b"r")
    return Reply(asker, int(number), answers)


def _fields(message: Message, *names: bytes) -> tuple[bytes, ...]:
    fields = message.fields or {}
    return tuple(fields.get(name, b"0") for name in names)
