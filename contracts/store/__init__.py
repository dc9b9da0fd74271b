"""The only code that speaks Redis: keys, the function library, reading the log, the connections.

Every write goes through one function library (`lua/`, one file per verb); every read of many entries goes
through a cursor or a consumer group. `Store` is what a service opens.
"""

from contracts.store.store import Store
from contracts.store.words import Word

__all__ = ["Store", "Word"]
