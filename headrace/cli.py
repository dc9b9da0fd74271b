"""The `headrace` command: one noun per module, one verb per function. Composition only."""

import typer

from contracts.secrecy import hide_this_process
from headrace.lazy import lazy_group

#: Imported when asked for: all of them take three times as long as the one that is wanted.
COMMANDS = {
    "jobs": "headrace.jobs:app",
    "tenant": "headrace.tenants:app",
    "key": "headrace.keys:app",
    "pool": "headrace.pools:app",
    "worker": "headrace.workers:app",
    "model": "headrace.models:app",
    "policy": "headrace.policy:app",
    "events": "headrace.events.group:app",
    "replay": "headrace.replay:app",
    "webhook": "headrace.webhooks.group:app",
    "audit": "headrace.audit:app",
    "dlq": "headrace.operators.dlq:app",
    "consumers": "headrace.operators.consumers:app",
    "usage": "headrace.usage:usage",
    "retention": "headrace.operators.retention:app",
    "vram": "headrace.vram.command:app",
    "up": "headrace.up:up",
    "demo": "headrace.demo:demo",
    "doctor": "headrace.doctor:doctor",
    "version": "headrace.version:version",
}

app = typer.Typer(
    name="headrace",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def headrace() -> None:
    """A durable, fair queue in front of your GPUs."""


def main() -> None:
    """Entry point of the `headrace` program."""
    hide_this_process()
    app()


if __name__ == "__main__":
    main()
