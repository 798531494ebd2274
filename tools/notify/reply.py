"""Understanding a reply such as `plan yes`, as people type it on a telephone."""

from __future__ import annotations

from collections.abc import Sequence

from nightlab.knowledge.records import Question

__all__ = ["allowed", "read_reply"]

_COMMAND = ["nightlab", "answer"]
_AROUND = "\"'`“”‘’.,!;:"
_SHOWN = 40


def read_reply(text: str, asked: Sequence[Question]) -> tuple[Question, str] | str:
    """The question and its option that `text` names, or why it names none, for the person who wrote it.

    Case, spaces, quotes and a full stop do not matter; the command `nightlab answer …` is understood as well.
    """
    words = [word.strip(_AROUND).casefold() for word in text.split()]
    words = [word for word in words if word]
    words = words[2:] if words[:2] == _COMMAND else words
    if not words:
        return "it was empty"
    question = next((one for one in asked if one.id.casefold() == words[0]), None)
    if question is None:
        return f"there is no question {_short(words[0])}"
    option = next((one for one in question.options if one.casefold().split() == words[1:]), None)
    if option is None:
        named = f"has no option {_short(' '.join(words[1:]))}" if words[1:] else "needs one of its options behind it"
        return f"question {question.id} {named}"
    return question, option


def allowed(asked: Sequence[Question]) -> list[str]:
    """What would be understood now: a line for each open question."""
    return [f"{question.id} {'|'.join(question.options)}" for question in asked if question.answer is None]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
