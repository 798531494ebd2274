"""Prompts: files with a version, rendered within bounds, in which other people's text is data and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Prompt", "fenced", "quoted", "render"]


@dataclass(frozen=True)
class Prompt:
    """What is sent: the instructions, and the facts with other people's text quoted."""

    name: str
    version: int
    system: str
    user: str

    @property
    def text(self) -> str:
        return f"{self.system}\n\n{self.user}"

    @property
    def digest(self) -> str:
        """SHA-256 of the whole prompt, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def most_tokens(self) -> int:
        """An upper bound of what any provider counts: no tokenizer makes more tokens than there are bytes."""
        return len(self.text.encode("utf-8", "surrogatepass")) + 64


SEPARATOR = "\n---\n"
LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x7F, 0x85, 0x2028, 0x2029)}


def render(name: str, **values: object) -> Prompt:
    """The prompt in `agents/prompts/<name>.md`: `version: N`, the system's part, `---`, the user's part (Jinja2).

    A value the template names and nobody gives is a jinja2 UndefinedError: a mistake of ours, never of a person's.
    """
    version, system, user = _template(name)
    return Prompt(name, version, system, _environment().from_string(user).render(values).strip())


@cache
def _template(name: str) -> tuple[int, str, str]:
    text = (files("nightlab.agents") / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    head, _, body = text.partition("\n")
    system, _, user = body.partition(SEPARATOR)
    return int(head.removeprefix("version:")), system.strip(), user.strip()


@cache
def _environment():  # type: ignore[no-untyped-def]
    from jinja2 import Environment, StrictUndefined

    return Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)  # noqa: S701


def quoted(text: str, limit: int) -> str:
    """Other people's text (logs, data, file names) as one JSON string of at most about `limit` characters.

    A JSON string cannot be left from inside: no line of it looks like a line of ours. The middle is cut, for causes
    stand at the start and ends of logs.
    """
    if len(text) > limit:
        half = limit // 2
        end = text[len(text) - half :]
        text = f"{text[:half]} …[{len(text) - 2 * half} characters left out]… {end}"
    # Half characters, which broken file names and rows hold, cannot be sent; the others end a line for some readers.
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).translate(LINE_ENDS)


def fenced(text: str) -> str:
    """Other people's text that is to be copied exactly, as it is, between fences longer than any it holds.

    The other way to show such text, for code to be edited: no line inside can be taken for the closing fence.
    """
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(5, longest + 1)
    return f"{fence}\n{text}\n{fence}"
