"""Files that callers send: announced, PUT, completed; one suite against a directory and against S3 (moto's server)."""

import asyncio
import hashlib
import os
import struct
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.signed_url import sign_path
from contracts.store import Store
from services.ingest.edge.problems import Problem
from tests.artifacts import stores
from tests.gpu_worker.rig import eventually
from tests.ingest.api import Answer, Api, running_api, settings_for

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 4, 4) + bytes(20)
BOMB = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + bytes(20)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with stores.s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=stores.STORES)
async def api(
    request: pytest.FixtureRequest, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    more: dict[str, Any] = {"inputs": {"file_bytes": 3 << 20}}
    if request.param == "s3":
        stores.credentials(monkeypatch.setenv)
        more["artifacts"] = stores.s3_settings(request.getfixturevalue("s3_endpoint"))
    settings = settings_for(store_url, tmp_path, **more)
    async with running_api(settings) as running:
        running.service.context.settings = settings.model_copy(update={"public_url": running.url})
        yield running


async def announce(api: Api, data: bytes, mime: str = "image/png", **more: object) -> dict[str, Any]:
    body = {"fileName": "cat.png", "contentType": mime, "bytes": len(data)} | more
    made = await api.call("POST", "/v1/uploads", json=body)
    assert made.status == 201, made.body
    return dict(made.body)


async def send(api: Api, ticket: dict[str, Any], data: bytes) -> int:
    async with api.session.put(ticket["url"], data=data, headers=ticket["headers"]) as answer:
        return answer.status


async def complete(api: Api, ticket: dict[str, Any], key: str | None = None) -> Answer:
    return await api.call("POST", ticket["urls"]["complete"], key=key)


async def test_a_file_is_announced_sent_completed_and_used(api: Api) -> None:
    data = PNG + bytes(2 << 20)  # more than a JSON body may have
    ticket = await announce(api, data, sha256=hashlib.sha256(data).hexdigest())

    early = await complete(api, ticket)
    sent = await send(api, ticket, data)
    done = await complete(api, ticket)
    again = await complete(api, ticket)
    used = await api.submit(model="edit", input={"inputArtifacts": [ticket["id"]]})

    assert (early.status, early.code) == (409, "upload_incomplete")
    assert sent in (200, 204)
    assert (done.status, again.status, again.body) == (200, 200, done.body)
    assert (done.body["id"], done.body["kind"], done.body["mime"]) == (ticket["id"], "image", "image/png")
    assert (done.body["bytes"], done.body["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert used.status == 201
    async with api.session.get(api.url + f"/v1/artifacts/{ticket['id']}/content", headers=bearer(api)) as content:
        assert await content.read() == data
    left = list(api.service.context.shelf.objects.list("_incoming/"))
    assert left == []


def bearer(api: Api) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.key}"}


@pytest.mark.parametrize(
    ("data", "announced", "pointer"),
    [
        (PNG, {"bytes": len(PNG) + 1}, "/bytes"),
        (PNG, {"sha256": "0" * 64}, "/sha256"),
        (PNG, {"contentType": "image/jpeg"}, "/contentType"),
        (PNG, {"contentType": "text/plain"}, "/contentType"),
        (b"<script>", {"contentType": "image/png", "bytes": 8}, "/contentType"),
        (BOMB, {}, ""),
    ],
)
async def test_what_is_not_as_announced_is_refused_and_gone(
    api: Api, data: bytes, announced: dict[str, Any], pointer: str
) -> None:
    ticket = await announce(api, data, **announced)
    await send(api, ticket, data)

    refused = await complete(api, ticket)

    assert (refused.status, refused.code, refused.pointers) == (422, "upload_rejected", [pointer])
    assert (await complete(api, ticket)).status == 404
    assert (await api.submit(model="edit", input={"inputArtifacts": [ticket["id"]]})).status == 422
    assert list(api.service.context.shelf.objects.list("_incoming/")) == []


async def test_an_upload_is_its_tenants_alone(api: Api) -> None:
    stranger = await api.tenant("t_b")
    ticket = await announce(api, PNG)
    await send(api, ticket, PNG)
    foreign = await complete(api, ticket, key=stranger)
    never = await api.call("POST", ticket["urls"]["complete"].replace(ticket["id"], "art_x_upload"))
    await complete(api, ticket)
    later = await complete(api, ticket, key=stranger)
    used = await api.submit(key=stranger, model="edit", input={"inputArtifacts": [ticket["id"]]})

    assert [(each.status, each.code) for each in (foreign, never, later)] == [(404, "upload_not_found")] * 3
    assert used.body["errors"][0]["code"] == "artifact_not_found"


async def test_bytes_that_come_after_completion_change_nothing(api: Api) -> None:
    """The link of an object store goes on working for a while; what was checked is out of its reach."""
    ticket = await announce(api, PNG)
    await send(api, ticket, PNG)
    await complete(api, ticket)
    await send(api, ticket, b"other" * 10)
    async with api.session.get(api.url + f"/v1/artifacts/{ticket['id']}/content", headers=bearer(api)) as content:
        assert await content.read() == PNG


async def test_what_was_kept_is_kept_when_it_is_completed_anew(api: Api, tmp_path: Path) -> None:
    """As by another process, which had read the announcement before it was removed."""
    ticket = await announce(api, PNG)
    await send(api, ticket, PNG)
    uploads = api.service._uploads._uploads
    announced = uploads.find(ticket["id"])
    assert announced is not None
    first = uploads.complete(announced, "default", 1_000)
    (tmp_path / "other").write_bytes(PNG[:-1] + b"x")
    uploads.take(ticket["id"], tmp_path / "other")
    assert uploads.complete(announced, "default", 2_000) == first


async def test_who_completes_at_the_same_moment_gets_the_same_file(local: Api) -> None:
    """Also while the sender exchanges the bytes: no hash was announced that would tell them apart."""
    ticket = await announce(local, PNG)
    here = ticket | {"url": local.url + ticket["url"].removeprefix("https://gen.example")}
    await send(local, here, PNG)
    other = PNG[:-1] + b"x"

    answers = await asyncio.gather(*(complete(local, ticket) for _ in range(6)), send(local, here, other))
    done = [each for each in answers if isinstance(each, Answer)]

    assert [each.status for each in done] == [200] * 6
    assert all(each.body == done[0].body for each in done)
    content = f"{local.url}/v1/artifacts/{ticket['id']}/content"
    async with local.session.get(content, headers=bearer(local)) as kept:
        assert hashlib.sha256(await kept.read()).hexdigest() == done[0].body["sha256"]


async def test_what_a_killed_process_left_of_an_upload_is_swept_away(local: Api) -> None:
    folder = local.service.context.settings.data_dir / "uploads"
    (folder / "tmp1").mkdir(parents=True)
    (folder / "tmp1" / "part").write_bytes(bytes(10))
    (folder / "tmp2").mkdir()
    uploads, now_ms = local.service._uploads._uploads, time.time_ns() // 1_000_000
    os.utime(folder / "tmp1", (1, 1))  # a directory is as old as its first file; the file is written to

    uploads.sweep(now_ms - 60_000)
    assert {each.name for each in folder.iterdir()} == {"tmp1", "tmp2"}
    os.utime(folder / "tmp1", (1, 1))
    os.utime(folder / "tmp1" / "part", (1, 1))
    uploads.sweep(now_ms - 60_000)
    assert {each.name for each in folder.iterdir()} == {"tmp2"}


async def test_a_disk_that_cannot_be_written_is_told_as_such_and_ends_no_loop(local: Api) -> None:
    """As a full one: 503, which says to come again, and what sweeps goes on."""
    folder = local.service.context.settings.data_dir / "uploads"
    ticket = await announce(local, PNG)
    ticket["url"] = local.url + ticket["url"].removeprefix("https://gen.example")
    assert await send(local, ticket, PNG) == 204
    folder.rmdir()
    folder.touch()

    assert await send(local, ticket, PNG) == 503
    refused = await complete(local, ticket)
    assert (refused.status, refused.code) == (503, "files_unavailable")
    with pytest.raises(Problem):
        await local.service.context.files.ask(local.service._uploads._uploads.sweep, 0)
    folder.unlink()
    assert await send(local, ticket, PNG) == 204
    assert (await complete(local, ticket)).status == 200


async def test_what_nobody_completes_is_swept_away(api: Api) -> None:
    ticket = await announce(api, PNG)
    await send(api, ticket, PNG)
    uploads = api.service._uploads._uploads
    now_ms = time.time_ns() // 1_000_000

    assert uploads.sweep(now_ms - 60_000) == 0
    assert uploads.sweep(now_ms + 60_000) == 2
    assert (await complete(api, ticket)).status == 404


async def test_a_file_that_is_too_large_is_refused_when_it_is_announced(api: Api) -> None:
    body = {"fileName": "x", "contentType": "video/mp4", "bytes": (3 << 20) + 1}
    made = await api.call("POST", "/v1/uploads", json=body)
    assert (made.status, made.code) == (413, "payload_too_large")
    for wrong in ({"contentType": "png"}, {"bytes": 0}, {"sha256": "x"}, {"fileName": ""}):
        refused = await api.call("POST", "/v1/uploads", json=body | {"bytes": 5} | wrong)
        assert (refused.status, refused.pointers) == (422, ["/" + next(iter(wrong))])


@pytest.fixture
async def local(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running_api(settings_for(store_url, tmp_path)) as running:
        yield running


async def test_our_own_link_takes_no_more_than_was_announced(local: Api) -> None:
    ticket = await announce(local, PNG)
    path = ticket["url"].removeprefix("https://gen.example")

    async with local.session.put(local.url + path, data=PNG + b"x") as too_much:
        assert too_much.status == 413

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield bytes(40)

    async with local.session.put(local.url + path, data=drip()) as chunked:
        assert chunked.status == 413
    assert (await local.call("POST", ticket["urls"]["complete"])).code == "upload_incomplete"
    async with local.session.put(local.url + path, data=PNG, headers={"Expect": "100-continue"}) as good:
        assert good.status == 204


async def test_our_own_link_is_signed_and_expires(local: Api) -> None:
    ticket = await announce(local, PNG)
    path = f"/v1/uploads/{ticket['id']}/content"
    secret, now_s = local.service.context.secret("urls"), int(time.time())
    wrong = (path, sign_path(b"other", path, now_s + 60), sign_path(secret, path, now_s - 1))
    content = f"/v1/artifacts/{ticket['id']}/content"
    for link in (*wrong, path + sign_path(secret, content, now_s + 60).removeprefix(content)):
        async with local.session.put(local.url + link, data=PNG) as refused:
            assert refused.status == 403


async def half_sent(local: Api) -> tuple[dict[str, Any], Path, asyncio.StreamWriter]:
    """Send half of a file of 100,000 bytes; returns its ticket, the folder it comes in, and the connection."""
    ticket = await announce(local, bytes(100_000), "application/octet-stream")
    path = ticket["url"].removeprefix("https://gen.example")
    _reader, writer = await asyncio.open_connection("127.0.0.1", local.service.port)
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".encode() + bytes(50_000))
    await writer.drain()
    folder = local.service.context.settings.data_dir / "uploads"
    await eventually(lambda: folder.exists() and len(list(folder.iterdir())) == 1, "the upload has begun")
    return ticket, folder, writer


async def test_an_upload_that_breaks_off_leaves_nothing(local: Api, tmp_path: Path) -> None:
    ticket, folder, writer = await half_sent(local)
    writer.close()
    await eventually(lambda: not list(folder.iterdir()), "nothing of it is left")
    assert (await local.call("POST", ticket["urls"]["complete"])).code == "upload_incomplete"


async def test_a_link_takes_one_file_at_a_time(local: Api) -> None:
    ticket, folder, writer = await half_sent(local)
    link = local.url + ticket["url"].removeprefix("https://gen.example")
    async with local.session.put(link, data=bytes(100_000)) as second:
        assert (second.status, (await second.json())["code"]) == (429, "quota_exceeded")
    writer.close()
    await eventually(lambda: not list(folder.iterdir()), "the first is given up")
    async with local.session.put(link, data=bytes(100_000)) as third:
        assert third.status == 204


async def test_a_tenant_announces_no_more_than_its_share_of_a_day(store: Store, store_url: str, tmp_path: Path) -> None:
    settings = settings_for(store_url, tmp_path, inputs={"tenant_mib_per_day": 3})
    async with running_api(settings) as api:

        async def answer(size: int, key: str | None = None) -> Answer:
            body = {"fileName": "a", "contentType": "text/plain", "bytes": size}
            return await api.call("POST", "/v1/uploads", key=key, json=body)

        assert [(await answer(size)).status for size in (1, (1 << 20) + 1)] == [201, 201]
        refused = await answer(1)
        assert (refused.status, refused.code) == (429, "quota_exceeded")
        assert refused.body["violated-policies"] == ["uploadedBytes"]
        assert 28_000 < int(refused.headers["retry-after"]) <= 28_800
        assert (await answer(3 << 20, await api.tenant("t_b"))).status == 201
        too_large = await answer((3 << 20) + 1)
        assert (too_large.status, too_large.code) == (413, "payload_too_large")


async def test_an_announcement_expires(store: Store, store_url: str, tmp_path: Path) -> None:
    settings = settings_for(store_url, tmp_path, inputs={"upload_s": 0.001})
    async with running_api(settings) as api:
        ticket = await announce(api, PNG)
        await asyncio.sleep(0.01)
        gone = await api.call("POST", ticket["urls"]["complete"])
        assert (gone.status, gone.code) == (410, "data_erased")
