"""The two sockets to the supervisor: frames both ways, and the cancels that are heard beside them.

Promises: any thread may send, also while author code floods; a fork of author code says nothing. Without a supervisor
the process group ends. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections import deque
from typing import Any

from .lifeline import die_with_group
from .values import encode

HEADER = struct.Struct("!I")
HEARTBEAT_S = 1.0
EARLY_CANCELS = 1_000  # that are remembered until their attempts are here


class Channel:
    """Length-prefixed JSON over the inherited socket; any thread may send, one reads."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def send(self, frame: dict[str, Any], lossy: bool = False) -> None:
        """Write one frame; a lossy one is dropped rather than let author code wait for a busy supervisor."""
        if self._is_forks():
            return
        body = encode(frame)
        wire = HEADER.pack(len(body)) + body
        with self._lock:
            try:
                sent = self._socket.send(wire, socket.MSG_DONTWAIT) if lossy else 0
            except BlockingIOError:
                return
            self._socket.sendall(wire[sent:])

    def receive(self) -> Any:
        """Return the next frame; without a supervisor there is none, and no reason to go on."""
        head = self._file.read(HEADER.size)
        body = self._file.read(HEADER.unpack(head)[0]) if len(head) == HEADER.size else b""
        return json.loads(body) if body else die_with_group()

    def end_fork(self) -> None:
        """End this process if it is a fork made by author code that came back from its run()."""
        if self._is_forks():
            os._exit(0)

    def _is_forks(self) -> bool:
        """Whether this is a copy of the socket, in a process that author code forked."""
        return os.getpid() != self._pid


class Cancels:
    """The thread that hears cancels while the main thread is busy with author code, and the end of the supervisor.

    They come over a socket of their own: the main thread reads `run` frames itself, as a hand-over between threads
    would cost each job more than all else that happens here.
    """

    def __init__(self, fd: int) -> None:
        self._channel = Channel(fd)
        self._jobs: Any = ()
        self._early: deque[Any] = deque(maxlen=EARLY_CANCELS)
        threading.Thread(target=self._read, daemon=True).start()

    def watch(self, jobs: Any) -> None:
        """Mark each of `jobs` when it is cancelled, also if the cancel was here before the job."""
        self._jobs = jobs  # first: a cancel that comes from here on is marked by the thread
        early = list(self._early)
        self._early.clear()
        for job in jobs if early else ():
            job.cancelled = job.cancelled or job._key in early

    def _read(self) -> None:
        while True:
            frame = self._channel.receive()
            key = {"job": frame["job"], "fence": frame["fence"]}
            self._early.append(key)
            for job in self._jobs:
                job.cancelled = job.cancelled or job._key == key


def beat(channel: Channel) -> None:
    """Show that the GIL is free: a metric, never a reason to kill."""
    while True:
        time.sleep(HEARTBEAT_S)
        channel.send({"ev": "heartbeat"}, lossy=True)
