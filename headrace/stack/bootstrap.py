"""Give a fresh store what a newcomer needs: tenant `t_default`, one key to submit with and one to administer with.

Promises to change nothing that is there already. A key of keys.json that the store does not know is made again
under its old text; whoever wants new keys removes keys.json.
"""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

from contracts import events as ev
from contracts.endpoints import tenant_secret
from contracts.store import Store
from contracts.tenant import Configuration
from headrace.stack.keys_file import LocalKeys, key_id, mint_keys, read_keys, write_keys

TENANT = "t_default"
ADMIN_SCOPES = ("admin", "audit:read")
JOB_SCOPES = ("jobs:read", "jobs:write", "models:read", "webhooks:read", "webhooks:write", "events:read")
_BY = "headrace up"
_REASON = "made for a local stack"


async def open_keys(path: Path, store_url: str, url: str) -> LocalKeys:
    """The keys of keys.json, which are made if there are none, and are known to the store afterwards.

    Args:
        url: address of the server, for the file: the command line finds both there.

    Raises:
        StoreUnavailable: the store does not answer.
        ConfigError: the file cannot be used, or the store holds a newer layout.
    """
    keys = read_keys(path) or mint_keys()
    write_keys(path, keys, url)  # before the store knows them: a key nobody has would be worse
    keys = replace(keys, webhook_secret=await introduce(store_url, keys))
    write_keys(path, keys, url)
    return keys


async def introduce(store_url: str, keys: LocalKeys) -> str:
    """Make tenant and keys known to the store; return the tenant's webhook secret as the store has it.

    Raises:
        StoreUnavailable: the store does not answer.
        ConfigError: the store holds a newer layout.
    """
    store = Store(store_url, retries=6)
    try:
        directory = store.directory
        await directory.open()
        name = tenant_secret(TENANT)
        await directory.change(_missing_tenant, TENANT, {name: keys.webhook_secret})
        for key, scopes in ((keys.api_key, JOB_SCOPES), (keys.admin_key, ADMIN_SCOPES)):
            await directory.change(partial(_missing_key, key, scopes), key_id(key))
        private = await directory.private(name)
        return private.secrets[0].secret if private and private.secrets else keys.webhook_secret
    finally:
        await store.aclose()


def _missing_tenant(state: Configuration) -> ev.Event | None:
    if TENANT in state.tenants:
        return None
    return ev.TenantCreated(tenant_id=TENANT, reason=_REASON, by=_BY)


def _missing_key(key: str, scopes: tuple[str, ...], state: Configuration) -> ev.Event | None:
    if key_id(key) in state.keys:
        return None
    sha256 = hashlib.sha256(key.encode()).hexdigest()
    return ev.KeyCreated(tenant_id=TENANT, key_id=key_id(key), sha256=sha256, scopes=scopes, reason=_REASON, by=_BY)
