"""What lies on the deck of a slot, and what all lanes of one registration share."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from contracts.models import ModelRegistry
from contracts.store.attempts import Attempt as Right
from contracts.store.attempts import Attempts, Offer
from contracts.store.live import Live
from contracts.store.replies import Reply
from services.gpu_worker.bringing import Bringing
from services.gpu_worker.finish import Desk
from services.gpu_worker.profile_news import ProfileNews
from services.gpu_worker.writer import until_answered

SLOT_UNUSABLE = "slot_unusable"


@dataclass(frozen=True, slots=True)
class OnDeck:
    """An offer and the work entry that brought it."""

    offer: Offer
    position: str
    right: Right
    scratch: Path


@dataclass(frozen=True, slots=True)
class Shop:
    """What all lanes of one registration share."""

    worker_id: str
    pool: str
    attempts: Attempts
    live: Live
    models: ModelRegistry
    desk: Desk
    bringing: Bringing
    scratch_dir: Path
    artifacts_s: float
    news: ProfileNews  # what our profiles are worth here
    handled: "set[str]"  # work entries to be acknowledged with the next heartbeat
    cancels: "set[tuple[str, int]]"  # asked for, maybe before we know that our start was accepted


async def decline(shop: Shop, offer: Offer, reason: str) -> None:
    """Give an offer back that is not started. Raises GaveUp."""

    async def call() -> Reply:
        return await shop.attempts.decline(shop.pool, shop.worker_id, offer, reason)

    await until_answered(call, call, shop.desk.over)


def take_next(deck: deque[OnDeck]) -> list[OnDeck]:
    """Take the next offer from the deck, with all that lie there of its batch."""
    first = deck.popleft()
    batch = [entry for entry in deck if first.offer.batch and entry.offer.batch == first.offer.batch]
    for entry in batch:
        deck.remove(entry)
    return [first, *batch]
