"""One run of `headrace webhook listen`: what is answered to each call, and what is printed of it.

Promises that what is not signed is refused, told as such, and passed on to nobody; a pipe that nobody reads ends the
run, and no answer.
"""

import asyncio
import time
from dataclasses import dataclass

import orjson

from headrace.client import JsonObject
from headrace.output import note
from headrace.webhooks.forwarding import Forwarder
from headrace.webhooks.receiver import Call, Receiver, Reply
from headrace.webhooks.told import Seen, facts_of, line_of, printable


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags say."""

    forward: str | None
    events: tuple[str, ...]
    form: str
    host: str
    port: int
    reach_as: str | None
    most: int | None
    print_body: bool
    as_json: bool


class Listening:
    """One run: what came, what is printed of it, and when it is over."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.stop = asyncio.Event()
        self.refused = 0
        self.closed: OSError | None = None
        self.forwarder: Forwarder | None = None
        self._seen = Seen()
        self._count = 0

    async def answer(self, received: Call) -> Reply:
        """Answer one call, tell of it, and end when that was the last one."""
        told = facts_of(received.headers, received.body, time.time())
        told |= {"signature": "INVALID" if received.fault else "valid", "fault": received.fault}
        reply = Reply(400, b"bad signature") if received.fault else Reply(204)
        if received.fault is None:
            told |= self._seen.mark(told)
            if self.forwarder is not None:
                reply, told["forward"] = await self.forwarder.forward(received)
            if 200 <= reply.status < 300:
                self._seen.take(told)
        told["answered"] = reply.status
        self._tell(told, received.body)
        self.refused += received.fault is not None
        self._count += 1
        if self._count == self.wishes.most:
            self.stop.set()
        return reply

    def announce(self, receiver: Receiver, endpoint: JsonObject | None) -> None:
        """Say where it listens, for whom, and with which secret an application behind it has to check."""
        made = endpoint or {}
        if self.wishes.as_json:
            told = {"event": "listening", "url": receiver.url, "endpointId": made.get("id")}
            self._print(orjson.dumps(told | {"secret": made.get("secret")}).decode())
        elif endpoint is None:
            note(f"listening at {receiver.url}: submit jobs with it as webhookUrl. Ctrl-C ends it.")
        else:
            note(f"listening at {receiver.url} as {made['id']} until Ctrl-C, which removes it")
            note(f"secret {made['secret']}")

    def _tell(self, told: JsonObject, body: bytes) -> None:
        if self.wishes.as_json:
            text = {"body": body.decode("utf-8", errors="replace")} if self.wishes.print_body else {}
            self._print(orjson.dumps({"event": "call"} | told | text).decode())
            return
        self._print(f"{time.strftime('%H:%M:%S')} {line_of(told)}")
        if self.wishes.print_body:
            self._print(printable(body))

    def _print(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError as fault:  # nobody reads any more
            self.closed = fault
            self.stop.set()
