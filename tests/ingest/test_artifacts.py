"""GET /v1/artifacts/{id}/content: bytes with a key or a signed link, as long as they are kept and to nobody else."""

import hashlib
import time
from pathlib import Path

import orjson
import pytest

from contracts.ids import artifact_id, preview_id
from contracts.signed_url import sign_path
from tests.ingest.api import Api
from tests.store.play import Play

CONTENT = bytes(range(256)) * 4
HOUR_MS = 3_600_000


def keep(
    api: Api, job_id: str, *, name: str = "image.png", tenant: str = "t_a", life_ms: int = HOUR_MS, one: str = ""
) -> str:
    """Store a file as the worker does and return its id."""
    artifact = one or artifact_id(job_id, 1, 0)
    folder = api.service.context.settings.data_dir / "artifacts" / "default" / job_id
    folder.mkdir(parents=True, exist_ok=True)
    now_ms = time.time_ns() // 1_000_000
    record = {
        "id": artifact, "kind": "image", "variant": "original", "mime": "image/png", "bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(), "tenantId": tenant, "createdMs": now_ms,
        "expiresAtMs": now_ms + life_ms, "fileName": name, "storedAs": artifact + ".png", "path": path_of(artifact),
    }  # fmt: skip
    (folder / f"{artifact}.png").write_bytes(CONTENT)
    (folder / f"{artifact}.json").write_bytes(orjson.dumps(record))
    return artifact


def path_of(artifact: str) -> str:
    return f"/v1/artifacts/{artifact}/content"


async def test_the_owner_reads_the_whole_and_any_part(api: Api) -> None:
    path = path_of(keep(api, await api.job()))

    whole = await api.get(path)
    part = await api.get(path, headers={"Range": "bytes=10-19"})
    tail = await api.get(path, headers={"Range": "bytes=-5", "If-Range": whole.headers["etag"]})
    stale = await api.get(path, headers={"Range": "bytes=-5", "If-Range": '"old"'})
    outside = await api.get(path, headers={"Range": "bytes=5000-"})
    same = await api.get(path, headers={"If-None-Match": whole.headers["etag"]})

    assert (whole.status, whole.raw, whole.headers["content-type"]) == (200, CONTENT, "image/png")
    assert (part.status, part.raw, part.headers["content-range"]) == (206, CONTENT[10:20], "bytes 10-19/1024")
    assert (tail.status, tail.raw) == (206, CONTENT[-5:])
    assert (stale.status, len(stale.raw)) == (200, 1024)
    assert (outside.status, outside.headers["content-range"]) == (416, "bytes */1024")
    assert (same.status, same.raw) == (304, b"")


async def test_what_authors_made_is_not_run_as_our_page(api: Api) -> None:
    path = path_of(keep(api, await api.job(), name='a"\r\nX: <script>.html'))

    headers = (await api.get(path)).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert headers["content-disposition"] == 'inline; filename="a___X___script_.html"'


async def test_a_signed_link_works_without_a_key_until_it_expires(api: Api) -> None:
    path = path_of(keep(api, await api.job()))
    secret = api.service.context.secret("urls")
    now_s = int(time.time())

    good = await api.get(sign_path(secret, path, now_s + 60), key="")
    assert (good.status, good.raw) == (200, CONTENT)
    for link in (sign_path(secret, path, now_s - 1), sign_path(b"other", path, now_s + 60), path + "?expires=1&sig=x"):
        refused = await api.get(link, key="")
        assert (refused.status, refused.code) == (403, "bad_signature")
    assert (await api.get(path, key="")).status == 401


async def test_a_file_outlives_its_job_until_its_own_expiry(api: Api) -> None:
    job_id = "job_" + "0" * 26 + "aa"

    kept, expired = keep(api, job_id), keep(api, job_id, life_ms=-1, one=artifact_id(job_id, 1, 1))

    assert (await api.get(path_of(kept))).status == 200
    gone = await api.get(path_of(expired))
    assert (gone.status, gone.code) == (410, "data_erased")


async def test_a_foreign_file_is_answered_like_one_that_is_not_there(api: Api) -> None:
    job_id = await api.job()
    artifact = keep(api, job_id)
    stranger = await api.tenant("t_b")
    odd = ("art_x", "..%2f..%2fkeys.json", job_id, artifact + ".json", artifact_id(job_id, 9, 9))

    bodies = [await api.get(path_of(each), key=stranger) for each in (artifact, *odd)]

    assert {(answer.status, answer.code, answer.body["detail"]) for answer in bodies} == {
        (404, "artifact_not_found", "There is no such artifact")
    }


async def test_a_link_in_the_files_place_is_not_followed(api: Api, tmp_path: Path) -> None:
    job_id = await api.job()
    artifact = keep(api, job_id)
    stored = api.service.context.settings.data_dir / "artifacts" / "default" / job_id / f"{artifact}.png"
    (tmp_path / "secret").write_text("secret")
    stored.unlink()
    stored.symlink_to(tmp_path / "secret")

    assert (await api.get(path_of(artifact))).status == 404


@pytest.mark.parametrize("name", ["../../../../keys.json", "a/b", ".", ""])
async def test_a_record_cannot_lead_out_of_its_folder(api: Api, name: str) -> None:
    job_id = await api.job()
    artifact = keep(api, job_id)
    record = api.service.context.settings.data_dir / "artifacts" / "default" / job_id / f"{artifact}.json"
    record.write_bytes(orjson.dumps(orjson.loads(record.read_bytes()) | {"storedAs": name}))

    assert (await api.get(path_of(artifact))).status == 404


async def test_a_preview_changes_its_tag_with_its_content(api: Api, play: Play) -> None:
    job_id = await api.job()
    preview = keep(api, job_id, one=preview_id(job_id))
    first = await api.get(path_of(preview))
    stored = api.service.context.settings.data_dir / "artifacts" / "default" / job_id / f"{preview}.png"
    new = stored.with_suffix(".new")
    new.write_bytes(b"sharper")
    new.replace(stored)

    second = await api.get(path_of(preview), headers={"If-None-Match": first.headers["etag"]})

    assert (second.status, second.raw) == (200, b"sharper")
    assert second.headers["cache-control"] == "private, no-cache"
