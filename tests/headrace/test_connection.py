"""Where the command line finds server and key: flags, then the environment, then ./.headrace/keys.json."""

import json
from pathlib import Path

import pytest

from headrace.connection import DEFAULT_URL, BadAddress, NoKey, find_connection


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"url": "http://local", "apiKey": "sk_local_api", "adminKey": "sk_local_admin"}))
    return path


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("sk_file\n")
    return path


def test_the_local_file_is_used_when_nothing_else_is_said(local: Path) -> None:
    found = find_connection(None, None, {}, key_name="adminKey", local=local)

    assert (found.url, found.key) == ("http://local", "sk_local_admin")


def test_the_environment_wins_over_the_local_file(local: Path, key_file: Path) -> None:
    environ = {"HEADRACE_CLIENT__URL": "http://env", "HEADRACE_CLIENT__KEY_FILE": str(key_file)}
    found = find_connection(None, None, environ, key_name="apiKey", local=local)

    assert (found.url, found.key) == ("http://env", "sk_file")


def test_a_key_in_the_environment_wins_over_the_local_file_and_loses_to_a_key_file(local: Path, key_file: Path) -> None:
    environ = {"HEADRACE_CLIENT__KEY": "sk_env"}

    assert find_connection(None, None, environ, key_name="apiKey", local=local).key == "sk_env"
    assert find_connection(None, key_file, environ, key_name="apiKey", local=local).key == "sk_file"


def test_flags_win_over_the_environment(local: Path, key_file: Path) -> None:
    environ = {"HEADRACE_CLIENT__URL": "http://env", "HEADRACE_CLIENT__KEY_FILE": "/nowhere"}
    found = find_connection("http://flag", key_file, environ, key_name="apiKey", local=local)

    assert (found.url, found.key) == ("http://flag", "sk_file")


def test_a_key_file_may_be_a_keys_json_of_another_stack(tmp_path: Path, local: Path) -> None:
    found = find_connection(None, local, {}, key_name="apiKey", local=tmp_path / "absent")

    assert (found.url, found.key) == ("http://local", "sk_local_api")


def test_a_key_of_another_server_is_not_sent_to_the_local_stack(local: Path, key_file: Path) -> None:
    assert find_connection(None, key_file, {}, key_name="apiKey", local=local).url == DEFAULT_URL


def test_without_a_key_the_error_says_where_one_can_be_put(tmp_path: Path) -> None:
    with pytest.raises(NoKey, match=r"--key-file.*HEADRACE_CLIENT__KEY_FILE.*headrace up"):
        find_connection(None, None, {}, key_name="apiKey", local=tmp_path / "absent")


@pytest.mark.parametrize("text", ["sk_one\nsk_two\n", "sk with space", "sk_\u00fc"])
def test_a_file_that_holds_something_else_is_not_sent_as_a_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text, encoding="utf-8")

    with pytest.raises(NoKey, match="one line"):
        find_connection(None, tmp_path / "key", {}, key_name="apiKey")


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8080", "http://", "http://a b", "http://x\n"])
def test_what_is_no_address_is_refused_with_one_that_is(url: str, local: Path) -> None:
    with pytest.raises(BadAddress, match="http://127"):
        find_connection(url, None, {}, key_name="apiKey", local=local)


def test_a_key_never_shows_in_a_repr(local: Path) -> None:
    assert "sk_" not in repr(find_connection(None, None, {}, key_name="apiKey", local=local))
