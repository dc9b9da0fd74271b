"""A store that does what it is asked and whose answers are lost: no durable job is answered as if there were none."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.exceptions import ReadOnlyError

from contracts.errors import StoreUnavailable, Unconfirmed
from contracts.store import Store
from tests.ingest.api import Answer, Api, log_length, running_api, settings_for
from tests.servers import Server
from tests.store.lossy import LossyProxy

KEY = {"Idempotency-Key": "order-17"}
WAIT = {"Prefer": "wait=0"}


@pytest.fixture
async def proxy(store_server: Server) -> AsyncIterator[LossyProxy]:
    lossy = LossyProxy(store_server.socket)
    await lossy.open()
    yield lossy
    await lossy.close()


@pytest.fixture
async def lossy(proxy: LossyProxy, tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(settings_for(proxy.url, tmp_path)) as api:
        yield api


def lose_only(proxy: LossyProxy, number: int) -> None:
    """Lose one answer of the store to a function call, counted from now."""
    numbers = itertools.count()
    proxy.loses = lambda: next(numbers) == number


def says_that_nobody_knows(answer: Answer) -> bool:
    return (answer.status, answer.code, answer.body.get("retryable")) == (503, "unconfirmed", True)


@pytest.mark.parametrize("headers", [{}, KEY, WAIT, KEY | WAIT], ids=["plain", "key", "wait", "key and wait"])
async def test_whichever_answer_is_lost_a_job_that_exists_is_told_or_said_to_be_possible(
    lossy: Api, proxy: LossyProxy, headers: dict[str, str]
) -> None:
    """Field case 3, one hop further in: a 503 that says anything else means that there is no job."""
    answers: list[Answer] = []
    for number in range(5):
        before = await log_length(lossy)
        lose_only(proxy, number)
        answers.append(await lossy.submit(headers=_numbered(headers, number)))
        proxy.loses = lambda: False
        made = await log_length(lossy) - before

        if answers[-1].status == 503 and not says_that_nobody_knows(answers[-1]):
            assert made == 0, answers[-1]
        else:
            assert made == 1, answers[-1]
        if "Idempotency-Key" in headers:
            assert (await lossy.submit(headers=_numbered(headers, number))).status in (200, 201, 202)
            assert await log_length(lossy) - before == 1

    assert any(map(says_that_nobody_knows, answers))
    assert answers[-1].status in (201, 202)  # so many answers are not asked for


async def test_a_detail_tells_whether_a_repeat_is_safe(lossy: Api, proxy: LossyProxy) -> None:
    lose_only(proxy, 0)
    plain = await lossy.submit()
    lose_only(proxy, 1)
    keyed = await lossy.submit(headers=KEY)

    assert says_that_nobody_knows(plain)
    assert "without an Idempotency-Key" in plain.body["detail"]
    assert says_that_nobody_knows(keyed)
    assert "with the same Idempotency-Key" in keyed.body["detail"]


async def test_a_store_that_cannot_be_reached_has_done_nothing(own_server: Server) -> None:
    store = Store(own_server.url, retries=0)
    own_server.stop()

    with pytest.raises(StoreUnavailable) as caught:
        await store.jobs.page("default", "t_a")

    assert not isinstance(caught.value, Unconfirmed)
    await store.aclose()


async def test_a_server_that_is_demoted_amid_a_batch_has_done_what_came_before(proxy: LossyProxy) -> None:
    """Each call of the batch hears what became of itself, also when there is no try left for the others."""
    store = Store(proxy.url, retries=0)
    await store.directory.open()
    exchange = store.batcher._channel.exchange

    async def demoted(commands: list[object], limit_s: float) -> list[object]:
        replies = await exchange(commands, limit_s)  # type: ignore[arg-type]
        return [replies[0], *(_read_only() for _ in replies[1:])]

    blocker = asyncio.create_task(store.jobs.page("default", "t_a"))
    await asyncio.sleep(0)
    store.batcher._channel.exchange = demoted  # type: ignore[method-assign, assignment]
    first, *others = await asyncio.gather(
        *(store.jobs.page("default", "t_a") for _ in range(3)), return_exceptions=True
    )

    assert (await blocker, first) == ([], [])
    assert [type(other) for other in others] == [StoreUnavailable] * 2
    await store.aclose()


def _read_only() -> Exception:
    return ReadOnlyError("You can't write against a read only replica.")


def _numbered(headers: dict[str, str], number: int) -> dict[str, str]:
    return {name: f"{value}-{number}" if name == "Idempotency-Key" else value for name, value in headers.items()}
