"""Shows a stretch of the past as if it happened now, once, ten or a hundred times as fast.

Promises: events come in the order of the log, each as far behind the first as it was then, divided by the speed; a
reader that comes back goes on where it was. Reads only: a replay makes no work, sends nothing and writes nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import orjson

from contracts.envelope import JsonObject
from contracts.positions import entry_ms, parse_position
from services.ingest.events.scan import Scan
from services.ingest.live import messages
from services.ingest.live.messages import Message

AT_ONCE = 200
HEARTBEAT_S = 15.0


class Pace:
    """When the events of the past are due now. Pure; `speed` 0: at once."""

    def __init__(self, speed: int, now_s: float) -> None:
        self._speed, self._start_s = speed, now_s
        self._first_ms: int | None = None

    def wait_s(self, event_ms: int, now_s: float) -> float:
        """Return how long an event must wait still.

        >>> pace = Pace(10, 100.0)
        >>> pace.wait_s(5_000, 100.0), pace.wait_s(7_000, 100.1)
        (0.0, 0.1)
        """
        if self._first_ms is None:
            self._first_ms = event_ms
        if not self._speed:
            return 0.0
        due_s = self._start_s + max(0, event_ms - self._first_ms) / 1000 / self._speed
        return round(max(0.0, due_s - now_s), 6)


async def replay(
    scan: Scan, speed: int, places: dict[str, str], is_over: Callable[[], bool], clock: Callable[[], float]
) -> AsyncGenerator[Message, None]:
    """Yield the messages of a replay. `places`: where its reader stands in each pool."""
    pace, count = Pace(speed, clock()), 0
    while not scan.is_over:
        for view in await scan.step(AT_ONCE):
            position = parse_position(str(view["position"]))
            while (wait_s := pace.wait_s(entry_ms(position.entry), clock())) > 0:
                await asyncio.sleep(min(wait_s, HEARTBEAT_S))
                if wait_s > HEARTBEAT_S:
                    yield messages.BEAT
                if is_over():
                    break
            if is_over():
                yield messages.end("going_away")
                return
            places[position.pool_code] = str(position)
            count += 1
            yield _told(view, ",".join(places[code] for code in sorted(places)))
        await asyncio.sleep(0)  # looking at much that nobody asked for must not hold up others
    yield Message("end", orjson.dumps({"reason": "done", "count": count}))


def _told(view: JsonObject, place: str) -> Message:
    return Message("event", orjson.dumps(view), place, str(view["type"]))
