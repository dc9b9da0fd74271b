"""`python -m services.archivist.mirror`: settings from the environment, signals, exit code. Composition only."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import uvloop

from contracts.archive import open_archive
from contracts.errors import ConfigError
from contracts.kafka.connection import topic_at
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.store import Store
from contracts.telemetry import Logger, configure_logging, take_over_libraries
from services.archivist.mirror.service import Mirror

CLOSE_S = 1.5
STOPS = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: Settings, log: Logger) -> bool:
    """Put the mirror together and run it; returns whether to start it again."""
    stop = asyncio.Event()
    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    topic = topic_at(settings.kafka.topic(), settings.kafka)
    if topic is None:
        raise ConfigError(["HEADRACE_KAFKA__MIRROR: is not set; write kafka://host:port/topic, or start no mirror"])
    store = Store(settings.redis.url)
    try:
        archive = open_archive(store, settings)
        mirror = Mirror(store, archive, topic, settings.public_url, log, idempotent=settings.kafka.idempotent)
        again = await mirror.run(stop)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # one that comes now is heard by what begins anew
        return again and not stop.is_set()
    finally:
        with suppress(TimeoutError):  # a store that hangs is not waited for
            async with asyncio.timeout(CLOSE_S):
                await store.aclose()


def main() -> int:
    """Run until SIGTERM or SIGINT; 0 after an orderly stop, 2 for a wrong configuration."""
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: is not set; give the URL of the store"])
        log = configure_logging("mirror", settings.log.level)
        take_over_libraries(log)
        again = uvloop.run(serve(settings, log))
    except ConfigError as error:
        sys.stderr.write("\n".join(error.faults) + "\n")
        return 2
    if again:  # the set of pools changed: the same process begins anew
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
