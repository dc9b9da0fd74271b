"""The commands of `headrace webhook`. Composition only."""

import typer

from headrace.lazy import lazy_group

COMMANDS = {
    "endpoints": "headrace.webhooks.endpoints:app",
    "deliveries": "headrace.webhooks.deliveries:app",
    "secret": "headrace.webhooks.own_secret:app",
    "listen": "headrace.webhooks.listen:listen",
    "sign": "headrace.webhooks.signing:sign",
    "verify": "headrace.webhooks.signing:verify",
}

app = typer.Typer(
    cls=lazy_group(COMMANDS), no_args_is_help=True, help="Where events are sent, what came of it, and who sent it."
)


@app.callback()
def webhook() -> None:
    """Where events are sent, what came of it, and who sent it."""
