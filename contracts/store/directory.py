"""Configuration as a live fold of {_sys}: tenants, keys, pools. Every process follows the log; a revoked key stops
working as soon as the entry is read, long before any cache would notice.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from redis.asyncio import Redis

from contracts import events as ev
from contracts.endpoints import Private, read_private
from contracts.errors import Corrupt, Rejected, StoreUnavailable
from contracts.ids import mint_token, pool_code
from contracts.positions import entry_key
from contracts.store import keys, replies
from contracts.store.anchored import AnchoredTail, Forked
from contracts.store.batcher import Batcher
from contracts.store.channel import Channel
from contracts.store.clients import read_text
from contracts.store.log import LogReader, Poison, pause
from contracts.store.readers import last_position
from contracts.store.words import Word
from contracts.store.write import KeyRing, Write, encode
from contracts.tenant import Configuration, configure
from contracts.wire import Entry

LAYOUT = 1
TRIES = 20
FOLLOW_BLOCK_MS = 1000

Decide = Callable[[Configuration], ev.Event | None]
Rewrite = Callable[[Configuration, Private], tuple[ev.Event, Private | None] | None]


_Change = tuple[ev.Event, Mapping[str, str]]


class Directory:
    """The folded configuration of this process, and the one way to change it."""

    def __init__(self, batcher: Batcher, command: Redis, catch_up: Channel, follow: Channel) -> None:
        self._call = batcher.call
        self._command = command
        end = partial(last_position, command, keys.log(keys.SYSTEM))
        self._catch_up = AnchoredTail(LogReader(catch_up, keys.log(keys.SYSTEM)), end)
        self._follow = AnchoredTail(LogReader(follow, keys.log(keys.SYSTEM)), end)
        self.configuration = Configuration()
        self._last: Entry | Poison | None = None  # folded

    async def open(self) -> None:
        """Make the log if it is not there, and fold all of it. Raises ConfigError for a newer layout."""
        await self._call("open", [keys.log(keys.SYSTEM), keys.meta(keys.SYSTEM)], [LAYOUT])
        await self.refresh()

    async def refresh(self) -> Configuration:
        """Fold whatever is new, without waiting."""
        while await self._read_on(self._catch_up):
            pass
        return self.configuration

    async def follow(self, stop: asyncio.Event) -> None:
        """Fold the log as it grows, until `stop`; survives any outage of the store."""
        failures = 0
        while not stop.is_set():
            try:
                await self._read_on(self._follow, FOLLOW_BLOCK_MS)
            except StoreUnavailable:
                failures += 1
                await pause(failures, stop, random.random())
                continue
            failures = 0

    async def _read_on(self, reader: AnchoredTail, block_ms: int | None = None) -> bool:
        """Fold what is new; returns whether there was anything.

        A store may come back without its last second, or be another one: then all is folded again, as a key that was
        revoked there may be valid here.
        """
        reader.begin(self.configuration.position, self._last)
        try:
            entries = await reader.read(1000, block_ms)
        except Forked:
            await self._fold_again(reader)
            return True
        for entry in entries:
            self._fold(entry)
        return bool(entries)

    async def change(self, decide: Decide, subject: str, secrets: Mapping[str, str] | None = None) -> Configuration:
        """Append the event that `decide` makes of the newest configuration; None changes nothing.

        `decide` may raise Rejected. It is asked again when somebody else was faster.
        """

        async def decided(state: Configuration) -> _Change | None:
            event = decide(state)
            return None if event is None else (event, secrets or {})

        return await self._change(decided, subject)

    async def rewrite(self, name: str, decide: Rewrite, subject: str) -> Configuration:
        """Append an event and replace what is kept under `name` in the same call; a None in its place removes it.

        `decide` is given what is kept at the moment of the configuration it is given. None changes nothing; it may
        raise Rejected, and is asked again when somebody else was faster.
        """

        async def decided(state: Configuration) -> _Change | None:
            # Read after the state: whoever replaces it from here on moves the log, and this is decided again.
            made = decide(state, await self.private(name) or Private())
            return None if made is None else (made[0], {name: made[1].to_json() if made[1] else ""})

        return await self._change(decided, subject)

    async def _change(
        self, decide: Callable[[Configuration], Awaitable[_Change | None]], subject: str
    ) -> Configuration:  # fmt: skip
        write_id = mint_token(random.SystemRandom().getrandbits(80))
        for _ in range(TRIES):
            made = await decide(await self.refresh())
            if made is None:
                return self.configuration
            answer = await self._append(made[0], subject, write_id, made[1])
            if answer.word is Word.APPLIED:
                return await self.refresh()
            if answer.word is Word.GONE:
                await self.open()
        raise Rejected("version_mismatch", "the configuration is changing too fast; try again", retry_after_s=1)

    async def pool(self, name: str) -> str:
        """Return the code of a pool, giving it one when it is new."""

        def decide(state: Configuration) -> ev.Event | None:
            if name in state.pools:
                return None
            return ev.PoolCreated(pool=name, code=pool_code(len(state.pools)))

        if name not in self.configuration.pools:
            await self.change(decide, name)
        return self.configuration.pools[name]

    async def secret(self, name: str) -> str | None:
        """Return a secret by name, e.g. `webhook:<tenant>`. Raises StoreUnavailable."""
        return await read_text(self._command, keys.secret(name))

    async def private(self, name: str) -> Private | None:
        """Return what is kept of an endpoint or a tenant (`contracts.endpoints` names it); None when it is gone.

        Raises Corrupt, StoreUnavailable. Whoever keeps it may do so until the endpoint's `version`, or the tenant's
        `webhook_version`, is another one.
        """
        try:
            text = await self.secret(name)
        except UnicodeDecodeError:
            raise Corrupt(name, "the kept secret is no text") from None
        return None if text is None else read_private(name, text)

    async def keep_secret(self, name: str, candidate: str) -> str:
        """Return a secret that all processes share, making it `candidate` when nobody made one before."""
        raw = await self._call("keep_secret", [keys.secret(name)], [candidate])
        assert isinstance(raw, bytes)
        return raw.decode()

    async def _append(self, event: ev.Event, subject: str, write_id: str, secrets: Mapping[str, str]) -> replies.Reply:
        fixed = [keys.log(keys.SYSTEM), keys.meta(keys.SYSTEM), *(keys.secret(name) for name in secrets)]
        ring = KeyRing(keys.SYSTEM, fixed)
        write = encode(Write(subject, (event,), of_job=False), ring)
        args = [0, write_id, self.configuration.position, write, *secrets.values()]
        return replies.reply(await self._call("configure", ring.keys, args))

    async def _fold_again(self, reader: AnchoredTail) -> None:
        """Fold the log from its beginning; until that is done, what is known stays known."""
        configuration, last = Configuration(), None
        reader.begin(configuration.position)
        while entries := await reader.read(1000):
            for entry in entries:
                configuration, last = _folded(configuration, entry), entry
        self.configuration, self._last = configuration, last

    def _fold(self, entry: Entry | Poison) -> None:
        if entry_key(entry.position) <= entry_key(self.configuration.position):
            return  # the follower and a refresh may read the same; the slower one must not take us back
        self.configuration, self._last = _folded(self.configuration, entry), entry


def _folded(configuration: Configuration, entry: Entry | Poison) -> Configuration:
    if isinstance(entry, Poison):  # kept in the log; every reader skips it alike
        return replace(configuration, position=entry.position)
    return configure(configuration, entry)
