"""The verbs ask and answer on each server: bounded, fenced, refused at once where nobody leads, gone by themselves."""

from contracts.store import Store, Word, keys
from contracts.store.questions import KEPT_S, MOST_ANSWERS, MOST_BATCHES, Reply, as_batch, as_reply

POOL, ASKER = "default", "a1"


async def test_a_question_finds_its_leader_and_an_answer_its_asker(store: Store) -> None:
    await store.leadership.lead(POOL, "token", 60_000)

    assert await store.questions.ask(POOL, ASKER, 7, b"[1]")
    [message] = await store.questions.asked(POOL).messages(block_ms=1_000)
    batch = as_batch(message)
    assert (batch.asker, batch.number, batch.questions) == (ASKER, 7, b"[1]")
    said = [Reply(ASKER, 7, b"[2]"), Reply("a2", 1, b"[3]"), Reply(ASKER, 8, b"[4]")]
    assert await store.questions.answer(POOL, "token", said) is Word.APPLIED

    mine = await store.questions.answered(POOL, ASKER).messages(block_ms=1_000)
    assert [as_reply(each, ASKER) for each in mine] == [said[0], said[2]]


async def test_a_pool_without_a_leader_says_so_at_once_and_keeps_no_question(store: Store) -> None:
    assert not await store.questions.ask(POOL, ASKER, 1, b"[]")
    await store.leadership.lead(POOL, "token", 1_000, now_ms=10_000)
    assert await store.questions.ask(POOL, ASKER, 2, b"[]", now_ms=10_500)
    assert not await store.questions.ask(POOL, ASKER, 3, b"[]", now_ms=11_000), "its lease is over"

    assert await store.client.xlen(keys.questions(POOL)) == 1
    await store.leadership.resign(POOL, "token")
    assert not await store.questions.ask(POOL, ASKER, 4, b"[]", now_ms=10_500)


async def test_a_leader_of_the_past_answers_nobody(store: Store) -> None:
    await store.leadership.lead(POOL, "new", 60_000)

    assert await store.questions.answer(POOL, "old", [Reply(ASKER, 1, b"[]")]) is Word.FENCED
    assert not await store.client.exists(keys.answers(POOL, ASKER))


async def test_what_nobody_reads_is_capped_and_goes_by_itself(store: Store) -> None:
    await store.leadership.lead(POOL, "token", 60_000)
    for number in range(MOST_BATCHES + 10):
        await store.questions.ask(POOL, ASKER, number, b"[]")
    for number in range(MOST_ANSWERS + 10):
        await store.questions.answer(POOL, "token", [Reply(ASKER, number, b"[]")])

    for key, most in ((keys.questions(POOL), MOST_BATCHES), (keys.answers(POOL, ASKER), MOST_ANSWERS)):
        assert await store.client.xlen(key) == most
        assert 0 < await store.client.ttl(key) <= KEPT_S
