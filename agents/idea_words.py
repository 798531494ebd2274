"""What is told of code ideas: the same words when it happens and when a lost story is told again."""

from __future__ import annotations

from nightlab.knowledge.records import Idea, IdeaState

__all__ = ["LONGEST_TITLE", "line", "told_idea"]

LONGEST_TITLE = 120


def told_idea(idea: Idea) -> str:
    """What became of an idea that is decided."""
    if idea.state is IdeaState.REFUSED:
        return f"refused {idea.name} ({idea.cause}): {line(idea.reason, LONGEST_TITLE)}"
    return f"accepted {idea.name}: {idea.title} (+{idea.lines_added} −{idea.lines_removed} lines)"


def line(text: str, limit: int) -> str:
    """A model's words as one line that a terminal shows and does not obey."""
    text = "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
    return text if len(text) <= limit else text[: limit - 1] + "…"
