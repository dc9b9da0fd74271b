"""`headrace webhook listen`: what the server sends, seen on this host as it comes, and passed on to an application.

Promises one line for each call, after its answer is known; an endpoint that was made for it is gone when it ends, also
by Ctrl-C, SIGTERM or a closed pipe (a kill -9 leaves it). What is not signed is refused and passed on to nobody.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import typer

from headrace.client import Client, JsonObject, Problem, Unreachable
from headrace.command import KeyFile, Url, call
from headrace.exits import Exit
from headrace.output import Format, note
from headrace.webhooks.forwarding import Forwarder
from headrace.webhooks.judging import Trust
from headrace.webhooks.listening import Listening, Wishes
from headrace.webhooks.receiver import Receiver
from headrace.webhooks.signing import SecretFile, read_secret

_ENDPOINTS = "/v1/webhook-endpoints"
_PAUSES_S = (0.5, 2.0)
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listen(
    forward: Annotated[
        str | None, typer.Option(metavar="URL", help="Pass each call on to this, and answer what it answers.")
    ] = None,
    events: Annotated[
        list[str] | None, typer.Option("--event", help="Only these events; job.* is a family.", show_default="all")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="standard, flat or cloudevents.")] = "standard",
    print_body: Annotated[bool, typer.Option("--print-body", help="Print what came, too.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many calls.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes any.")] = 0,
    reach_as: Annotated[
        str | None, typer.Option(help="How the server reaches this, such as the URL of a tunnel.")
    ] = None,
    make_endpoint: Annotated[
        bool, typer.Option("--endpoint/--no-endpoint", help="Make an endpoint for it, and remove it at the end.")
    ] = True,
    secret_file: SecretFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Receive webhooks here until Ctrl-C, check each signature, and pass them on; exit code 1 when one was wrong.

    Without an endpoint it receives the webhooks of jobs whose webhookUrl leads here, which the tenant's secret signs.
    """  # fmt: skip
    for name, given in (("--forward", forward), ("--reach-as", reach_as)):
        if given is not None and not given.startswith(("http://", "https://")):
            raise typer.BadParameter("is no URL: write one like http://127.0.0.1:3000/hook", param_hint=name)
    if make_endpoint and secret_file is not None:
        raise typer.BadParameter("an endpoint has its own: use --no-endpoint with it", param_hint="--secret-file")
    wishes = Wishes(forward, tuple(events or ["*"]), form, host, port, reach_as, count, print_body, as_json)
    try:
        if make_endpoint:
            form_of_faults = Format.NDJSON if as_json else Format.TABLE
            listening = call(lambda client: _run(wishes, client), url, key_file, form_of_faults)
        else:
            listening = asyncio.run(_run(wishes, Trust(read_secret(secret_file))))
    except asyncio.CancelledError:  # told twice to end
        raise typer.Exit(Exit.FAILED_CHECK) from None
    if listening.closed is not None:
        raise listening.closed
    if listening.refused:
        raise typer.Exit(Exit.FAILED_CHECK)


async def _run(wishes: Wishes, source: Client | Trust) -> Listening:
    """Listen until it is told to stop; `source` knows whom to believe."""
    listening = Listening(wishes)
    _stop_on_signals(listening.stop)
    async with AsyncExitStack() as opened:
        if wishes.forward is not None:
            listening.forwarder = await opened.enter_async_context(Forwarder(wishes.forward))
        receiver = await _open(opened, Receiver(listening.answer, wishes.host, wishes.port))
        endpoint: JsonObject | None = None
        if isinstance(source, Client):
            endpoint = await opened.enter_async_context(_temporary_endpoint(source, wishes, receiver.url))
        receiver.believe(source if isinstance(source, Trust) else Trust(str((endpoint or {}).get("secret"))))
        listening.announce(receiver, endpoint)
        await listening.stop.wait()
    return listening


async def _open(opened: AsyncExitStack, receiver: Receiver) -> Receiver:
    try:
        return await opened.enter_async_context(receiver)
    except OSError as fault:
        note(f"error: cannot listen there: {fault.strerror or fault}")
        raise typer.Exit(Exit.UNAVAILABLE) from None


def _stop_on_signals(stop: asyncio.Event) -> None:
    """End at the first signal; the second does not wait for what the end needs."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)


@asynccontextmanager
async def _temporary_endpoint(client: Client, wishes: Wishes, here: str) -> AsyncIterator[JsonObject]:
    """Make an endpoint that leads here, and remove it whatever happens."""
    body: JsonObject = {"url": wishes.reach_as or here, "events": wishes.events, "format": wishes.form}
    body["description"] = f"headrace webhook listen, process {os.getpid()} on {socket.gethostname()}"[:256]
    try:
        made = (await client.post(_ENDPOINTS, body)).body
    except Problem as fault:
        if fault.code == "webhook_url_not_allowed":
            note(f"the server may not call {body['url']}: say how it reaches this host with --reach-as, as by a tunnel")
        raise
    try:
        yield made
    finally:
        await _remove(client, str(made["id"]))


async def _remove(client: Client, endpoint_id: str) -> None:
    by_hand = f"`headrace webhook endpoints delete {endpoint_id}` removes it"
    try:
        why_not = await try_to_remove(client, endpoint_id)
    except asyncio.CancelledError:
        note(f"{endpoint_id} may still be there; {by_hand}")
        raise
    if why_not is not None:
        note(f"error: {endpoint_id} is still there, {why_not}; {by_hand}")
        raise typer.Exit(Exit.UNAVAILABLE)


async def try_to_remove(client: Client, endpoint_id: str, pauses_s: Sequence[float] = _PAUSES_S) -> str | None:
    """Remove it, also when the server is away for a moment; returns why it was not."""
    for pause_s in (0.0, *pauses_s):
        await asyncio.sleep(pause_s)
        try:
            await client.delete(f"{_ENDPOINTS}/{endpoint_id}")
        except Problem as fault:
            why_not = str(fault)
            if fault.status != 503:
                return None if fault.status == 404 else why_not
        except Unreachable as fault:
            why_not = f"cannot reach {fault}"
        else:
            return None
    return why_not
