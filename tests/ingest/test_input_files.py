"""Files that a job is given, judged at POST: URLs as text, ids by what is stored."""

from pathlib import Path

import orjson
import pytest

from contracts.ids import artifact_id, preview_id
from contracts.store import Store
from tests.ingest.api import Api, running_api, settings_for
from tests.ingest.test_artifacts import keep

SOME_JOB = "job_" + "0" * 26 + "aa"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://a.example/x.png", "scheme_not_allowed"), ("file:///etc/passwd", "malformed_url"),
        ("https://169.254.169.254/latest", "blocked_address"), ("https://127.0.0.1:6379/", "blocked_address"),
        ("https://[::1]/", "blocked_address"), ("https://a:b@c.example/", "user_info_not_allowed"),
    ],
)  # fmt: skip
async def test_a_url_that_leads_inside_is_refused_with_its_place(api: Api, url: str, code: str) -> None:
    """Field case 8: the literals of input URLs are judged as those of webhooks, before anything is queued."""
    for fields, pointer in (
        ({"image": url}, "/input/image"),
        ({"frames": ["https://a.example/", url]}, "/input/frames/1"),
    ):
        answer = await api.submit(model="edit", input=fields)
        assert (answer.status, answer.code, answer.pointers) == (422, "invalid_input", [pointer])
        assert answer.body["errors"][0]["code"] in (code, "scheme_not_allowed")
        assert url not in str(answer.body)


async def test_a_public_url_is_taken_without_being_looked_up(api: Api) -> None:
    made = await api.submit(model="edit", input={"image": "https://no-such-host.example/x.png?sig=1"})
    assert made.status == 201
    assert made.body["input"]["image"] == "https://no-such-host.example/x.png?sig=1"


async def test_a_stored_file_of_the_tenant_is_taken_and_its_place_is_kept(api: Api) -> None:
    one = keep(api, SOME_JOB)
    made = await api.submit(model="edit", input={"inputArtifacts": [one]})

    assert made.status == 201
    assert made.body["input"] == {"inputArtifacts": [one]}
    history = await api.store.jobs.history("default", made.body["id"], with_body=True)
    assert history is not None
    assert orjson.loads(history.body)["artifactPools"] == {one: "default"}


async def test_what_is_not_there_or_foreign_or_expired_is_refused_alike_but_for_the_last(api: Api) -> None:
    foreign = keep(api, SOME_JOB, tenant="t_b")
    expired = keep(api, SOME_JOB, life_ms=-1, one=artifact_id(SOME_JOB, 1, 1))
    preview = keep(api, SOME_JOB, one=preview_id(SOME_JOB))
    ids = [foreign, artifact_id(SOME_JOB, 9, 9), "art_x", "../../keys.json", preview, expired]

    answer = await api.submit(model="edit", input={"inputArtifacts": ids})

    assert (answer.status, answer.code) == (422, "invalid_input")
    assert [(fault["pointer"], fault["code"]) for fault in answer.body["errors"]] == [
        (f"/input/inputArtifacts/{index}", "artifact_not_found") for index in range(5)
    ] + [("/input/inputArtifacts/5", "artifact_expired")]


async def test_a_model_that_takes_no_files_says_so(api: Api) -> None:
    answer = await api.submit(model="draw", input={"inputArtifacts": [keep(api, SOME_JOB)]})
    assert (answer.status, answer.code, answer.pointers) == (422, "unknown_field", ["/input/inputArtifacts"])
    # A model whose schema says nothing about it takes a list of ids and nothing else.
    odd = await api.submit(model="echo", input={"inputArtifacts": "art_1"})
    assert (odd.status, odd.pointers) == (422, ["/input/inputArtifacts"])


async def test_more_files_than_a_job_may_have_are_refused(api: Api) -> None:
    answer = await api.submit(model="edit", input={"frames": ["https://a.example/"] * 17})
    assert (answer.status, answer.pointers) == (422, ["/input"])


async def test_a_repeat_is_answered_although_its_file_has_gone_since(api: Api) -> None:
    one = keep(api, SOME_JOB)
    key = {"Idempotency-Key": "again"}
    made = await api.submit(model="edit", input={"inputArtifacts": [one]}, headers=key)
    (api.service.context.settings.data_dir / "artifacts" / "default" / SOME_JOB / f"{one}.json").unlink()

    again = await api.submit(model="edit", input={"inputArtifacts": [one]}, headers=key)
    new = await api.submit(model="edit", input={"inputArtifacts": [one]}, headers={"Idempotency-Key": "new"})

    assert (again.status, again.body["id"]) == (200, made.body["id"])
    assert (new.status, new.pointers) == (422, ["/input/inputArtifacts/0"])


async def test_a_store_of_files_that_is_away_is_a_503_and_other_jobs_are_not_held_up(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("no directory")
    chosen = {"url": str(tmp_path / "broken" / "x")}
    async with running_api(settings_for(store_url, tmp_path, artifacts=chosen)) as api:
        one = artifact_id(SOME_JOB, 1, 0)
        assert (await api.submit(model="edit", input={"inputArtifacts": [one]})).status == 422  # nothing is there
        api.service.context.files.shelf.find = _away  # type: ignore[method-assign]
        answer = await api.submit(model="edit", input={"inputArtifacts": [one]})
        assert (answer.status, answer.code) == (503, "files_unavailable")
        assert (await api.submit(model="edit")).status == 201


def _away(pool: str, artifact_id: str) -> None:
    from contracts.artifacts import StoreAway

    raise StoreAway("away")
