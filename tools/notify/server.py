"""The small web server behind the links: reading changes nothing, only a form that is sent answers.

Mail scanners and chat previews follow links, so GET is without effect. Whatever is sent here, the lab goes on: requests
are small and short, connections few, and each is dealt with in a thread of its own.
"""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from nightlab.errors import NightlabError
from nightlab.knowledge.records import Question
from nightlab.tools.notify.links import Links
from nightlab.tools.notify.page import Page, Pages, is_closed

__all__ = ["Desk", "serving"]

_log = logging.getLogger(__name__)

MAX_FORM_BYTES = 4096
MAX_UNREAD_BYTES = 1 << 16
MAX_NAME_CHARACTERS = 60
MAX_CONNECTIONS = 32
SILENT_SECONDS = 10.0
"""How long a connection may say nothing."""
LONGEST_SECONDS = 30.0
"""How long a connection may last at all."""
_LOOK_SECONDS = 0.2
_PLACE = re.compile(r"/q/([^/]{1,300})/([0-9A-Za-z]{1,80})/?$")
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}


@dataclass(frozen=True)
class Desk:
    """What the pages show and where answers go; called in the server's threads, and any may raise NightlabError."""

    find: Callable[[str], Question | None]
    """The question of an id."""
    excerpt: Callable[[Question], str]
    """Of what the question's evidence names; '' where there is nothing to show."""
    give: Callable[[str, str, str], str]
    """Record an answer (question id, option, by whom); returns what follows from it, for people."""
    now: Callable[[], datetime]


@contextmanager
def serving(address: tuple[str, int], desk: Desk, pages: Pages) -> Iterator[_Server]:
    """A server while the block lasts; its `links` are set by who knows the key. Raises OSError for a port in use."""
    server = _Server(address, desk, pages)
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), name="answers", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.end_connections(older_than=0.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    links: Links | None = None

    def __init__(self, address: tuple[str, int], desk: Desk, pages: Pages) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.desk, self.pages = desk, pages
        self._opened: dict[socket.socket, float] = {}
        self._counting = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that asks the name service for this machine's name, which may take its time.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._counting:
            is_welcome = len(self._opened) < MAX_CONNECTIONS
            if is_welcome:
                self._opened[request] = time.monotonic()
        if is_welcome:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._counting:
            self._opened.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.end_connections(older_than=LONGEST_SECONDS)

    def end_connections(self, *, older_than: float) -> None:
        """End what goes on for longer than this many seconds; its thread finds the connection closed."""
        now = time.monotonic()
        with self._counting:
            for request, since in self._opened.items():
                if now - since >= older_than:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's
        error = sys.exception()
        if not isinstance(error, OSError):
            # Without its message, which may hold what was sent.
            _log.warning("the answer page failed: %s", type(error).__name__)

    def signed_question(self, path: str) -> Question | None:
        """The question to which `path` is the signed link."""
        place = _PLACE.search(urlsplit(path).path)
        question = self.desk.find(unquote(place[1])) if place else None
        if place is None or question is None or self.links is None:
            return None
        return question if self.links.is_signed(question, place[2]) else None


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "nightlab"
    sys_version = ""
    timeout = SILENT_SECONDS

    def do_GET(self) -> None:
        self._answer(self._look)

    def do_HEAD(self) -> None:
        self._answer(self._look)

    def do_POST(self) -> None:
        self._answer(self._give)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Says nothing: paths are links."""

    def _answer(self, page_of: Callable[[Question], Page]) -> None:
        try:
            question = self.server.signed_question(self.path)
            page = self.server.pages.unknown() if question is None else page_of(question)
        except NightlabError as error:
            page = self.server.pages.refused(str(error))
        body = page.html.encode("utf-8", "replace")
        self.send_response(page.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _look(self, question: Question) -> Page:
        desk, pages = self.server.desk, self.server.pages
        now = desk.now()
        return (
            pages.closed(question) if is_closed(question, now) else pages.asking(question, desk.excerpt(question), now)
        )

    def _give(self, question: Question) -> Page:
        desk, pages = self.server.desk, self.server.pages
        if is_closed(question, desk.now()):
            return pages.closed(question)
        form = self._form()
        option, name = form.get("option", ""), _name(form.get("by", ""))
        if option not in question.options:
            fault = "Nothing was answered: choose one of the buttons."
            return pages.asking(question, desk.excerpt(question), desk.now(), fault=fault)
        then = desk.give(question.id, option, f"{name} (link)" if name else "link")
        return pages.noted(question, option, then)

    def _form(self) -> dict[str, str]:
        """The form's first values; empty for what is no form, or too large a one."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
            # Closed with something unread, a connection loses the page that says what was wrong.
            self.rfile.read(min(int(length), MAX_UNREAD_BYTES) if length.isdecimal() else 0)
            return {}
        text = self.rfile.read(int(length)).decode("utf-8", "replace")
        with suppress(ValueError):
            return {key: values[0] for key, values in parse_qs(text, max_num_fields=10).items()}
        return {}


def _name(text: str) -> str:
    """One printable line, shortened."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:MAX_NAME_CHARACTERS]
