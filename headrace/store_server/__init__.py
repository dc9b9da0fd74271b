"""The embedded store: one Redis or Valkey server per data directory, for people who run none themselves.

`ensure(data_dir)` attaches to the server of that directory or starts it, and may be called again at any
time (after a lost connection, say). It promises exactly one server per directory however many processes
race, an append-only file on disk, and no server left behind once its last user is gone, however the user,
the server or its supervisor died. It does not promise to survive a power cut without losing the last
second (`fsync="always"` does), nor to work on Windows.

Three locks that the kernel frees carry these promises; nothing depends on a pid file:

    users.lock        shared, by every user process; whoever gets it exclusively knows that nobody is left
    server.lock       exclusive, inherited by supervisor and server; free means that neither lives
    supervisor.lock   exclusive, by the supervisor alone; free means that nobody restarts or stops the server
"""

from headrace.store_server.attach import StoreNotReady, StoreServer, ensure, release
from headrace.store_server.binary import ServerBinary, find_server

__all__ = ["ServerBinary", "StoreNotReady", "StoreServer", "ensure", "find_server", "release"]
