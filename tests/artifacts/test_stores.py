"""What every store of files must do: one suite, run against a directory and against S3 (moto's server)."""

import hashlib
import os
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contracts.artifacts import Content, Objects, Shelf, StoreAway, Upload
from contracts.errors import ConfigError
from contracts.settings import load_settings
from tests.artifacts import stores

JOB = "job_" + "0" * 26 + "aa"
ART = "art_" + "0" * 26 + "aa_1_0"


def upload(name: str = "image.png", **changes: object) -> Upload:
    facts = {
        "id": ART, "pool": "default", "job_id": JOB, "tenant_id": "t_a", "name": name, "kind": "image",
        "variant": "original", "width": 8, "height": 8, "created_ms": 1, "expires_at_ms": 2,
    }  # fmt: skip
    return Upload(**{**facts, **changes})  # type: ignore[arg-type]


def all_of(content: Content | None) -> bytes:
    assert content is not None
    with content:
        return b"".join(iter(content.read, b""))


def test_what_is_put_is_got_whole_and_in_parts(objects: Objects, tmp_path: Path) -> None:
    data = os.urandom(700_000)
    (tmp_path / "file").write_bytes(data)

    objects.put_file("a/b/one.bin", tmp_path / "file", "application/octet-stream")

    found = objects.get("a/b/one.bin")
    assert found is not None
    assert found.size_bytes == len(data)
    assert all_of(found) == data
    assert all_of(objects.get("a/b/one.bin", 10, 20)) == data[10:20]
    assert all_of(objects.get("a/b/one.bin", 699_990)) == data[-10:]


def test_a_part_that_has_no_bytes_is_empty_and_no_error(objects: Objects) -> None:
    """Whoever follows a growing log asks for what lies behind its end."""
    objects.put_file("a/log", b"hello", "text/plain")
    objects.put_file("a/nothing", b"", "text/plain")
    whole = objects.get("a/log")
    assert whole is not None

    for key, start, end in (("a/log", 5, None), ("a/log", 9, None), ("a/log", 2, 2), ("a/nothing", 0, 0)):
        found = objects.get(key, start, end)
        assert found is not None
        assert found.size_bytes == (5 if key == "a/log" else 0)
        assert all_of(found) == b""

    behind = objects.get("a/log", 5)
    assert behind is not None
    assert behind.version == whole.version
    assert objects.get("a/none", 5) is None


def test_a_large_file_goes_up_in_parts_and_comes_back_the_same(objects: Objects, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "file").write_bytes(data)

    objects.put_file("a/large.bin", tmp_path / "file", "application/octet-stream")

    assert hashlib.sha256(all_of(objects.get("a/large.bin"))).digest() == hashlib.sha256(data).digest()


def test_an_empty_file_is_a_file(objects: Objects) -> None:
    objects.put_file("a/empty", b"", "text/plain")
    assert all_of(objects.get("a/empty")) == b""


def test_a_repeated_put_replaces_and_changes_the_version(objects: Objects) -> None:
    versions = []
    for data in (b"first", b"second"):
        objects.put_file("a/one", data, "text/plain")
        found = objects.get("a/one")
        assert found is not None
        versions.append(found.version)
        assert all_of(found) == data
    assert versions[0] != versions[1]


def test_who_puts_the_same_key_at_once_leaves_one_whole_object(tmp_path: Path) -> None:
    objects = stores.open_local(tmp_path)
    contents = [bytes([number]) * 300_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda data: objects.put_file("a/same", data, "text/plain", durable=False), contents * 5):
            assert all_of(objects.get("a/same")) in contents
    assert [each.key for each in objects.list("a/")] == ["a/same"]


def test_what_a_killed_process_left_half_put_can_be_removed(tmp_path: Path) -> None:
    objects = stores.open_local(tmp_path)
    for name, age_s in ((".one.x.part", 10), (".two.x.part", 7_200)):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(b"")
        os.utime(tmp_path / "a" / name, (time.time() - age_s,) * 2)
    assert [each.key for each in objects.list("a/")] == ["a/.two.x.part"]


def test_what_is_not_there_is_none_and_deleting_it_is_no_error(objects: Objects) -> None:
    objects.put_file("a/one", b"1", "text/plain")
    for _ in range(2):
        objects.delete("a/one")
    assert objects.get("a/one") is None
    assert objects.get("never/there") is None


def test_a_listing_has_what_lies_below_a_folder_and_nothing_else(objects: Objects) -> None:
    for key in ("in/a", "in/deep/b", "inside", "other/c"):
        objects.put_file(key, key.encode(), "text/plain")

    listed = {each.key: each for each in objects.list("in/")}

    assert {key: each.size_bytes for key, each in listed.items()} == {"in/a": 4, "in/deep/b": 9}
    assert all(each.modified_ms > 1_700_000_000_000 for each in listed.values())
    assert list(objects.list("nothing/")) == []


def test_finishing_twice_is_finishing_once(objects: Objects, tmp_path: Path) -> None:
    shelf = Shelf(objects)
    references = []
    for _ in range(2):
        (tmp_path / "file").write_bytes(b"pixels")
        references.append(shelf.put(upload(), tmp_path / "file"))

    assert references[0] == references[1]
    assert references[0].sha256 == hashlib.sha256(b"pixels").hexdigest()
    record = shelf.find("default", ART)
    assert record is not None
    assert (record.tenant_id, record.file_name, record.bytes) == ("t_a", "image.png", 6)
    assert all_of(shelf.open("default", record)) == b"pixels"
    assert len(list(objects.list("default/"))) == 2


def test_a_file_called_json_does_not_lie_where_its_record_does(objects: Objects, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b'{"mine": true}')
    Shelf(objects).put(upload("result.json"), tmp_path / "file")

    record = Shelf(objects).find("default", ART)

    assert record is not None
    assert (record.mime, all_of(Shelf(objects).open("default", record))) == ("application/json", b'{"mine": true}')


def test_of_an_erased_job_nothing_stays_also_not_what_comes_late(objects: Objects, tmp_path: Path) -> None:
    shelf, neighbour = Shelf(objects), JOB[:-3] + "1aa"
    for number, (job_id, name) in enumerate(((JOB, "a.png"), (JOB, "b.json"), (neighbour, "a.png"))):
        (tmp_path / "file").write_bytes(b"secret")
        shelf.put(upload(name, id=f"{ART[:-1]}{number}", job_id=job_id), tmp_path / "file")
    objects.put_file(f"default/{JOB}/half.png", b"secret", "image/png")  # whose record a killed process never wrote

    assert [len(shelf.doom("default", JOB, "t_a", 7)) for _ in range(2)] == [2, 2]
    shelf.erase("default", JOB)
    assert shelf.doom("default", JOB, "t_a", 7) == []
    (tmp_path / "file").write_bytes(b"secret")
    shelf.put(upload(), tmp_path / "file")

    assert [each.key for each in objects.list(f"default/{JOB}/")] == [f"default/{JOB}/erased.json"]
    assert shelf.erased("default", JOB) is not None
    assert (shelf.find("default", ART), shelf.erased("default", neighbour)) == (None, None)
    assert len(list(objects.list(f"default/{neighbour}/"))) == 2


def test_files_that_outlived_their_time_are_found_and_what_has_no_record_goes(objects: Objects, tmp_path: Path) -> None:
    shelf, neighbour = Shelf(objects), JOB[:-3] + "1aa"
    for number, (job_id, until_ms) in enumerate(((JOB, 2), (JOB, 9), (neighbour, 2))):
        (tmp_path / "file").write_bytes(b"x")
        shelf.put(upload(id=f"{ART[:-1]}{number}", job_id=job_id, expires_at_ms=until_ms), tmp_path / "file")
    objects.put_file(f"default/{JOB}/half.png", b"x", "image/png")
    later_ms = (time.time_ns() // 1_000_000) + 60_000

    assert shelf.outlived("default", 0, 5, 9) == []
    found = sorted(record.id for record in shelf.outlived("default", later_ms, 5, 9))

    assert found == [f"{ART[:-1]}0", f"{ART[:-1]}2"]
    assert len(shelf.outlived("default", later_ms, 5, 1)) == 1
    assert len(list(objects.list("default/"))) == 6  # the half of a file is gone


def test_a_broken_record_is_no_record(objects: Objects) -> None:
    objects.put_file(f"default/{JOB}/{ART}.json", b'{"id": "x"', "application/json")
    assert Shelf(objects).find("default", ART) is None


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "a\0b"])
def test_no_name_leaves_its_folder(objects: Objects, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for field in ("id", "pool", "job_id"):
        with pytest.raises(ValueError, match="part of a key"):
            Shelf(objects).put(upload(**{field: name}), tmp_path / "file")


@stores.NEEDS_S3
def test_a_signed_link_opens_one_object_for_one_method(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stores.credentials(monkeypatch.setenv)
    objects = stores.open_s3(stores.s3_settings(s3_endpoint))
    link = objects.sign("PUT", "in/one", 60)
    assert link is not None
    # A form's content type made a presigned PUT hang; octet-stream is what callers are told to send.
    headers = {"Content-Type": "application/octet-stream"}
    put = urllib.request.Request(link, data=b"sent", method="PUT", headers=headers)
    urllib.request.urlopen(put, timeout=20).close()

    assert all_of(objects.get("in/one")) == b"sent"
    read = objects.sign("GET", "in/one", 60)
    assert read is not None
    with urllib.request.urlopen(read, timeout=20) as answer:
        assert answer.read() == b"sent"
    assert "X-Amz-Expires=60" in read


@stores.NEEDS_S3
def test_a_store_that_is_away_or_hangs_is_given_up_and_says_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    stores.credentials(monkeypatch.setenv)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        gone = "http://127.0.0.1:1"
        for endpoint in (hangs, gone):
            settings = {"url": "s3://bucket/x", "endpoint": endpoint, "region": "us-east-1", "timeout_s": 0.3}
            objects = stores.open_s3(settings)
            for call in (
                lambda one=objects: one.get("a"),
                lambda one=objects: one.put_file("a", b"x", "text/plain"),
                lambda one=objects: list(one.list("a/")),
            ):
                with pytest.raises(StoreAway) as caught:
                    call()
                said = f"{caught.value} {caught.value.strerror} {caught.value.__cause__}"
                assert stores.SECRET not in said
                assert "127.0.0.1" not in said
    assert threading.active_count() < 50


@pytest.mark.parametrize(
    ("name", "value"),
    [("URL", "ftp://x/y"), ("URL", "s3://Bad_Bucket/x"), ("URL", "s3://user:secret@bucket/x"),
     ("ENDPOINT", "https://user:secret@minio:9000"), ("ENDPOINT", "minio:9000")],
)  # fmt: skip
def test_a_wrong_place_is_a_fault_of_the_configuration_that_repeats_no_secret(name: str, value: str) -> None:
    from contracts.artifacts import open_objects

    with pytest.raises(ConfigError) as caught:
        open_objects(load_settings({f"HEADRACE_ARTIFACTS__{name}": value}))
    assert f"HEADRACE_ARTIFACTS__{name}" in str(caught.value)
    assert "secret" not in str(caught.value)
