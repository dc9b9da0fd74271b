"""Makes rows of the live state anew as the log says, one guarded call each, and tells what had to be left alone.

Promises: what the store knows and the log lacks is never thrown away; a job whose own events cannot be right is left;
a row that anybody changed since it was compared is left, too: asked again, it is compared again.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from contracts import ids
from contracts.audit.job_hashes import Fields, folded, is_ended, letter_of
from contracts.errors import Corrupt
from contracts.events import ProjectionRebuilt
from contracts.positions import entry_key
from contracts.store import Store
from contracts.store.audit import NOT_A_HASH, Asked, Live
from contracts.store.repairs import SUBJECT, version_of
from contracts.store.replies import Reply
from contracts.store.words import Word

MOST_TOLD = 50
AGAIN = "somebody changed it meanwhile: repair again"
_POSITION = re.compile(r"\d{1,16}-\d{1,20}")
BACKFILL = "recover or backfill of its endpoint sends it"
Keep = Callable[[str], Awaitable[bytes | None]]  # job: its body as the archive has it. Raises Corrupt
Replan = Callable[[str, str], Awaitable[bool]]  # event at a position, delivery: whether it is planned now


@dataclass(slots=True)
class Mended:
    """What a repair did: rows by projection, and the first of those it left, with what to do about each."""

    rebuilt: Counter[str] = field(default_factory=Counter)
    left_count: int = 0
    left: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""  # why nothing was done at all

    def leave(self, row: str, what: str) -> None:
        """Note a row that is left as it is."""
        self.left_count += 1
        if len(self.left) < MOST_TOLD:
            self.left.append((row, what))

    def as_json(self) -> dict[str, Any]:
        """Return it as the API tells it."""
        left = [{"row": row, "what": what} for row, what in self.left]
        refused = self.refused or None
        return {"rebuilt": dict(self.rebuilt), "leftCount": self.left_count, "left": left, "refused": refused}


class Mender:
    """One repair of one pool, which began while the log had this epoch."""

    def __init__(
        self, store: Store, pool: str, epoch: int, mint: Callable[[], str], replan: Replan | None = None,
        reason: str = "", by: str = "", kept: Keep | None = None,
    ) -> None:  # fmt: skip
        self._kept = kept
        self._store, self._pool, self._epoch, self._mint, self._replan = store, pool, epoch, mint, replan
        self._reason, self._by = reason, by
        self.faulty: Set[str] = frozenset()  # jobs whose own events cannot be right
        self.done = Mended()

    async def job(self, job_id: str, tenant_id: str, fields: Fields | None, live: Live, position: str) -> None:
        """Make a job's hash and its place in the list what the log says."""
        if fields is None:
            self.stranger(job_id)
        elif job_id in self.faulty and not (_is_lost(live) and "s" in fields):
            self.done.leave(job_id, _way_out(job_id, live))
        elif _is_ahead(live, fields):
            assert live.row is not None
            known, last = live.row.get("n"), fields["n"]
            what = f"the store knows event {known}, the log ends with {last}: the log lost it"
            self.done.leave(job_id, f"{what}; {_command(job_id, live.row)}")
        elif job_id in self.faulty:  # nothing that was known is lost by it, and without a hash nobody can end the job
            self.done.leave(job_id, f"made anew as far as its damaged events tell; {_command(job_id, fields)}")
            await self._job("jobs", job_id, tenant_id, fields, live, position)
        else:
            await self._job("jobs", job_id, tenant_id, fields, live, position)

    async def serve_again(self, job_id: str, fields: Fields, position: str) -> None:
        """Have a job chosen again that a leader set aside, if its hash is what the log says."""
        tenant_id = fields.get("t", "")
        (live,) = (await self._store.audit.look(self._pool, [Asked(job_id, tenant_id)])).jobs
        if job_id in self.faulty:
            self.done.leave(job_id, _way_out(job_id, live))
        elif live.row is not None and folded(live.row) == fields:
            await self._job("scheduler", job_id, tenant_id, fields, live, position)

    def stranger(self, job_id: str) -> None:
        """Leave a job alone of which the log knows nothing: it may be the log that lost it."""
        self.done.leave(job_id, "the log knows nothing of it: look for it in a backup, then remove its key by hand")

    async def listed_stranger(self, tenant_id: str, job_id: str, position: str) -> None:
        """Take off a list what has no hash and is no job of the log."""
        said, epoch, write_id = self._event("lists", job_id, position), self._epoch, self._mint()
        reply = await self._store.repairs.job(
            self._pool, job_id, tenant_id, epoch, "none", {}, None, None, said, write_id
        )
        self._judge("lists", job_id, reply)

    async def counters(self, missing: Mapping[str, int], recounted: str, position: str) -> None:
        """Add to counters of admission what they miss."""
        row = ", ".join(sorted(missing))
        said, write_id = self._event("counters", row, position), self._mint()
        reply = await self._store.repairs.counters(self._pool, self._epoch, recounted, missing, said, write_id)
        self._judge("counters", row, reply)

    async def key(self, tenant_id: str, dedup_hash: str, there: str | None, holder: str | None) -> None:
        """Say who holds a dedup key."""
        row = holder or there or dedup_hash
        if row in self.faulty:
            return
        reply = await self._store.repairs.dedup_key(
            self._pool, tenant_id, dedup_hash, self._epoch, there, holder, self._event("dedup", row, ""), self._mint()
        )
        self._judge("dedup", row, reply)

    async def delivery(self, job_id: str, delivery_id: str, position: str) -> None:
        """Plan a delivery again that is lost and was never tried."""
        if self._replan is None or job_id in self.faulty or not await self._replan(position, delivery_id):
            self.done.leave(delivery_id, f"it cannot be planned again: {BACKFILL}")
        else:
            await self.note("deliveries", delivery_id, position)

    async def tries(self, delivery_id: str, seen: str | None, told: int, position: str) -> None:
        """Have a delivery know of the tries that the log tells of; one that is gone may have arrived."""
        if seen is None:
            self.done.leave(delivery_id, f"it is lost after attempt {told}: {BACKFILL}")
        elif seen.isdecimal() and int(seen) > told:
            self.done.leave(
                delivery_id, f"it knows attempt {seen}, the log ends with {told}: {BACKFILL} if it is missing"
            )
        else:
            await self.queued("deliveries", delivery_id, position, (seen, told))

    async def queued(
        self, projection: str, delivery_id: str, position: str, tries: tuple[str, int] | None = None
    ) -> None:  # fmt: skip
        """Put a delivery that waits where it is sent from."""
        said, name = self._event(projection, delivery_id, position), ids.endpoint_of(delivery_id)
        reply = await self._store.repairs.delivery(
            self._pool, delivery_id, name, self._epoch, said, self._mint(), tries
        )
        if reply.word not in (Word.REFUSED, Word.GONE):  # it was sent meanwhile, or queued with another one
            self._judge(projection, delivery_id, reply)

    async def body(self, job_id: str, fields: Fields, live: Live, digest: str, position: str) -> None:
        """Put a body back as the archive has it, if that is what was admitted."""
        size, kept, why = int(fields.get("u", 0)), None, "the archive does not have it"
        try:
            kept = await self._kept(job_id) if self._kept is not None else None
        except Corrupt as error:
            why = f"what the archive has cannot be read ({error.reason})"
        if kept is not None and hashlib.sha256(kept[:size]).hexdigest() != digest:
            kept, why = None, "what the archive has is not what was admitted" if digest else "its digest is not known"
        if kept is None:
            self.done.leave(job_id, f"its body is lost, and {why}: {_without_body(job_id, fields)}")
            return
        said, write_id = self._event("bodies", job_id, position), self._mint()
        reply = await self._store.repairs.body(self._pool, job_id, self._epoch, live.body, size, kept, said, write_id)
        self._judge("bodies", job_id, reply)

    async def listed(self, job_id: str, kind: str | None, ms: int, position: str) -> None:
        """List a job among those that are forgotten when their time is over, or take it off."""
        said, write_id = self._event("ended", job_id, position), self._mint()
        self._judge("ended", job_id, await self._store.repairs.ended(
            self._pool, job_id, self._epoch, kind, ms, said, write_id
        ))  # fmt: skip

    def leave_content(self, job_id: str) -> None:
        """Leave what should have been erased: that is taken away by whoever erases, in all places."""
        self.done.leave(job_id, f"its content is still there: `headrace jobs erase {job_id}` removes it")

    async def note(self, projection: str, row: str, position: str) -> None:
        """Say that a row was made anew."""
        said = self._event(projection, row, position)
        self._judge(projection, row, await self._store.note(self._pool, SUBJECT, said, self._mint()))

    async def _job(
        self, projection: str, job_id: str, tenant_id: str, fields: Fields, live: Live, position: str
    ) -> None:  # fmt: skip
        is_hash = live.row != NOT_A_HASH
        there = folded(live.row) if live.row is not None and is_hash else {}
        gone = dict.fromkeys(there.keys() - fields.keys(), "")
        changed = {name: text for name, text in fields.items() if there.get(name) != text}
        said = self._event(projection, job_id, position, job_id)
        version = version_of(live.row, is_hash=is_hash)
        reply = await self._store.repairs.job(
            self._pool, job_id, tenant_id, self._epoch, version, gone | changed, float(is_ended(fields)),
            letter_of(fields), said, self._mint(),
        )  # fmt: skip
        self._judge(projection, job_id, reply)

    def _event(self, projection: str, row: str, position: str, job_id: str | None = None) -> ProjectionRebuilt:
        return ProjectionRebuilt(
            projection=projection, row=row, position=position, job_id=job_id, reason=self._reason, by=self._by
        )

    def _judge(self, projection: str, row: str, reply: Reply) -> None:
        if reply.applied:
            self.done.rebuilt[projection] += 1
        else:
            self.done.leave(row, AGAIN)


def _is_ahead(live: Live, fields: Fields) -> bool:
    """Whether the store knows of an event that the log lacks: then it is the log that is wrong."""
    if live.row is None or live.row == NOT_A_HASH:
        return False
    number, position = live.row.get("n", ""), live.row.get("p", "")
    is_later = _POSITION.fullmatch(position) is not None and entry_key(position) > entry_key(fields["p"])
    return is_later or (number.isdecimal() and int(number) > int(fields["n"]))


def _is_lost(live: Live) -> bool:
    return live.row is None or live.row == NOT_A_HASH


def _way_out(job_id: str, live: Live) -> str:
    """Say what to do about a job whose events in the log are damaged."""
    what = "its own events in the log cannot be right, so nothing is made of them"
    if live.row is None or live.row == NOT_A_HASH:  # and the log does not even tell that it was ever admitted
        return f"{what}; its hash is lost, too: submit it again"
    return f"{what}; {_command(job_id, live.row)}"


def _command(job_id: str, row: Mapping[str, str]) -> str:
    command = "retry" if is_ended(row) else "cancel"
    return f"`headrace jobs {command} {job_id}` writes an event from which on all agree"


def _without_body(job_id: str, fields: Fields) -> str:
    if is_ended(fields):
        return "put its key back from a backup; but for its content the job is right"
    return f"put its key back from a backup, or `headrace jobs cancel {job_id}` and submit it again"
