"""`python -m services.notifier`: settings from the environment, signals, exit code. Composition only."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from contextlib import suppress
from importlib import metadata

import uvloop

from contracts.archive import open_archive
from contracts.deliveries import circuit_of
from contracts.errors import ConfigError
from contracts.kafka.connection import topic_at
from contracts.outbound.guard import Outbound
from contracts.retry import Schedule
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.store import Store
from contracts.telemetry import Logger, configure_logging, take_over_libraries
from services.notifier.attempt.delivery import Sender
from services.notifier.sending.courier import Courier, Places
from services.notifier.sending.delivering import Plan
from services.notifier.service import Identity, Notifier

EXIT_CONFIGURATION = 2
CLOSE_S = 1.5
STOPS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Run until SIGTERM or SIGINT; 0 after an orderly stop, 2 for a wrong configuration."""
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        check(settings)
        log = configure_logging("notifier", settings.log.level)
        take_over_libraries(log)
        again = uvloop.run(serve(settings, log))
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return EXIT_CONFIGURATION
    if again:  # the set of pools changed: the same process begins anew
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


def check(settings: Settings) -> None:
    """Refuse what cannot be obeyed, all of it at once. Raises ConfigError."""
    faults = []
    if not settings.redis.url:
        faults.append("HEADRACE_REDIS__URL: is not set; name the store, or run `headrace up`, which starts one")
    if faults:
        raise ConfigError(faults)


async def serve(settings: Settings, log: Logger) -> bool:
    """Put the notifier together and run it; returns whether to start it again."""
    stop = asyncio.Event()
    topic = topic_at(settings.notifier.topic(), settings.kafka)
    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    webhook = settings.webhook
    sender = Sender(
        timeout_s=webhook.timeout_s,
        allow_private=webhook.allow_private,
        user_agent=f"headrace/{version()}",
        outbound=Outbound.by(webhook.route),
        ports=webhook.ports,
        answer_bytes=webhook.answer_bytes,
    )
    store = Store(settings.redis.url)
    open_archive(store, settings)
    places = Places(webhook.concurrency, webhook.endpoint_concurrency)
    plan = Plan(Schedule(webhook.schedule), circuit_of(webhook.circuit_s), webhook.disable_after_s)
    courier = Courier(store, sender, plan=plan, places=places, log=log)
    try:
        identity = Identity(consumer_name(), settings.public_url)
        again = await Notifier(store, courier, identity, log, topic=topic).run(stop)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # one that comes now is heard by what begins anew
        return again and not stop.is_set()
    finally:
        with suppress(TimeoutError):  # a store that hangs is not waited for
            async with asyncio.timeout(CLOSE_S):
                await store.aclose()


def consumer_name() -> str:
    """Name this process in the group: told apart by people through host and pid, by the store through the rest."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def version() -> str:
    """Return the version of the product."""
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "0"


if __name__ == "__main__":
    sys.exit(main())
