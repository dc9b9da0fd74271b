"""`headrace webhook listen` as a process of its own, and an application on this host that it passes calls on to."""

import json
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.headrace.up_process import PATIENCE_S, Up, plain_environment
from tests.headrace.warm import ROOT


class Listener:
    """One run with `--json`; `told` is its first line."""

    def __init__(self, up: Up, *flags: str) -> None:
        command = [sys.executable, "-m", "headrace", "webhook", "listen", "--json", *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=up.data_dir.parent,
            env=plain_environment(PYTHONPATH=str(ROOT)),
        )  # fmt: skip
        self.told = self.next()

    def next(self) -> Any:
        """Return the next line it prints."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline() if readable else ""
        assert line, self.process.communicate()[1] if self.process.poll() is not None else "no line came"
        return json.loads(line)

    def end(self, number: signal.Signals) -> int:
        """Stop it; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def listening(up: Up, *flags: str) -> Iterator[Listener]:
    """Run it until the block ends."""
    listener = Listener(up, *flags)
    try:
        yield listener
    finally:
        listener.clean_up()


class Quiet(BaseHTTPRequestHandler):
    """What all servers here share."""

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server:
    """An HTTP server of this process; `url` is where."""

    handler: type[Quiet]

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class App(Server):
    """An application that keeps what came and answers what it is told to."""

    def __init__(self) -> None:
        self.status = 200
        self.calls: list[tuple[dict[str, str], bytes]] = []
        app = self

        class Hook(Quiet):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                app.calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.say(app.status, b"ok")

        self.handler = Hook
        super().__init__()


class HungServer(Server):
    """A server of Headrace that makes an endpoint and then answers nothing until it is released."""

    def __init__(self) -> None:
        self.asked, self.release = threading.Event(), threading.Event()
        server = self

        class Hung(Quiet):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.say(201, b'{"id": "wh_1", "secret": "whsec_AAAA"}')

            def do_DELETE(self) -> None:
                server.asked.set()
                server.release.wait(PATIENCE_S)

        self.handler = Hung
        super().__init__()
