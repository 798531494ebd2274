"""A real HTTP service on this machine that keeps what it is sent and answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Service", "service"]


class Service(ThreadingHTTPServer):
    """`statuses` are given to the requests in turn, 200 after them; while `hanging` no request is answered."""

    daemon_threads = True

    def __init__(self, statuses: list[int], *, hanging: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = statuses
        self.answering = threading.Event()
        if not hanging:
            self.answering.set()
        self.received: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.arrival = threading.Condition()

    def url(self, scheme: str = "json", path: str = "") -> str:
        """The Apprise URL; a request waits half a second for its answer."""
        mark = "&" if "?" in path else "?"
        return f"{scheme}://127.0.0.1:{self.server_port}/{path}{mark}rto=0.5&cto=5"

    def wait_for(self, requests: int) -> None:
        with self.arrival:
            assert self.arrival.wait_for(lambda: len(self.received) >= requests, timeout=30), self.received


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self.server.arrival:
            self.server.received.append(json.loads(text))
            self.server.paths.append(self.path)
            status = self.server.statuses.pop(0) if self.server.statuses else 200
            self.server.arrival.notify_all()
        self.server.answering.wait(30)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Says nothing."""


@contextmanager
def service(*statuses: int, hanging: bool = False) -> Iterator[Service]:
    server = Service(list(statuses), hanging=hanging)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
