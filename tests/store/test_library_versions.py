"""Loading the function library: when it is absent, never over another one, two versions side by side."""

from collections.abc import Sequence

import pytest

from contracts import events as ev
from contracts.store import Store, Word, library
from contracts.store.attempts import Attempts
from contracts.store.batcher import load
from contracts.store.jobs import Jobs, Limits
from contracts.store.leadership import Leadership
from tests.servers import Server
from tests.store.play import LEASE_MS, POOL, TENANT, TOKEN, Play

OTHER = "0badc0de"


class OtherVersion:
    """Calls as a process of another version makes them: the same verbs under another hash."""

    def __init__(self, store: Store) -> None:
        self._client = store.client

    async def call(self, verb: str, keys: Sequence[str], args: Sequence[str | bytes | int]) -> object:
        function = library.function_name(verb).replace(library.source_hash(), OTHER)
        return await self._client.execute_command("FCALL", function, len(keys), *keys, *args)  # type: ignore[no-untyped-call]


def other_source() -> str:
    """Return the library as a version with another text would load it."""
    return library.source().replace(library.source_hash(), OTHER) + "\n-- another version\n"


async def libraries(store: Store) -> dict[str, str]:
    found = {}
    for raw in await store.client.function_list(withcode=True):
        fields = raw if isinstance(raw, dict) else dict(zip(raw[::2], raw[1::2], strict=True))
        found[fields[b"library_name"].decode()] = fields[b"library_code"].decode()
    return found


async def test_the_library_is_loaded_by_the_first_call_on_an_empty_server(any_server: Server) -> None:
    store = Store(any_server.url)
    await store.client.function_flush()
    assert await libraries(store) == {}

    await store.directory.open()

    assert list(await libraries(store)) == [f"headrace_{library.source_hash()}"]
    await store.aclose()


async def test_a_library_that_is_there_is_never_replaced(play: Play) -> None:
    """A replica of an old version that reconnects in a rolling upgrade must not put its own code back."""
    own = f"headrace_{library.source_hash()}"
    changed = library.source() + "\n-- somebody's change on the server\n"
    await play.store.client.function_load(changed, replace=True)

    await load(play.store.client)
    await load(play.store.client)

    assert (await libraries(play.store))[own] == changed


async def test_two_versions_work_side_by_side_on_the_same_jobs(play: Play) -> None:
    await play.store.client.function_load(other_source())
    other = OtherVersion(play.store)
    theirs, attempts, leadership = Jobs(other), Attempts(other), Leadership(other)  # type: ignore[arg-type]

    # admitted by one, offered by the other, started by the first, settled by the second
    job_id = play.mints()
    admitted = await theirs.admit(POOL, play.created(job_id), b"{}", TENANT, Limits())
    assert admitted.word is Word.APPLIED
    offer, write = play.offering(job_id)
    turn = play.turn([write])
    assert (await leadership.turn(turn)).verdicts[0].word is Word.APPLIED
    assert (await play.store.leadership.turn(turn)).verdicts[0].word is Word.APPLIED
    attempt, event = play.starting(offer)
    assert (await play.store.attempts.start(attempt, event)).word is Word.APPLIED
    assert (await attempts.start(attempt, event)).word is Word.APPLIED
    assert (await attempts.emit(attempt, [ev.JobCompleted()], closes=True)).word is Word.APPLIED
    assert (await play.store.attempts.repeat(attempt, [ev.JobCompleted()], closes=True)).word is Word.APPLIED

    assert await play.types(job_id) == ["job.created", "job.assigned", "job.started", "job.completed"]
    assert set(await libraries(play.store)) == {f"headrace_{library.source_hash()}", f"headrace_{OTHER}"}
    assert (await leadership.lead(POOL, TOKEN, LEASE_MS))[0]


def test_the_name_of_a_function_says_which_source_it_comes_from() -> None:
    assert library.source_hash() in library.function_name("admit")
    assert "_HASH" not in library.source()
    with pytest.raises(KeyError):
        library.function_name("drop_everything")


@pytest.fixture(autouse=True)
async def _forget_the_other_version(any_server: Server) -> object:
    """Functions survive FLUSHALL: leave none of these behind for the next test."""
    yield
    store = Store(any_server.url)
    await store.client.function_flush()
    await store.aclose()
