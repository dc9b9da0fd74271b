"""`python -m services.ingest`: one ingest process, configured by `HEADRACE_*`; ends with 0, misconfigured with 2."""

import asyncio
import gc
import os
import signal
import sys

from contracts.errors import ConfigError
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.telemetry import configure_logging
from services.ingest.service import IngestService


async def serve(settings: Settings) -> None:
    """Serve until a stop signal."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    service = IngestService(settings)
    await service.start()
    # What is alive now lives as long as the process: the collector need not look at it again and again.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    await stopped.wait()
    await service.stop()


def main() -> int:
    """Read the settings and serve."""
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: name the store, or use `headrace up`, which starts one"])
        configure_logging("ingest", settings.log.level)
        _run(settings)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _run(settings: Settings) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(settings))
    else:
        uvloop.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main())
