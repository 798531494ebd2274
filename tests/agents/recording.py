"""What the cassettes hold, and how they are made anew: `python -m tests.agents.recording http://localhost:8000/v1`.

The answers come from the real server at that address, the faults from the scripted one. Keys are not recorded, hosts
are replaced; a cassette is found again by path and body, so prompts hold nothing that changes. Further arguments name
the cassettes to make.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import vcr
from pydantic import BaseModel, Field
from vcr.request import Request as Recorded

from bench.scripted_model import Fault, ScriptedModel
from nightlab.tools.chat import Method, Reply, Request, ask
from nightlab.tools.chat_faults import ChatError
from nightlab.tools.json_answers import answer_schema

__all__ = ["HOST", "REAL", "SCRIPTED", "Mood", "Scene", "cassette", "request_of"]

FOLDER = Path(__file__).parent / "cassettes"
HOST = "model.example"
BASE_URL = f"http://{HOST}/v1"
MODEL = "recorded"


class Mood(BaseModel):
    mood: Literal["good", "bad"]
    reason: str = Field(max_length=40)


@dataclass(frozen=True)
class Scene:
    """One cassette."""

    method: Method = "json_schema"
    script: list[Any] = field(default_factory=list)
    """What the scripted server does; nothing: the real one answers."""
    server: dict[str, Any] = field(default_factory=dict)
    max_output_tokens: int = 100


GOOD = {"mood": "good", "reason": "the loss falls"}

REAL: dict[str, Scene] = {
    "json_schema": Scene(),
    # That one knows no tools, and takes no notice of them.
    "ignored_tools": Scene("function_calling", max_output_tokens=32),
    "json_mode": Scene("json_mode"),
    "text": Scene("text", max_output_tokens=48),
    "truncated": Scene(max_output_tokens=8),
}
"""Recorded from a real server."""

SCRIPTED: dict[str, Scene] = {
    "function_calling": Scene("function_calling", script=[GOOD]),
    "rate_limit": Scene(script=[Fault("status", 429, "slow down", {"Retry-After": "0"})]),
    "server_error": Scene(script=[Fault("status", 500)]),
    "wrong_key": Scene(script=[GOOD], server={"key": "another-key"}),
    "unknown_model": Scene(script=[GOOD], server={"model": "another"}),
    "too_long": Scene(script=[Fault("status", 400, "This model's maximum context length is 4096 tokens.")]),
    "no_json_schema": Scene(script=[GOOD], server={"json_schema": "rejected"}),
    "no_tools": Scene("function_calling", script=[GOOD], server={"function_calling": "rejected"}),
    "refusal": Scene(script=[Fault("refusal", message="I cannot help with that.")]),
    "invalid_json": Scene(script=[Fault("garbage")]),
    "empty": Scene(script=[Fault("empty")]),
    "fenced": Scene(script=[GOOD], server={"json_schema": "ignored"}),
}


def request_of(scene: Scene) -> Request:
    """What is asked in a scene."""
    schema = answer_schema(Mood, lengths=True)
    wish = f"Answer with JSON by this schema: {schema}" if scene.method in ("json_mode", "text") else "Answer in JSON."
    return Request(
        base_url=BASE_URL,
        model=MODEL,
        key="key-0123456789",
        turns=[("system", f"You judge training curves. {wish}"), ("user", "The loss went from 3.0 to 1.2.")],
        method=scene.method,
        schema=schema,
        max_output_tokens=scene.max_output_tokens,
        timeout_seconds=120.0,
    )


@contextmanager
def cassette(name: str, *, record: bool = False) -> Iterator[None]:
    """Requests inside are answered from the cassette, or recorded anew."""
    recorder = vcr.VCR(
        record_mode="all" if record else "none",
        match_on=["method", "path", "body"],
        filter_headers=["authorization", "user-agent", "host", "cookie"],
        before_record_request=_elsewhere,
        before_record_response=_bare,
        decode_compressed_response=True,
    )
    file = FOLDER / f"{name}.yaml"
    if record:
        file.unlink(missing_ok=True)
    with recorder.use_cassette(str(file)):
        yield


def _elsewhere(request: Recorded) -> Recorded:
    parts = urlsplit(request.uri)
    request.uri = parts._replace(netloc=HOST, scheme="http").geturl()
    request.headers = {"content-type": "application/json"}
    return request


def _bare(response: dict[str, Any]) -> dict[str, Any]:
    kept = ("content-type", "retry-after")
    response["headers"] = {name: value for name, value in response["headers"].items() if name.lower() in kept}
    body = json.loads(response["body"]["string"])
    if "choices" in body:
        # A server of one's own names the model by its path, and tells how fast it was.
        body = {name: body[name] for name in ("object", "created", "choices", "usage")} | {"model": MODEL, "id": "1"}
        response["body"]["string"] = json.dumps(body).encode()
    return response


def _record(name: str, scene: Scene, base_url: str) -> Reply | ChatError:
    with cassette(name, record=True):
        try:
            return ask(replace(request_of(scene), base_url=base_url))
        except ChatError as error:
            return error


def _said(scene: Scene, _request: dict[str, Any]) -> Any:
    return scene.script[0]


def main(base_url: str, *names: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, scene in REAL.items():
        if not names or name in names:
            sys.stdout.write(f"{name}: {_record(name, scene, base_url)}\n")
    for name, scene in SCRIPTED.items():
        if not names or name in names:
            with ScriptedModel(partial(_said, scene), **{"model": MODEL, **scene.server}) as stub:
                sys.stdout.write(f"{name}: {_record(name, scene, stub.base_url)!r}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
