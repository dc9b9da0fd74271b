"""What is done with an endpoint: on and off, a new secret, a test, and what it missed."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import KeyFile, Output, Reason, Url, call, path_segment, post_and_show
from headrace.output import Format, note, show_one
from headrace.webhooks.moments import Since, Until, read_range
from headrace.webhooks.rotation import KEEP_IT, OverlapS, rotation

PATH = "/v1/webhook-endpoints"

EndpointId = Annotated[str, typer.Argument(help="Id of the endpoint, wh_...")]


def enable(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Send to an endpoint again; `recover` sends what was held."""
    _ask(endpoint_id, "enable", None, output, url, key_file)


def disable(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Send nothing to an endpoint; what waits for it is held."""
    _ask(endpoint_id, "disable", None, output, url, key_file)


def rotate(
    endpoint_id: EndpointId,
    overlap_s: OverlapS = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Give an endpoint a new secret and print it, this once."""  # fmt: skip
    _ask(endpoint_id, "rotate-secret", rotation(overlap_s, reason), output, url, key_file)
    note(KEEP_IT)


def ping(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Send a made-up job.completed; `deliveries show` tells what came of it."""
    _ask(endpoint_id, "test", None, output, url, key_file)


def recover(
    endpoint_id: EndpointId,
    since: Since,
    until: Until = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Send again what was given up or held in a time; what was delivered is not sent again."""
    path = f"{PATH}/{path_segment(endpoint_id)}/recover"
    body: JsonObject = read_range(since, until) | {"reason": reason}

    async def action(client: Client) -> JsonObject:
        operation = (await client.post(path, body)).body
        while operation["hasMore"]:
            more = (await client.post(path, body)).body
            operation = more | {"recovered": operation["recovered"] + more["recovered"]}
        return operation

    show_one(call(action, url, key_file, output), output, ("state", "recovered"))


def backfill(
    endpoint_id: EndpointId,
    since: Since,
    until: Until = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Send what happened in a time and was never sent to it, out of the log; `stats` tells how far it is."""
    body: JsonObject = read_range(since, until) | {"reason": reason}
    _ask(endpoint_id, "backfill", body, output, url, key_file)


def stats(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Say how an endpoint did in the last day, whether its circuit is open, and what waits for it."""
    path = f"{PATH}/{path_segment(endpoint_id)}/stats"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)


def _ask(
    endpoint_id: str, verb: str, body: JsonObject | None, output: Format, url: str | None, key_file: Path | None
) -> None:
    post_and_show(f"{PATH}/{path_segment(endpoint_id)}/{verb}", body, output, url, key_file)
