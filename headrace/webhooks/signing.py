"""`headrace webhook sign` and `verify`: what Standard Webhooks sign, made and checked by hand."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headrace.command import Output, read_input
from headrace.connection import NoKey, find_webhook_secret
from headrace.exits import Exit
from headrace.output import Format, note, show_one
from headrace.strict_json import read_json
from headrace.webhooks.judging import Trust, read_public_key, why_not
from services.notifier.attempt import signature

SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", help="File with whsec_..., or a keys.json. [HEADRACE_CLIENT__WEBHOOK_SECRET_FILE]"),
]
File = Annotated[Path, typer.Argument(help="The body, byte for byte; - is standard input.")]
_PARTS = ("id", "timestamp", "signature")


def sign(
    file: File,
    message_id: Annotated[str, typer.Option("--id", help="The webhook-id.")] = "evt_test",
    timestamp_s: Annotated[
        int | None, typer.Option("--timestamp", min=0, help="Unix seconds.", show_default="now")
    ] = None,
    secret_file: SecretFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the headers that sign a body, one a line, as `curl -H @FILE` takes them."""
    if not message_id.isascii() or not message_id.isprintable() or {".", " "} & {*message_id} or not message_id:
        raise typer.BadParameter("letters and digits, without dots and spaces", param_hint="--id")
    secret, at_s = read_secret(secret_file), round(time.time()) if timestamp_s is None else timestamp_s
    signed = signature.sign([secret], message_id, at_s, read_input(file, "FILE"))
    headers = {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": signed}
    if output is not Format.TABLE:
        show_one(headers, output)
        return
    for name, value in headers.items():
        print(f"{name}: {value}")


def verify(
    file: File,
    headers: Annotated[
        Path | None, typer.Option("--headers", help="File with the headers: `Name: value` lines, or JSON.")
    ] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="The webhook-id.")] = None,
    timestamp: Annotated[str | None, typer.Option("--timestamp", help="The webhook-timestamp.")] = None,
    signed: Annotated[str | None, typer.Option("--signature", help="The webhook-signature.")] = None,
    secret_file: SecretFile = None,
    public_key: Annotated[str | None, typer.Option(help="whpk_... instead of a secret, for v1a signatures.")] = None,
    any_time: Annotated[bool, typer.Option("--any-time", help="Also what is older than five minutes.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say whether a body was signed so; exit code 1 when it was not."""
    named = {} if headers is None else read_headers(read_input(headers, "--headers"))
    given = zip(_PARTS, (message_id, timestamp, signed), strict=True)
    named |= {f"webhook-{part}": value for part, value in given if value is not None}
    if not named:
        raise typer.BadParameter("say what came with it", param_hint="--headers, or --id, --timestamp and --signature")
    trust = _trust(secret_file, public_key, any_time=any_time)
    fault = why_not(trust, named, read_input(file, "FILE"))
    if output is not Format.TABLE:
        show_one({"valid": fault is None, "fault": fault}, output)
    elif fault is None:
        print("valid")
    if fault is not None:
        note(f"error: not to be believed: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK)


def read_secret(file: Path | None) -> str:
    """Return the webhook secret; without one the program ends."""
    try:
        return find_webhook_secret(file, os.environ)
    except NoKey as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.AUTH) from None


def read_headers(text: bytes) -> dict[str, str]:
    """Read headers as `curl -v`, `curl -D` and `sign` print them, or as an object of JSON; names in lower case.

    >>> read_headers(b"POST /hook HTTP/1.1\\r\\n> Webhook-Id: evt_1\\r\\n"), read_headers(b'{"Webhook-Id": "evt_1"}')
    ({'webhook-id': 'evt_1'}, {'webhook-id': 'evt_1'})
    """
    if text.lstrip().startswith(b"{"):
        return _parsed(text)
    lines = (line.lstrip("<> ").partition(":") for line in text.decode("utf-8", errors="replace").splitlines())
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon and " " not in name.strip()}


def _parsed(text: bytes) -> dict[str, str]:
    try:
        found = read_json(text)
    except ValueError as fault:
        raise typer.BadParameter(f"is no JSON: {fault}", param_hint="--headers") from None
    pairs: Mapping[object, object] = found if isinstance(found, dict) else {}
    return {str(name).lower(): str(value) for name, value in pairs.items()}


def _trust(secret_file: Path | None, public_key: str | None, *, any_time: bool) -> Trust:
    if public_key is None:
        return Trust(read_secret(secret_file), at_any_time=any_time)
    try:
        return Trust(public_key=read_public_key(public_key), at_any_time=any_time)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--public-key") from None
