"""The questions a teacher is asked, read from the rows that trainers know: alpaca, messages, or plain lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nightlab.errors import ConfigError, Fault
from nightlab.tools.datasets.example import writable
from nightlab.tools.datasets.layouts import USUAL_COLUMNS
from nightlab.tools.datasets.rows import read_rows

__all__ = ["OutputFormat", "Prompt", "Prompts", "Turn", "conversation_of", "read_prompts", "row_of"]

OutputFormat = Literal["alpaca", "openai"]
Turn = tuple[str, str]
"""Role (system, user, assistant) and text."""
ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "system": "system",
    "developer": "system",
}
"""Of OpenAI's messages and of ShareGPT's; tools have no place here."""


@dataclass(frozen=True)
class Prompt:
    """Messages up to the last question."""

    turns: tuple[Turn, ...]

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.turns)


@dataclass
class Prompts:
    """Each prompt once, in the file's order, and what became of the other rows."""

    prompts: list[Prompt] = field(default_factory=list)
    rows: int = 0
    copies: int = 0
    broken: list[str] = field(default_factory=list)
    """`row 3: …`, one for each row that is no prompt."""


def read_prompts(file: Path) -> Prompts:
    """The prompts in a file (JSONL, JSON, CSV, TSV, Parquet, text); answers that stand there already are left out.

    Raises ConfigError for a file that cannot be read or holds no prompt.
    """
    found: dict[Prompt, None] = {}
    told = Prompts()
    try:
        for row in read_rows(file):
            told.rows += 1
            prompt = None if row.fault else _prompt(row.value)
            if prompt is None:
                told.broken.append(f"row {row.number}: {row.fault or 'is no prompt'}")
            elif prompt in found:
                told.copies += 1
            else:
                found[prompt] = None
    except OSError as error:
        raise ConfigError(Fault(f"cannot be read: {error.strerror or error}", file)) from error
    told.prompts = list(found)
    if not found:
        first = f"; {told.broken[0]}" if told.broken else ""
        mend = "rows need `messages`, `instruction`, `prompt` or `text`"
        raise ConfigError(Fault(f"holds no prompt{first}", file, mend=mend))
    return told


def _prompt(row: object) -> Prompt | None:
    turns = list(_turns(row))
    while turns and turns[-1][0] == "assistant":
        turns.pop()
    if not turns or turns[-1][0] != "user" or not turns[-1][1].strip():
        return None
    return Prompt(tuple((role, writable(text)) for role, text in turns))


def conversation_of(row: object) -> tuple[Turn, ...] | None:
    """All messages of a row that ends with an answer, its own or that of a column; None where it does not."""
    turns = list(_turns(row))
    if isinstance(row, dict) and turns and turns[-1][0] == "user":
        turns += _answer(_first(row, "response"))
    asked, answered = [role for role, _ in turns[-2:-1]], [role for role, text in turns[-1:] if text.strip()]
    if (asked, answered) != (["user"], ["assistant"]) or any(role == "broken" for role, _ in turns):
        return None
    return tuple((role, writable(text)) for role, text in turns)


def _answer(said: object) -> Iterator[Turn]:
    if isinstance(said, list):
        yield from _messages(said)
    elif isinstance(said, str):
        yield "assistant", said


def _turns(row: object) -> Iterator[Turn]:
    if isinstance(row, str):
        yield "user", row
    if not isinstance(row, dict):
        return
    if isinstance(system := _first(row, "system"), str) and system:
        yield "system", system
    for name in ("messages", "prompt"):
        if isinstance(messages := _first(row, name), list):
            yield from _messages(messages)
            return
    history = _first(row, "history")
    for pair in history if isinstance(history, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            yield "user", str(pair[0])
            yield "assistant", str(pair[1])
    yield from _question(row)


def _question(row: Mapping[str, Any]) -> Iterator[Turn]:
    """The instruction and its input on lines of their own, as LLaMA-Factory joins them; else the plain text."""
    names = [name for name in USUAL_COLUMNS["prompt"] if isinstance(row.get(name), str)][:1]
    names += ["input"] if names and names != ["input"] and row.get("input") else []
    parts = [row[name] for name in names] or [_first(row, "text")]
    if isinstance(parts[0], str):
        yield "user", "\n".join(str(part) for part in parts)


def _messages(messages: list[Any]) -> Iterator[Turn]:
    for message in messages:
        given = message if isinstance(message, dict) else {}
        text = given.get("content", given.get("value"))
        if isinstance(text, list):
            text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        role = ROLES.get(str(given.get("role", given.get("from"))))
        # An unknown role in the middle makes the whole no prompt.
        yield (role, text) if role and isinstance(text, str) else ("broken", "")


def _first(row: Mapping[str, Any], role: str) -> object:
    return next((row[name] for name in USUAL_COLUMNS[role] if name in row), None)


def row_of(prompt: Prompt, answer: str, form: OutputFormat) -> dict[str, Any]:
    """A row of training data: `messages`, or `instruction`, `input` and `output`, with `system` and `history`."""
    if form == "openai":
        turns = [*prompt.turns, ("assistant", answer)]
        return {"messages": [{"role": role, "content": text} for role, text in turns]}
    system = "\n".join(text for role, text in prompt.turns if role == "system")
    talk = [turn for turn in prompt.turns if turn[0] != "system"]
    row: dict[str, Any] = {"instruction": talk[-1][1], "input": "", "output": answer}
    if system:
        row["system"] = system
    if len(talk) > 1:
        row["history"] = [[asked[1], said[1]] for asked, said in zip(talk[:-1:2], talk[1:-1:2], strict=False)]
    return row
