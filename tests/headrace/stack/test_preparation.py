"""What a stack prepares before it starts anything: keys, port, environment."""

import asyncio
import json
import socket
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts import events as ev
from contracts.endpoints import Private, tenant_secret
from contracts.errors import ConfigError
from contracts.settings import load_settings
from contracts.store import Store
from contracts.tenant import Configuration
from headrace.cli import app
from headrace.stack import bootstrap
from headrace.stack.keys_file import key_id, mint_keys, read_keys, write_keys
from headrace.stack.plan import Wishes, service_environment, service_specs
from headrace.stack.port import PortTaken, reserve

WISHES = Wishes(Path("/data"), "127.0.0.1", 0, Path("/models/pipelines.toml"), workers=2, devices="sim:1GiB*2")


def environment(environ: dict[str, str]) -> dict[str, str]:
    return service_environment(environ, WISHES, 4711, "unix:///s.sock", "http://127.0.0.1:4711", "/root")


def test_keys_are_private_and_the_same_at_each_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = mint_keys()
    write_keys(path, keys, "http://127.0.0.1:1")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path) == keys
    write_keys(path, keys, "http://127.0.0.1:2")
    assert read_keys(path) == keys


def test_a_keys_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path, mint_keys(), "")
    path.chmod(0o644)

    with pytest.raises(ConfigError, match="can be read by others"):
        read_keys(path)


def test_a_damaged_keys_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"apiKey": "sk_')

    with pytest.raises(ConfigError, match="remove it to get new keys"):
        read_keys(tmp_path / "keys.json")


def test_keys_never_show_in_a_repr() -> None:
    keys = mint_keys()

    assert keys.api_key not in repr(keys)
    assert keys.api_key not in str([keys])


def test_key_init_makes_the_keys_of_a_store_that_up_never_served(store_url: str, tmp_path: Path) -> None:
    """An ingest alone on an imported log, or services on several hosts, have no `headrace up` to make them."""
    environ = {"HEADRACE_REDIS__URL": store_url, "HEADRACE_DATA_DIR": str(tmp_path / "home")}
    done = CliRunner().invoke(app, ["key", "init"], env=environ | {"HEADRACE_INGEST__PORT": "4712"})

    assert done.exit_code == 0, done.output
    made = json.loads((tmp_path / "home" / "keys.json").read_text())
    assert made["url"] == "http://127.0.0.1:4712"
    assert set(asyncio.run(_known(store_url))) == {key_id(made["apiKey"]), key_id(made["adminKey"])}
    assert made["adminKey"] not in done.output
    assert CliRunner().invoke(app, ["key", "init"], env=environ | {"HEADRACE_REDIS__URL": ""}).exit_code == 2


async def _known(store_url: str) -> list[str]:
    store = Store(store_url)
    try:
        return [*(await store.directory.refresh()).keys]
    finally:
        await store.aclose()


async def test_the_tenant_and_its_keys_are_introduced_once(store: Store) -> None:
    keys = mint_keys()

    assert await bootstrap.introduce(store.url, keys) == keys.webhook_secret
    after_first = await store.directory.refresh()
    assert await bootstrap.introduce(store.url, keys) == keys.webhook_secret

    assert await store.directory.refresh() == after_first
    scopes = {key.id: set(key.scopes) for key in after_first.keys.values()}
    assert {"admin", "audit:read"} in scopes.values()
    assert not any("admin" in held and "jobs:write" in held for held in scopes.values())
    assert {key.tenant_id for key in after_first.keys.values()} == {"t_default"}
    assert all(keys.api_key not in key.sha256 for key in after_first.keys.values())


async def test_a_store_keeps_its_webhook_secret_when_the_keys_file_was_lost(store: Store) -> None:
    first, second = mint_keys(), mint_keys()
    await bootstrap.introduce(store.url, first)

    assert await bootstrap.introduce(store.url, second) == first.webhook_secret


async def test_after_a_rotation_the_newest_webhook_secret_is_told(store: Store) -> None:
    keys = mint_keys()
    await bootstrap.introduce(store.url, keys)
    await store.directory.open()

    def rotated(_: Configuration, private: Private) -> tuple[ev.Event, Private]:
        event = ev.TenantWebhookSecretRotated(tenant_id="t_default", old_until_ms=1, by="key_1")
        return event, private.rotated("whsec_bmV3", now_ms=0, old_until_ms=1)

    await store.directory.rewrite(tenant_secret("t_default"), rotated, "t_default")

    assert await bootstrap.introduce(store.url, keys) == "whsec_bmV3"


def test_a_port_that_somebody_listens_on_is_refused_with_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]

        with pytest.raises(PortTaken, match=rf"port {number} .* is taken: .* --port"):
            reserve("127.0.0.1", number)


def test_a_reserved_port_can_be_listened_on_and_is_given_to_nobody_else() -> None:
    port = reserve("127.0.0.1", 0)
    try:
        for _ in range(2):  # two lives of ingest
            with socket.create_server(("127.0.0.1", port.number)) as listener:
                assert listener.getsockname()[1] == port.number
    finally:
        port.close()


def test_the_environment_of_the_caller_reaches_the_services_and_flags_win() -> None:
    given = {
        "HEADRACE_WORKER__LEASE_S": "4",
        "HEADRACE_WORKER__DRAIN_S": "1",
        "HEADRACE_WORKER__DEVICES": "cpu",
        "HEADRACE_INGEST__PORT": "1",
        "PATH": "/bin",
    }

    made = environment(given)

    assert made["HEADRACE_WORKER__LEASE_S"] == "4"
    assert made["HEADRACE_WORKER__DRAIN_S"] == "1"
    assert made["HEADRACE_WORKER__DEVICES"] == "sim:1GiB*2"
    assert made["HEADRACE_INGEST__PORT"] == "4711"
    assert made["PATH"] == "/bin"


def test_a_local_stack_drains_fast_and_may_call_loopback() -> None:
    settings = load_settings(environment({}))

    assert settings.worker.drain_s == 5
    assert settings.webhook.allow_private == "loopback"
    assert settings.public_url == "http://127.0.0.1:4711"
    assert settings.redis.url == "unix:///s.sock"


def test_there_is_one_process_per_service_and_one_per_supervisor() -> None:
    specs = service_specs(["ingest", "gpu_worker"], 2, "/python", {})

    assert [spec.name for spec in specs] == ["ingest", "gpu_worker", "gpu_worker-1"]
    assert specs[0].command == ("/python", "-P", "-m", "services.ingest")


def test_a_mirror_is_a_process_of_its_own_beside_the_archivist_and_only_where_it_is_switched_on() -> None:
    assert [spec.name for spec in service_specs(["ingest", "archivist"], 1, "/python", {})] == ["ingest", "archivist"]
    specs = service_specs(["ingest", "archivist"], 1, "/python", {}, mirror=True)
    assert [(spec.service, spec.name) for spec in specs[1:]] == [("archivist", "archivist"), ("archivist", "mirror")]
    assert specs[2].command == ("/python", "-P", "-m", "services.archivist.mirror")
