"""An ntfy topic that is read by polling (https://docs.ntfy.sh/subscribe/api/): messages as lines of JSON over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from nightlab.errors import ConfigError, Fault

__all__ = ["Message", "Topic", "check_replies", "open_topic"]

CLOUD = "https://ntfy.sh"
VARIABLE = "env:"
MAX_BYTES = 1 << 20
"""What is read of one poll's answer; the next goes on behind it."""
_TOKEN = "tk_"  # noqa: S105 - how ntfy's tokens begin
_KEY = "notify.replies"
_TIMEOUT = httpx.Timeout(20.0, connect=10.0)


class Message(BaseModel):
    """One line of the topic; what is not used here is left out."""

    id: str
    time: int
    """Unix time in seconds, by the server's clock."""
    event: str = "message"
    title: str = ""
    message: str = ""


@dataclass(frozen=True)
class Topic:
    """Where replies are read."""

    url: str
    """`https://host/topic`."""
    user: str = ""
    password: str = ""
    token: str = ""

    def client(self) -> httpx.Client:
        """A client that may read the topic."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        basic = httpx.BasicAuth(self.user, self.password) if self.user else None
        return httpx.Client(headers=headers, auth=basic, timeout=_TIMEOUT)

    def read(self, client: httpx.Client, since: str) -> tuple[list[Message], int | None]:
        """The messages since a Unix time (that second included) or a span such as `1m`, and the server's own time.

        Raises httpx.HTTPError when the topic cannot be read.
        """
        with client.stream("GET", f"{self.url}/json", params={"poll": "1", "since": since}) as response:
            response.raise_for_status()
            lines = _lines(response)
            return [message for line in lines if (message := _message(line))], _date(response)


def open_topic(entry: str, environment: Mapping[str, str] = os.environ) -> Topic:
    """The topic of a study's `notify.replies`. Raises ConfigError, which never shows the address."""
    name = entry.removeprefix(VARIABLE) if entry.startswith(VARIABLE) else None
    url = entry if name is None else environment.get(name)
    if not url:
        mend = f"export {name}='ntfy://topic' where the lab starts"
        raise ConfigError(Fault(f"variable {name} is not set", key=_KEY, mend=mend))
    topic = _topic(url.strip())
    if topic is None:
        mend = "for example ntfy://topic, or ntfys://user:password@host/topic"
        raise ConfigError(Fault("is not the address of one ntfy topic", key=_KEY, mend=mend))
    return topic


def check_replies(entry: str | None, environment: Mapping[str, str] = os.environ) -> list[Fault]:
    """What is wrong with a study's `notify.replies`; asks nobody and never shows the address."""
    try:
        if entry is not None:
            open_topic(entry, environment)
    except ConfigError as error:
        return error.faults
    return []


def _topic(url: str) -> Topic | None:
    """As Apprise reads such addresses: one name alone is a topic at ntfy.sh."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return None
    names = [name for name in parts.path.split("/") if name]
    host = parts.netloc.rpartition("@")[2].removesuffix(port)
    if parts.scheme not in ("ntfy", "ntfys") or not host or len(names) > 1:
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    token, user = (user, "") if user.startswith(_TOKEN) and not password else ("", user)
    if not names:
        return None if port else Topic(f"{CLOUD}/{host}", user, password, token)
    scheme = "https" if parts.scheme == "ntfys" else "http"
    return Topic(f"{scheme}://{host}{port}/{names[0]}", user, password, token)


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Whole lines of at most `MAX_BYTES` together."""
    held, taken = b"", 0
    for piece in response.iter_bytes():
        taken += len(piece)
        *lines, held = (held + piece).split(b"\n")
        yield from lines
        if taken >= MAX_BYTES:
            return
    yield held


def _message(line: bytes) -> Message | None:
    try:
        message = Message.model_validate_json(line)
    except ValidationError:
        return None
    return message if message.event == "message" else None


def _date(response: httpx.Response) -> int | None:
    try:
        return int(parsedate_to_datetime(response.headers["Date"]).timestamp())
    except (KeyError, ValueError):
        return None
