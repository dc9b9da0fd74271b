"""A fact about a pool that concerns no job and no worker: it stands in the log once, or not at all."""

from contracts import events as ev
from contracts.store import Store, Word
from contracts.wire import Entry

FACT = ev.ModelProfiled(model="a@1", bytes=5, source="audit")


async def test_a_repeat_is_answered_again_and_written_once(store: Store) -> None:
    first = await store.note("default", "a@1", FACT, "one")
    again = await store.note("default", "a@1", FACT, "one")
    other = await store.note("default", "a@1", FACT, "two")

    entries = [entry for entry in await store.tail("default", "0-0").read(10) if isinstance(entry, Entry)]
    assert again == first
    assert [entry.position for entry in entries] == [first.position, other.position]
    assert (entries[0].subject, entries[0].event()) == ("a@1", FACT)


async def test_a_pool_that_nobody_opened_is_not_made_by_it(store: Store) -> None:
    answer = await store.note("nowhere", "a@1", FACT, "one")

    assert answer.word is Word.GONE
    assert not await store.client.exists("hr:{nowhere}:log")
