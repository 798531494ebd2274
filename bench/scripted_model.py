"""A stub of a language model's server: the real wire format over real HTTP, the answers from a Python function.

It is told how to fail, and keeps what it was asked. For tests and benches; it is never part of a study.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

__all__ = ["Fault", "ScriptedModel", "Seen", "Support", "asked_for"]

Support = Literal["yes", "rejected", "ignored"]
"""Whether the server honours a way to ask for JSON, answers 400, or takes no notice and puts JSON between fences."""

HANGS_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """How one answer goes wrong. `status` from 400 on is an HTTP error; the other kinds are what their names say."""

    kind: Literal[
        "status",
        "hang",
        "close",
        "truncated",
        "refusal",
        "garbage",
        "empty",
        "no choices",
        "filtered",
        "error body",
        "page",
    ]
    status: int = 500
    message: str = "something went wrong"
    headers: Mapping[str, str] = field(default_factory=dict)
    """For example `{"Retry-After": "1"}`."""
    code: str | None = None


@dataclass(frozen=True)
class Seen:
    """One request as the server got it."""

    path: str
    body: dict[str, Any]
    authorization: str

    @property
    def method(self) -> str:
        return asked_for(self.body)

    @property
    def text(self) -> str:
        """All messages, one after the other."""
        return "\n\n".join(str(message["content"]) for message in self.body.get("messages", []))


def asked_for(body: Mapping[str, Any]) -> str:
    """How a request asks for JSON: `json_schema`, `function_calling`, `json_mode` or `text`."""
    if body.get("tools"):
        return "function_calling"
    kind = str((body.get("response_format") or {}).get("type", "text"))
    return "json_mode" if kind == "json_object" else kind


Answered = tuple[int, "dict[str, Any] | str", Mapping[str, str]]
"""Status, JSON or a page, headers."""
Script = Callable[[dict[str, Any]], "str | dict[str, Any] | Fault"]


class ScriptedModel:
    """Serves `answer` on a free port of this machine while its `with` block lasts.

    `answer(request)` gives a dict (sent as the JSON asked for), a text (sent as it is) or a Fault.
    """

    def __init__(
        self,
        answer: Script,
        *,
        model: str = "scripted",
        json_schema: Support = "yes",
        function_calling: Support = "yes",
        json_mode: Support = "yes",
        key: str | None = None,
        tells_usage: bool = True,
        cached_tokens: int = 0,
        newer_limit: bool = False,
    ) -> None:
        self._answer = answer
        self.model = model
        self._support: dict[str, Support] = {
            "json_schema": json_schema,
            "function_calling": function_calling,
            "json_mode": json_mode,
            "text": "yes",
        }
        self._key, self._tells_usage, self._cached = key, tells_usage, cached_tokens
        self._newer_limit = newer_limit
        self.requests: list[Seen] = []
        """What was asked, in the order it came."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """Stays the same after the block: nobody answers there any more."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self._closing.clear()
        self._server = _Server(self._port, self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="scripted model", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self._closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def reply(self, seen: Seen) -> Answered | None:
        """Status, body and headers of the answer; None: the connection is cut."""
        with self._lock:
            self.requests.append(seen)
        if self._key is not None and seen.authorization != f"Bearer {self._key}":
            return _error(401, "Incorrect API key provided.", "invalid_api_key")
        if seen.path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": self.model, "object": "model"}]}, {}
        if seen.body.get("model") != self.model:
            return _error(404, f"The model `{seen.body.get('model')}` does not exist.", "model_not_found")
        if self._newer_limit and "max_tokens" in seen.body:
            return _error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if self._support[seen.method] == "rejected":
            return _error(400, f"This {seen.method.replace('_', ' ')} type is unavailable now")
        return self._given(seen, self._answer(seen.body))

    def _given(self, seen: Seen, given: str | dict[str, Any] | Fault) -> Answered | None:
        if not isinstance(given, Fault):
            message = self._message(seen, given)
            return 200, self._completion(seen, message, "tool_calls" if "tool_calls" in message else "stop"), {}
        if given.kind == "status":
            status, body, _ = _error(given.status, given.message, given.code)
            return status, body, given.headers
        if given.kind == "hang":
            self._closing.wait(HANGS_SECONDS)
            return None
        if given.kind == "close":
            return None
        if given.kind == "page":
            return 200, "<html><body>Welcome</body></html>", {}
        if given.kind == "error body":
            return 200, {"error": {"message": given.message, "code": given.status}}, {}
        if given.kind == "no choices":
            return 200, self._completion(seen, {}, "stop") | {"choices": []}, {}
        kinds: dict[str, tuple[dict[str, Any], str]] = {
            "truncated": ({"content": '{"value": "and so on and so'}, "length"),
            "refusal": ({"content": None, "refusal": given.message}, "stop"),
            "garbage": ({"content": "Sure! Here is what I think of it: {oops"}, "stop"),
            "empty": ({"content": None}, "stop"),
            "filtered": ({"content": None}, "content_filter"),
        }
        message, reason = kinds[given.kind]
        return 200, self._completion(seen, {"role": "assistant", **message}, reason), {}

    def _message(self, seen: Seen, given: str | dict[str, Any]) -> dict[str, Any]:
        if isinstance(given, str):
            return {"role": "assistant", "content": given}
        text, support = json.dumps(given, ensure_ascii=False), self._support[seen.method]
        if support == "ignored":
            return {"role": "assistant", "content": f"Here you are:\n```json\n{text}\n```"}
        if seen.method != "function_calling":
            return {"role": "assistant", "content": text}
        called = {"name": seen.body["tools"][0]["function"]["name"], "arguments": text}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": called}],
        }

    def _completion(self, seen: Seen, message: dict[str, Any], reason: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        }
        if self._tells_usage:
            asked, said = len(seen.text) // 4 + 1, len(json.dumps(message)) // 4 + 1
            body["usage"] = {
                "prompt_tokens": asked,
                "completion_tokens": said,
                "total_tokens": asked + said,
                "prompt_tokens_details": {"cached_tokens": min(self._cached, asked)},
            }
        return body


def _error(status: int, message: str, code: str | None = None) -> Answered:
    return status, {"error": {"message": message, "type": "error", "param": None, "code": code}}, {}


def _streamed(answer: dict[str, Any], body: dict[str, Any]) -> bytes:
    """The answer as the events of a stream, a word in each; how many tokens it took comes last, where asked for."""
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    words = str(answer["choices"][0]["message"].get("content") or "").split(" ")
    events: list[dict[str, Any]] = [
        head | {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in words
    ]
    events.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (body.get("stream_options") or {}).get("include_usage") and "usage" in answer:
        events.append(head | {"choices": [], "usage": answer["usage"]})
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + b"data: [DONE]\n\n"


class _Server(ThreadingHTTPServer):
    def __init__(self, port: int, model: ScriptedModel) -> None:
        self.model = model
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _respond(self, body: dict[str, Any]) -> None:
        # One request a connection: a client that keeps one open would hold the server's end.
        self.close_connection = True
        reply = self.server.model.reply(Seen(self.path, body, self.headers.get("Authorization", "")))
        if reply is None:
            return
        status, answer, headers = reply
        kind = "text/html" if isinstance(answer, str) else "application/json"
        written = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        if body.get("stream") and isinstance(answer, dict) and answer.get("choices"):
            kind, written = "text/event-stream", _streamed(answer, body)
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Type": kind, "Connection": "close"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)
        except (BrokenPipeError, ConnectionResetError):
            # Whoever asked has stopped waiting.
            return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002 - the base class's names
        return
