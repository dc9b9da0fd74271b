"""`python -m services.archivist`: settings from the environment, signals, exit code. Composition only."""

import asyncio
import os
import signal
import sys

import uvloop

from contracts.artifacts import Shelf, open_archive_objects, open_objects
from contracts.errors import ConfigError
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.store import Store
from contracts.telemetry import Logger, configure_logging
from services.archivist.config import make_config
from services.archivist.service import Archivist


async def serve(settings: Settings, log: Logger) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = Store(settings.redis.url)
    try:
        objects, shelf = open_archive_objects(settings), Shelf(open_objects(settings))
        await Archivist(store, objects, shelf, make_config(settings), log).run(stop)
    finally:
        await store.aclose()
    log.info("stopped")


def main() -> int:
    """Read the environment, serve, return the exit code: 2 for a wrong configuration."""
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: is not set; give the URL of the store"])
        uvloop.run(serve(settings, configure_logging("archivist", settings.log.level)))
    except ConfigError as error:
        sys.stderr.write("\n".join(error.faults) + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
