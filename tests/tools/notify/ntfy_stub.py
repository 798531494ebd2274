"""A stand-in for an ntfy server: it speaks ntfy's wire format over real HTTP, for publishing and for polling.

A real one is not among the packages the tests rest on. What is not used here (streams, users, limits) is left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["NtfyStub", "ntfy_stub"]


class NtfyStub(ThreadingHTTPServer):
    """`clock` is the server's own time; `statuses` are given to polls in turn before they are answered."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.clock = 1_700_000_000
        self.statuses: list[int] = []
        self.messages: list[dict[str, Any]] = []
        self.polls: list[dict[str, str]] = []
        self.changed = threading.Condition()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def publish(self, topic: str, text: str, title: str = "") -> str:
        """What a person's telephone does; returns the message's id."""
        with self.changed:
            number = f"id{len(self.messages):010d}"
            message = {"id": number, "time": self.clock, "event": "message", "topic": topic, "message": text}
            self.messages.append(message | ({"title": title} if title else {}))
            self.changed.notify_all()
        return number

    def texts(self, topic: str) -> list[str]:
        with self.changed:
            return [f"{one.get('title', '')}\n{one['message']}" for one in self.messages if one["topic"] == topic]

    def wait_for(self, topic: str, words: str) -> str:
        """The first message with these words."""

        def found() -> str | None:
            return next((text for text in self.texts(topic) if words in text), None)

        with self.changed:
            assert self.changed.wait_for(found, timeout=60), (words, self.messages)
            text = found()
        assert text is not None
        return text

    def wait_for_polls(self, more: int) -> None:
        """Wait until the topic was asked so many times more."""
        with self.changed:
            wanted = len(self.polls) + more
            assert self.changed.wait_for(lambda: len(self.polls) >= wanted, timeout=60)


class _Handler(BaseHTTPRequestHandler):
    server: NtfyStub

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        topic = parts.path.strip("/").removesuffix("/json")
        with self.server.changed:
            status = self.server.statuses.pop(0) if self.server.statuses else 200
            since = query["since"]
            # ntfy takes a Unix time, that second included, or a span.
            first = int(since) if since.isdecimal() else self.server.clock - 60 * int(since.removesuffix("m"))
            found = [one for one in self.server.messages if one["topic"] == topic and one["time"] >= first]
            self.server.polls.append(query | {"authorization": self.headers.get("Authorization", "")})
            self.server.changed.notify_all()
        noise = [{"id": "open", "time": self.server.clock, "event": "open", "topic": topic}]
        lines = [json.dumps(one) for one in [*noise, *found]]
        self._send(status, "\n".join([*lines, "not json", ""]))

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        data = json.loads(text)
        self.server.publish(data["topic"], data["message"], data.get("title", ""))
        self._send(200, "{}")

    def _send(self, status: int, text: str) -> None:
        self.send_response_only(status)
        self.send_header("Date", self.date_time_string(self.server.clock))
        body = text.encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Says nothing."""


@contextmanager
def ntfy_stub() -> Iterator[NtfyStub]:
    server = NtfyStub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
