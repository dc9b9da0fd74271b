"""Submit jobs one after another over one connection, and say when each was sent."""

import json
import socket
import time
from typing import Self

from benchmarks.http_load import Plan, whole_answer

ANSWER_LIMIT_S = 20.0


class Submitter:
    """One keep-alive connection that sends the plan's request again and again."""

    def __init__(self, plan: Plan) -> None:
        self._request = plan.request()
        self._socket = socket.create_connection((plan.host, plan.port), timeout=ANSWER_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def submit(self) -> tuple[str, int]:
        """Submit one job; returns its id and the monotonic nanoseconds before the first byte left."""
        sent_ns = time.monotonic_ns()
        self._socket.sendall(self._request)
        answer = b""
        while not (status := whole_answer(answer)):
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionError("ingest closed the connection")
            answer += received
        if status != 201:
            raise ConnectionError(f"refused: {answer.decode()}")
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["id"]), sent_ns
