"""A proxy between two processes that holds, loses or swallows what passes, chosen by a text in the request.

Stands in front of a unix socket or a TCP port and offers the same kind. It knows no protocol: a rule applies to a
connection from the moment one of its requests contains the rule's text.
"""

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

CHUNK_BYTES = 65536


@dataclass(eq=False, slots=True)
class Rule:
    """What happens to connections whose request contains `text`.

    `met` is set when the first one was seen, `answered` when a reply passed on one after the rule was lifted.
    """

    text: bytes
    action: Literal["hold_requests", "hold_replies", "swallow", "cut"]
    hits: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def lift(self) -> None:
        """Let pass what was held; a connection that was swallowed stays dead."""
        self.lifted.set()


@dataclass(eq=False, slots=True)
class _Link:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    rule: Rule | None = None

    def cut(self) -> None:
        for stream in (self.client, self.server):
            stream.transport.abort()


class Proxy:
    """Forwards to `target`: the path of a unix socket, or a port of this host."""

    def __init__(self, target: Path | int) -> None:
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="hr-")
        self._rules: list[Rule] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def open(self) -> None:
        """Listen; `url` says where."""
        if isinstance(self._target, int):
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
            return
        path = f"{self._folder.name}/p.sock"
        self._server = await asyncio.start_unix_server(self._serve, path)
        self.url = f"unix://{path}"

    async def close(self) -> None:
        """Cut everything and stop listening."""
        self._server.close()
        self.lift_all()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    def hold_requests(self, text: bytes) -> Rule:
        """From now on, requests with this text wait here until the rule is lifted."""
        return self._add(Rule(text, "hold_requests"))

    def hold_replies(self, text: bytes) -> Rule:
        """From now on, requests with this text are carried out, and their replies wait until the rule is lifted."""
        return self._add(Rule(text, "hold_replies"))

    def swallow(self, text: bytes) -> Rule:
        """From now on, connections with such a request are silently dead: nothing passes, nothing is closed."""
        return self._add(Rule(text, "swallow"))

    def cut_at(self, text: bytes) -> Rule:
        """From now on, connections are reset when such a request comes, before it is passed on; `hits` counts them."""
        return self._add(Rule(text, "cut"))

    def lift_all(self) -> None:
        """Lift every rule there ever was; connections that were swallowed are reset."""
        for rule in self._rules:
            rule.lift()
        self._rules.clear()
        for link in self._links:
            if link.rule and link.rule.action == "swallow":
                link.cut()

    def cut(self) -> None:
        """Reset all connections there are."""
        for link in self._links:
            link.cut()

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        link = _Link(writer, up_writer)
        self._links.add(link)
        self._tasks.add(task)
        try:
            await asyncio.gather(self._up(reader, link), self._down(up_reader, link), return_exceptions=True)
        finally:
            self._links.discard(link)
            self._tasks.discard(task)
            link.cut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, int):
            return await asyncio.open_connection("127.0.0.1", self._target)
        return await asyncio.open_unix_connection(str(self._target))

    async def _up(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                self._apply_rules(link, data)
                if link.rule and link.rule.action == "swallow":
                    continue
                if link.rule and link.rule.action == "cut":
                    break
                if link.rule and link.rule.action == "hold_requests":
                    await link.rule.lifted.wait()
                link.server.write(data)
                await link.server.drain()
        link.cut()

    async def _down(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if link.rule and link.rule.action == "swallow":
                    continue
                if link.rule and link.rule.action == "hold_replies":
                    await link.rule.lifted.wait()
                if link.rule and link.rule.lifted.is_set():
                    link.rule.answered.set()
                link.client.write(data)
                await link.client.drain()
        link.cut()

    def _apply_rules(self, link: _Link, data: bytes) -> None:
        for rule in self._rules:
            if rule.text in data and not rule.lifted.is_set():
                link.rule = rule
                rule.hits += 1
                rule.met.set()
