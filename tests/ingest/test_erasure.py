"""Erasure through the API: what a job was asked and answered is nowhere any more, and everything else still is."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
import zstandard

from contracts import events as ev
from contracts.archive import Archive
from contracts.artifacts import Upload
from contracts.artifacts.local import LocalObjects
from contracts.audit import verify
from contracts.deliveries import Ask, Attempted, PlannedDelivery, Settlement
from contracts.erasure import Erasure
from contracts.errors import StoreUnavailable
from contracts.ids import artifact_id, delivery_id, event_id, preview_id
from contracts.retention import Kept
from contracts.store import Word, keys
from contracts.store.live import Piece
from services.archivist.config import ArchivistConfig, Pace
from services.archivist.pool import PoolArchivist, TakenOver
from services.ingest.handlers import erase
from tests.archivist.rig import Failing
from tests.ingest.api import ADMIN_KEY, Answer, Api
from tests.ingest.test_logs import keep_log
from tests.ingest.test_uploads import PNG, announce, complete, send
from tests.ingest.webhooks import hooks_of
from tests.store.play import POOL, Play

KEEPS = ArchivistConfig(Pace(0, 100, 0), kept=Kept(3_600, 3_600), known_for_s=60)
FORGETS = ArchivistConfig(Pace(0, 100, 0), kept=Kept(0, 0), known_for_s=60)
KEY = {"Idempotency-Key": "order-7"}
ENDPOINT = "anon000000000001"
WORDS = [f"w0rd-{name}" for name in ("prompt", "user", "cart", "hook", "result", "picture", "preview", "print",
                                     "live", "waiting", "answer", "dead", "held")]  # fmt: skip
UPLOAD = PNG + b"w0rd-upload"


class Content:
    """A completed job with content in every place that may hold some."""

    def __init__(self, api: Api, play: Play, folder: Path) -> None:
        self.api, self.play, self.folder = api, play, folder
        self.archive_at = api.service.context.settings.data_dir / "archive"

    async def make(self, upload: str = "", key: dict[str, str] | None = KEY) -> str:
        job_id = await self.submit(upload, key)
        attempt, started = self.play.starting(await self.play.offers(job_id))
        emit = self.api.store.attempts.emit
        await self.api.store.attempts.start(attempt, started)
        self.keep(artifact_id(job_id, 1, 0), job_id, b"w0rd-picture")
        self.keep(preview_id(job_id), job_id, b"w0rd-preview")
        keep_log(self.api, job_id, 1, b"w0rd-print\n", self.folder)
        await self.api.store.live.publish(POOL, Piece(job_id, 1, 0, b"w0rd-live"))
        await emit(attempt, [ev.JobProgress(progress=40, phase="denoising")])
        line = b"\n" + orjson.dumps({"result": {"seen": "w0rd-result"}})
        await emit(attempt, [ev.JobCompleted()], line=line, closes=True)
        await self.deliveries(job_id)
        return job_id

    async def submit(self, upload: str = "", key: dict[str, str] | None = KEY, **fields: Any) -> str:
        fields = {
            "model": "edit", "userId": "w0rd-user", "prompt": "w0rd-prompt", "metadata": {"cart": "w0rd-cart"},
            "webhookUrl": "https://hook.example/w0rd-hook", "input": {"inputArtifacts": [upload] if upload else []},
        } | fields  # fmt: skip
        made = await self.api.submit(headers=key, **fields)
        assert made.status == 201, made.body
        return str(made.body["id"])

    def keep(self, one: str, job_id: str, data: bytes) -> None:
        (self.folder / "file").write_bytes(data)
        upload = Upload(
            id=one, pool=POOL, job_id=job_id, tenant_id="t_a", name="a.png", kind="image", variant="original",
            width=None, height=None, created_ms=1, expires_at_ms=time.time_ns() // 1_000_000 + 3_600_000,
        )  # fmt: skip
        self.api.service.context.shelf.put(upload, self.folder / "file")

    async def deliveries(self, job_id: str) -> None:
        """One that was answered, one that was given up, one on its way, one that waits after a try."""
        calls = self.api.store.deliveries
        for sequence, word in enumerate(("answer", "dead", "held", "waiting"), 1):
            fields = {"event": "job.progress", "message": event_id(job_id, sequence), "body": f"w0rd-{word}"}
            planned = PlannedDelivery(delivery_id(job_id, sequence, ENDPOINT, 0), fields, ENDPOINT, "t_a", job_id)
            await calls.plan(POOL, "", [planned], [])
            _, (claimed,) = await calls.claim(POOL, [Ask(ENDPOINT, 1, 999)], 60_000)
            seen = orjson.dumps({"status": 200, "body": f"w0rd-{word}"}).decode()
            state = {"answer": "delivered", "dead": "exhausted"}.get(word, "waiting")
            after = {"a:1": seen, "state": state}
            due = None if word in ("answer", "dead") else 4_000_000_000_000
            made = Attempted(word == "answer", "2xx", 7)
            if word != "held":
                settled = Settlement(claimed.id, ENDPOINT, 1, after, made, due, 3_600, word == "dead")
                told = ev.WebhookAttempted(
                    delivery_id=claimed.id, job_id=job_id, event_type="job.progress", attempt=1, outcome="x",
                    next_at_ms=due,
                )  # fmt: skip
                assert (await calls.settle(POOL, settled, [told])).word is Word.APPLIED

    def archivist(self, gate: Callable[[str], None] | None = None, config: ArchivistConfig = KEEPS) -> PoolArchivist:
        """A new archivist where the service looks for the archive; `gate` as in the rig of archivists."""
        store: Any = self.api.store
        shelf: Any = self.api.service.context.shelf
        objects: Any = LocalObjects(self.archive_at)
        if gate is not None:
            store = Failing(self.api.store, gate, ())
            calls = ("deliveries", "live", "claim", "leave_file", "end")
            store.__dict__["erasing"] = Failing(self.api.store.erasing, gate, calls)
            shelf, objects = Failing(shelf, gate, ("doom", "erase")), Failing(objects, gate, ("put_file", "delete"))
        archive = Archive(store, objects)
        return PoolArchivist(store, archive, shelf, "here", POOL, config, structlog.get_logger())

    async def archive(self, config: ArchivistConfig = KEEPS) -> None:
        """Seal everything; what may be forgotten, is; what is to be erased is erased."""
        await self.api.store.client.xgroup_setid(keys.log(POOL), keys.GROUP_NOTIFIER, "$")
        archivist = self.archivist(config=config)
        await archivist.run_once()
        await archivist._resign()

    async def places(self, *words: str) -> list[str]:
        """Every key of the store and every file of the service that has one of these words."""
        found, client = [], self.api.store.client
        for key in [key async for key in client.scan_iter()]:
            kind = (await client.type(key)).decode()
            reads = {
                "string": client.get, "hash": client.hgetall, "stream": client.xrange, "set": client.smembers,
                "zset": lambda key: client.zrange(key, 0, -1), "list": lambda key: client.lrange(key, 0, -1),
            }  # fmt: skip
            text = repr(await reads[kind](key))  # type: ignore[operator]
            found += [key.decode() for word in words if word in text]
        for path in self.api.service.context.settings.data_dir.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            if path.suffix == ".zst":
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            found += [path.name for word in words if word.encode() in data]
        return found

    async def erase(self, job_id: str, query: str = "?reason=asked") -> Answer:
        return await self.api.call("DELETE", f"/v1/jobs/{job_id}{query}")


@pytest.fixture
def content(api: Api, play: Play, tmp_path: Path) -> Content:
    """Everything in pool `default`."""
    return Content(api, play, tmp_path)


async def is_right(content: Content) -> None:
    verdict = await verify(content.api.store, Archive(content.api.store, LocalObjects(content.archive_at)), POOL)
    assert (verdict.findings.kept, [each.sample for each in verdict.projections if each.sample]) == ([], [])


async def test_an_erased_job_is_nowhere_shown_and_nothing_of_it_sent(content: Content) -> None:
    """Every key of the store and every file on the disk is searched for the words of the caller and the answers.

    Field case 85: also the event stream, in which none of it ever was. Field case 81: to others the job is not there.
    """
    api = content.api
    hooks = await hooks_of(api)
    endpoint = (await hooks.endpoint(events=["job.completed", "job.erased"])).removeprefix("wh_")
    api.service.context.settings = api.service.context.settings.model_copy(update={"public_url": api.url})
    ticket = await announce(api, UPLOAD)
    await send(api, ticket, UPLOAD)
    assert (await complete(api, ticket)).status == 200
    job_id = await content.make(ticket["id"])
    await content.archive()
    for word in (*WORDS, "w0rd-upload"):
        assert await content.places(word), word
    before = (await api.get(f"/v1/jobs/{job_id}/events")).body["data"]

    erased = await content.erase(job_id)
    left = await content.places(*WORDS, "w0rd-upload")
    await content.archive()
    again = await content.erase(job_id)

    assert (erased.status, erased.body["complete"]) == (202, False)
    assert erased.body["removed"] == {"deliveries": 4, "artifacts": 3, "files": 1}
    assert {name.rpartition(".bodies")[2] for name in left} == {".zst"}  # what the archive keeps is the archivist's
    assert await content.places("w0rd") == []
    assert (again.status, again.body["complete"]) == (200, True)
    assert (again.body["erasedAt"], again.body["removed"]) == (
        erased.body["erasedAt"], {"deliveries": 0, "artifacts": 0, "files": 0},
    )  # fmt: skip
    await _sends_nothing(content, hooks, job_id, endpoint)
    await _shows_no_content(api, job_id, ticket["id"])
    after = (await api.get(f"/v1/jobs/{job_id}/events")).body["data"]
    assert after[:-1] == before
    assert (after[-1]["type"], after[-1]["data"]["reason"], after[-1]["source"]) == ("job.erased", "asked", "ingest")


async def _shows_no_content(api: Api, job_id: str, upload: str) -> None:
    path = f"/v1/jobs/{job_id}"
    for gone in (path + "/result", path + "/artifacts", path + "/logs",
                 *(f"/v1/artifacts/{one}" for one in (artifact_id(job_id, 1, 0), preview_id(job_id), upload)),
                 f"/v1/artifacts/{artifact_id(job_id, 1, 0)}/content"):  # fmt: skip
        answer = await api.get(gone)
        assert (answer.status, answer.code) == (410, "data_erased"), gone
    stranger = await api.tenant("t_b")
    assert (await api.get(f"/v1/artifacts/{upload}", key=stranger)).code == "artifact_not_found"
    assert (await api.call("DELETE", path, key=stranger)).status == 404
    completed = (await api.get(path + "/events")).body["data"][-2]["position"]
    for shown in (path, path + "?sequence=1", f"{path}?at={completed}"):
        view = (await api.get(shown)).body
        assert (view["prompt"], view["userId"], view["metadata"], view["input"]) == (None, None, {}, {})
        assert view["erasedAt"] is not None
    repeat = await api.submit(headers=KEY, model="edit", prompt="w0rd-prompt")
    assert (repeat.status, repeat.body["id"], repeat.body["prompt"]) == (200, job_id, None)
    assert repeat.headers["idempotent-replayed"] == "true"
    assert (await api.call("POST", path + "/retry")).status == 409


async def _sends_nothing(content: Content, hooks: Any, job_id: str, endpoint: str) -> None:
    calls, given_up = content.api.store.deliveries, delivery_id(job_id, 2, ENDPOINT, 0)
    listed = (await hooks.get(f"/v1/jobs/{job_id}/deliveries")).body["data"]
    assert {each["state"] for each in listed} == {"erased"}
    assert {made["responseBody"] for each in listed for made in each["attemptsMade"]} == {None}
    answer = await hooks.call("POST", f"/v1/webhook-deliveries/{given_up}/redeliver")
    assert (answer.status, answer.code) == (410, "data_erased")
    assert await calls.revive(POOL, ENDPOINT) == 0
    # The one that was on its way comes back: its answer is not kept, and it is not tried again.
    settled = Settlement(
        delivery_id(job_id, 3, ENDPOINT, 0), ENDPOINT, 1, {"a:1": "w0rd"}, Attempted(False, "5xx", 7), 5, 60
    )
    assert (await calls.settle(POOL, settled)).word is Word.APPLIED
    late = PlannedDelivery(delivery_id(job_id, 9, ENDPOINT, 0), {"body": "w0rd"}, ENDPOINT, "t_a", job_id)
    assert await calls.plan(POOL, "", [late], []) == 0
    told = PlannedDelivery(delivery_id(job_id, 6, endpoint, 0), {"body": "{}"}, endpoint, "t_a", job_id, bare=True)
    assert await calls.plan(POOL, "", [told], []) == 1  # that it is erased is said
    assert (await calls.claim(POOL, [Ask(ENDPOINT, 9, 9)], 1_000, 4_100_000_000_000))[1] == ()
    types = [entry[1][b"t"] for entry in await content.api.store.client.xrange(keys.log(POOL))]
    assert types.count(b"webhook.exhausted") == 3  # the two that waited, and the one that was to be tried again
    assert await content.places("w0rd") == []
    assert await calls.forget(POOL, now_ms=4_100_000_000_000) == 4  # their time is over, the job's is not
    await is_right(content)


class Dies:
    """Counts the steps of an erasure and fails at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __call__(self, step: str) -> None:
        self.count += 1
        if self.count == self.at:
            raise StoreUnavailable(step)


async def test_whoever_dies_at_any_step_the_archivist_finishes(content: Content) -> None:
    """The request fails at each step between its event and its end, then the archivist at each of its own."""
    api = content.api
    whole, shelf = api.store.erasing, api.service.context.shelf
    at, died, told = 0, True, 0
    while died:
        at += 1
        key = {"Idempotency-Key": f"order-{at}"}
        job_id = await content.make("", key)
        await content.archive()
        asks, works = Dies(at), Dies(at)
        api.store.erasing = Failing(whole, asks, ("deliveries", "live", "claim", "left"))  # type: ignore[assignment]
        api.service.context.shelf = Failing(shelf, asks, ("doom", "erase"))  # type: ignore[assignment]
        erased = await content.erase(job_id)
        api.store.erasing, api.service.context.shelf = whole, shelf
        dying = content.archivist(works)
        with contextlib.suppress(StoreUnavailable):  # it dies while it seals
            await dying.run_once()
        await dying._resign()
        await content.archive()

        assert await content.places("w0rd") == [], at
        assert erased.status == 202
        told += erased.body["removed"] is None
        assert (await content.erase(job_id)).body["complete"]
        died = at in (asks.count, works.count)
    assert (told, at) == (12, 17)  # as many steps as there are, and one round without a failure
    entries = await api.store.client.xrange(keys.log(POOL))
    gone = [fields[b"j"] for _, fields in entries if fields[b"t"] == b"artifact.deleted"]
    assert len(gone) == len(set(gone)) == at * 3  # said once each, whoever died between the word and the deed
    await is_right(content)


async def test_all_jobs_of_a_user_are_erased_kept_or_forgotten_and_nobody_elses(
    content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, of which each may be repeated; what has not ended is counted and left alone."""
    api = content.api
    monkeypatch.setattr(erase, "MOST_ERASED", 3)
    monkeypatch.setattr(erase, "AT_ONCE", 2)
    forgotten = [await content.make("", None) for _ in range(2)]
    await content.archive(FORGETS)
    await content.api.store.client.delete(*[keys.admitted(POOL, job_id) for job_id in forgotten])
    kept = [await content.make("", None) for _ in range(3)]
    await content.archive()
    waiting = await content.submit(key=None)
    other = await content.submit(key=None, userId="u_other", prompt="0ther", metadata={}, webhookUrl=None)
    await api.call("POST", f"/v1/jobs/{other}/cancel")
    path, asked = "/v1/jobs/erase", {"userId": "w0rd-user"}
    for job_id in forgotten:
        assert (await api.get(f"/v1/jobs/{job_id}")).status == 404

    dry = await _pages(api, path, asked | {"dryRun": True})
    assert await content.places("w0rd-result")
    first = await _pages(api, path, asked | {"reason": "asked"})
    again = await _pages(api, path, asked)
    await content.archive()
    await api.call("POST", f"/v1/jobs/{waiting}/cancel")
    by_operator = asked | {"tenantId": "t_a"}
    assert (await api.admin("POST", "/admin/v1/jobs/erase", json=by_operator)).pointers == ["/reason"]
    assert (await api.admin("DELETE", f"/admin/v1/jobs/{other}")).code == "bad_parameter"
    last = await _pages(api, "/admin/v1/jobs/erase", by_operator | {"reason": "asked"}, key=ADMIN_KEY)
    await content.archive()

    assert dry == {"matched": 6, "erased": 0, "already": 0, "open": 1, "pending": 0, "failed": 0}
    assert first == {"matched": 6, "erased": 5, "already": 0, "open": 1, "pending": 5, "failed": 0}
    assert again == {"matched": 6, "erased": 0, "already": 5, "open": 1, "pending": 5, "failed": 0}
    assert last == {"matched": 6, "erased": 1, "already": 5, "open": 0, "pending": 1, "failed": 0}
    assert await content.places("w0rd") == []
    assert (await api.get(f"/v1/jobs/{other}")).body["prompt"] == "0ther"
    for job_id in (*forgotten, *kept):
        assert (await api.get(f"/v1/artifacts/{artifact_id(job_id, 1, 0)}")).status == 410
        assert (await content.erase(job_id)).body["complete"]
    types = [entry[1][b"t"] for entry in await api.store.client.xrange(keys.log(POOL))]
    assert (types.count(b"job.erased"), types.count(b"archive.erased")) == (4, 2)
    await is_right(content)


async def _pages(api: Api, path: str, asked: dict[str, object], **more: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    cursor: dict[str, object] = {}
    while True:
        answer = await api.call("POST", path, json=asked | cursor, **more)
        assert answer.status == 200, answer.body
        for name in ("matched", "erased", "already", "open", "pending", "failed"):
            counts[name] = counts.get(name, 0) + answer.body[name]
        if not answer.body["hasMore"]:
            return counts
        assert answer.body["matched"] <= 4
        cursor = {"cursor": answer.body["nextCursor"]}


async def test_a_job_that_has_not_ended_is_refused_and_a_retry_finds_nothing(content: Content) -> None:
    api = content.api
    job_id = await content.submit(key=None)

    waiting = await content.erase(job_id)
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    erased, retried = await asyncio.gather(content.erase(job_id), api.call("POST", f"/v1/jobs/{job_id}/retry"))

    assert (waiting.status, waiting.code) == (409, "job_not_ended")
    assert "cancel it first" in waiting.body["detail"]
    outcome = (erased.status, retried.status)
    assert outcome in {(200, 410), (409, 202)}  # whoever was first
    if outcome == (409, 202):
        await api.call("POST", f"/v1/jobs/{job_id}/cancel")
        assert (await content.erase(job_id)).status == 200
    assert (await api.call("POST", f"/v1/jobs/{job_id}/retry")).code == "data_erased"
    assert (await content.erase("job_" + "0" * 26 + "aa")).code == "job_not_found"
    assert (await content.erase(job_id, "?reason=" + "x" * 513)).code == "bad_parameter"
    # without an archivist, nobody else is needed and nothing is left to remember
    assert await api.store.client.exists(keys.erasing(POOL)) == 0


async def test_what_comes_late_to_an_erased_job_does_not_stay(content: Content) -> None:
    """A worker that was away puts a file, says more and prints more; an archivist holds the body already."""
    api = content.api
    job_id = await content.submit(key=None)
    attempt, started = content.play.starting(await content.play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
    await api.store.client.xgroup_setid(keys.log(POOL), keys.GROUP_NOTIFIER, "$")
    archivist, reads = content.archivist(), asyncio.Event()
    goes_on, bodies = asyncio.Event(), api.store.archive.bodies

    async def slow(pool: str, job_ids: Any) -> Any:
        found = await bodies(pool, job_ids)
        reads.set()
        await goes_on.wait()
        return found

    api.store.archive.bodies = slow  # type: ignore[method-assign]
    sealing = asyncio.create_task(archivist.run_once())
    await reads.wait()
    assert (await content.erase(job_id)).status == 202
    goes_on.set()
    await sealing

    content.keep(artifact_id(job_id, 1, 7), job_id, b"w0rd-late")
    late = await api.store.attempts.emit(attempt, [ev.JobProgress(progress=1)], line=b"\nw0rd-line")

    assert late.word is not Word.APPLIED
    assert await content.places("w0rd") == []
    assert (await api.get(f"/v1/artifacts/{artifact_id(job_id, 1, 7)}")).status == 410


class Stalls:
    """An archivist that is away at a write beside a segment, for longer than its lease; another leads meanwhile."""

    def __init__(self, content: Content) -> None:
        self.content, self.away, self.other = content, content.archivist(), content.archivist()
        self._at, self._goes_on = threading.Event(), threading.Event()
        shelf = self.away._archive.shelf
        self._put = shelf.put_bodies
        shelf.put_bodies = self._slow  # type: ignore[method-assign]

    def _slow(self, *what: Any) -> None:
        self._at.set()
        assert self._goes_on.wait(30)
        self._put(*what)

    async def erase_meanwhile(self, job_id: str) -> None:
        """It writes what is erased by the time it comes back."""
        client = self.content.api.store.client
        await client.xgroup_setid(keys.log(POOL), keys.GROUP_NOTIFIER, "$")
        writing = asyncio.create_task(self.away.run_once())
        await asyncio.to_thread(self._at.wait)
        await client.hset(keys.archive(POOL), "until", 0)
        await self.other.run_once()
        await self.content.erase(job_id)
        await self.other.run_once()
        assert (await self.content.erase(job_id)).body["complete"]
        assert await self.content.places("w0rd") == []
        self._goes_on.set()
        with pytest.raises(TakenOver):
            await writing


async def test_an_archivist_that_was_away_for_longer_than_its_lease_brings_nothing_back(content: Content) -> None:
    """Away while it keeps bodies, and while it takes another job's out; it goes on, or is told to stop."""
    sealing, erasing, stopped = Stalls(content), Stalls(content), asyncio.Event()
    job_id = await content.make("", None)
    await sealing.erase_meanwhile(job_id)
    assert await content.places("w0rd-result")
    await sealing.other.run_once()
    assert await content.places("w0rd-result")  # it does not know
    await content.api.store.erasing.again(POOL, {job_id: Erasure(job_id, "t_a", 1).encode()})  # it just looked there
    await sealing.away.run_once()
    await sealing.other.run_once()
    await sealing.away.run_once()
    await sealing.other.run_once()
    assert await content.places("w0rd") == []

    await sealing.other._resign()
    first, second = [await content.make("", None) for _ in range(2)]
    await content.archive()
    await content.erase(first)
    await erasing.erase_meanwhile(second)
    assert await content.places("w0rd-result")
    stopped.set()
    await erasing.away.follow(stopped)
    await erasing.other.run_once()
    assert await content.places("w0rd") == []
    await is_right(content)


async def test_a_file_that_was_sent_goes_with_the_last_job_that_names_it(content: Content) -> None:
    api = content.api
    api.service.context.settings = api.service.context.settings.model_copy(update={"public_url": api.url})
    ticket = await announce(api, UPLOAD)
    await send(api, ticket, UPLOAD)
    await complete(api, ticket)
    first, second = [await content.submit(ticket["id"], key=None) for _ in range(2)]
    for job_id in (first, second):
        await api.call("POST", f"/v1/jobs/{job_id}/cancel")

    assert (await content.erase(first)).body["removed"]["files"] == 0
    assert (await api.get(f"/v1/artifacts/{ticket['id']}")).status == 200
    assert (await content.erase(second)).body["removed"]["files"] == 1
    assert (await api.get(f"/v1/artifacts/{ticket['id']}")).status == 410
    assert await content.places("w0rd") == []
    used = await api.submit(model="edit", input={"inputArtifacts": [ticket["id"]]})
    assert (used.status, used.pointers) == (422, ["/input/inputArtifacts/0"])
