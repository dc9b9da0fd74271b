"""Tell the pools of a model that it was measured: `model.profiled` in the log of each."""

import asyncio
import random

from contracts import events as ev
from contracts.ids import mint_token
from contracts.model_spec import ModelSpec
from contracts.profiles import Profile, reserved
from contracts.settings import Settings
from contracts.store import Store
from headrace.store_server import ensure, release


def tell(settings: Settings, spec: ModelSpec, profile: Profile) -> list[str]:
    """Write the event to every pool of the model that exists; returns them. Raises HeadraceError.

    An embedded store is started for the moment of it; without a data directory there is nobody to tell.
    """
    url, home = settings.redis.url, settings.data_dir.expanduser()
    if not url and not home.exists():
        return []
    try:
        return asyncio.run(_tell(url or ensure(home, server=settings.store.server).url, spec, profile))
    finally:
        if not url:
            release(home)  # without a wait: another process may go on using it


async def _tell(url: str, spec: ModelSpec, profile: Profile) -> list[str]:
    largest_bytes = profile.fit.largest_peak_bytes
    event = ev.ModelProfiled(
        model=spec.reference, bytes=profile.context_bytes + reserved(largest_bytes), source="audit",
        device=profile.machine.device, peak_bytes=largest_bytes,
    )  # fmt: skip
    store, write_id = Store(url), mint_token(random.SystemRandom().getrandbits(80))
    try:
        await store.directory.open()
        told = [pool for pool in spec.pools if pool in store.directory.configuration.pools]
        for pool in told:
            await store.note(pool, spec.reference, event, write_id)
        return told
    finally:
        await store.aclose()
