"""How a row is laid out: alpaca columns, lists of messages, preference pairs, plain text. What does not fit is broken.

The rules are those by which LLaMA-Factory and TRL read data, so that a row counted as broken here is one they drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nightlab.tools.datasets.example import Example, writable

__all__ = ["BrokenRowError", "Formatting", "Layout", "guess_layout", "to_example"]

Formatting = Literal["alpaca", "sharegpt", "openai", "text"]

USUAL_COLUMNS: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation", "dialogue"),
    "chosen": ("chosen", "preferred_output", "preferred_completion", "preferred"),
    "rejected": ("rejected", "non_preferred_output", "non_preferred_completion", "non_preferred"),
    "kto_tag": ("kto_tag",),
    "prompt": ("instruction", "prompt", "question", "query", "source", "input", "src", "问题", "指令"),
    "query": ("input",),
    "response": ("output", "completion", "response", "answer", "target", "tgt", "回答", "答案"),
    "system": ("system",),
    "history": ("history",),
    "text": ("text", "content", "sentence", "review"),
    "label": ("label", "labels", "category", "class"),
}
"""What columns are usually called, the commonest first."""

SHAREGPT_TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "observation_tag": "observation",
    "function_tag": "function_call",
    "system_tag": "system",
}
OPENAI_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "function_tag": "function",
    "system_tag": "system",
}


class BrokenRowError(ValueError):
    """A row the trainer would drop or stumble over; the text says why, in words that many rows share."""


@dataclass(frozen=True)
class Layout:
    """How rows are read: `columns` maps what a column holds to its name, `tags` LLaMA-Factory's tags to theirs."""

    formatting: Formatting
    columns: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    ranking: bool = False


def guess_layout(row: Mapping[str, Any], columns: Mapping[str, str], wanted: str = "auto") -> Layout | None:
    """The layout of rows like this one; None where nothing tells. `columns` are those a person named.

    `wanted` is `auto` or what the study's `data.format` says.
    """
    found = {role: name for role in USUAL_COLUMNS if (name := _present(row, role))}
    if found.get("query") == found.get("prompt"):
        found.pop("query", None)
    columns = {**found, **columns}
    ranking = "chosen" in columns and "rejected" in columns and wanted in ("auto", "preference", "openai", "sharegpt")
    if wanted == "kto" and "kto_tag" not in columns and "label" in columns:
        columns["kto_tag"] = columns["label"]
    if wanted in ("sharegpt", "openai"):
        return _of_messages(row, columns, wanted, ranking=ranking)
    if wanted == "text" or (wanted == "auto" and set(columns) & {"text", "prompt", "messages", "chosen"} == {"text"}):
        return Layout("text", columns) if "text" in columns else None
    if "messages" in columns or isinstance(row.get("input"), dict):
        return _of_messages(row, columns, wanted, ranking=ranking)
    if wanted == "alpaca" or ranking or ("prompt" in columns and "response" in columns):
        return Layout("alpaca", columns, ranking=ranking)
    return None


def _present(row: Mapping[str, Any], role: str) -> str | None:
    return next((name for name in USUAL_COLUMNS[role] if name in row), None)


def _of_messages(row: Mapping[str, Any], columns: Mapping[str, str], wanted: str, *, ranking: bool) -> Layout:
    name = columns.get("messages", "conversations" if wanted == "sharegpt" else "messages")
    inner = row.get("input")
    messages = inner.get("messages") if isinstance(inner, dict) else row.get(name)
    first = next((one for one in messages if isinstance(one, dict)), {}) if isinstance(messages, list) else {}
    is_openai = "role" in first or (wanted == "openai" and "from" not in first)
    tags = OPENAI_TAGS if is_openai else SHAREGPT_TAGS
    return Layout("openai" if is_openai else "sharegpt", {**columns, "messages": name}, tags, ranking)


def to_example(row: object, layout: Layout) -> Example:
    """The row as an example. Raises BrokenRowError with the reason it is none."""
    if layout.formatting == "text" and isinstance(row, str):
        return _filled(Example.of("", row))
    if not isinstance(row, dict):
        raise BrokenRowError(f"is no object of columns but {_kind(row)}")
    label = _label(row, layout)
    if layout.formatting == "text":
        return _filled(Example.of("", _text(row, layout, "text"), label=label))
    is_conversation = layout.columns.get("messages") in row or isinstance(row.get("input"), dict)
    if layout.formatting in ("sharegpt", "openai") and (is_conversation or not layout.ranking):
        return _of_conversation(row, layout, label)
    prompt = _prompt(row, layout)
    if layout.ranking:
        return Example.of(
            prompt, _answer(row, layout, "chosen"), rejected=_answer(row, layout, "rejected"), label=label
        )
    return Example.of(prompt, _answer(row, layout, "response"), label=label)


def _filled(example: Example) -> Example:
    if not example.response.strip():
        raise BrokenRowError("has no text")
    return example


def _label(row: Mapping[str, Any], layout: Layout) -> str | None:
    """The class; a thumb that is no true or false breaks the row, as it does for the trainer."""
    if tag := layout.columns.get("kto_tag"):
        if not isinstance(row.get(tag), bool) and str(row.get(tag)).lower() not in ("true", "false"):
            raise BrokenRowError(f"{tag} is not true or false")
        return str(row[tag]).lower()
    value = row.get(layout.columns.get("label", ""))
    return None if value is None or isinstance(value, dict | list) else str(value)


def _text(row: Mapping[str, Any], layout: Layout, role: str, *, needed: bool = True) -> str:
    name = layout.columns.get(role)
    value = None if name is None else row.get(name)
    if value is None and not needed:
        return ""
    if name is None or name not in row:
        raise BrokenRowError(f"has no column {name or role}")
    if not isinstance(value, str):
        raise BrokenRowError(f"{name} is not text but {_kind(value)}")
    return value


def _prompt(row: Mapping[str, Any], layout: Layout) -> str:
    """System text, history, prompt and query, each on lines of its own."""
    prompt = row.get(layout.columns.get("prompt", ""))
    if isinstance(prompt, list):
        return _joined(prompt, OPENAI_TAGS)
    if layout.ranking and layout.columns.get("prompt") not in row:
        return ""
    history = row.get(layout.columns.get("history", "")) or []
    if not isinstance(history, list) or not all(isinstance(turn, list) and len(turn) == 2 for turn in history):
        raise BrokenRowError("history is no list of [question, answer]")
    parts = [_text(row, layout, "system", needed=False), *(str(said) for turn in history for said in turn)]
    parts += [_text(row, layout, "prompt"), _text(row, layout, "query", needed=False)]
    return "\n".join(part for part in parts if part)


def _answer(row: Mapping[str, Any], layout: Layout, role: str) -> str:
    """An answer given as text, as one message, or as a list of messages of which the last counts."""
    value = row.get(layout.columns.get(role, ""))
    if isinstance(value, list) and value:
        value = value[-1]
    if isinstance(value, dict):
        tags = layout.tags or (OPENAI_TAGS if "content" in value else SHAREGPT_TAGS)
        return _content(value, tags)
    return _text(row, layout, role)


def _of_conversation(row: Mapping[str, Any], layout: Layout, label: str | None) -> Example:
    name = layout.columns.get("messages", "messages")
    inner = row.get("input")
    messages = inner.get("messages") if isinstance(inner, dict) else row.get(name)
    if not isinstance(messages, list) or not messages:
        raise BrokenRowError(f"{name} is no list of messages")
    tags = layout.tags
    system = _text(row, layout, "system", needed=False)
    roles = [_role(message, tags) for message in messages]
    if roles[0] in (tags.get("system_tag"), "developer"):
        system, messages, roles = _content(messages[0], tags), messages[1:], roles[1:]
    _check_turns(roles, layout)
    if layout.ranking:
        prompt = "\n".join(part for part in (system, _joined(messages, tags)) if part)
        return Example.of(
            prompt, _answer(row, layout, "chosen"), rejected=_answer(row, layout, "rejected"), label=label
        )
    prompt = "\n".join(part for part in (system, _joined(messages[:-1], tags)) if part)
    return Example.of(prompt, _content(messages[-1], tags), label=label)


def _check_turns(roles: list[str], layout: Layout) -> None:
    """Questions and answers take turns, and the right one comes last."""
    tags = layout.tags
    if layout.formatting == "openai":
        # Several tool results in a row are merged by the trainers.
        roles = [one for at, one in enumerate(roles) if one != tags["observation_tag"] or roles[at - 1 : at] != [one]]
    asks = {tags.get("user_tag"), tags.get("observation_tag")}
    answers = {tags.get("assistant_tag"), tags.get("function_tag")}
    for position, role in enumerate(roles):
        if role not in (answers if position % 2 else asks):
            raise BrokenRowError(
                "roles do not take turns" if role in asks | answers else f"has the unknown role {role}"
            )
    if len(roles) % 2 != int(layout.ranking):
        raise BrokenRowError("ends with an answer before the pair" if layout.ranking else "does not end with an answer")


def _role(message: object, tags: Mapping[str, str]) -> str:
    if not isinstance(message, dict):
        raise BrokenRowError("has a message that is no object")
    role = message.get(tags["role_tag"])
    if not isinstance(role, str):
        raise BrokenRowError(f"has a message without {tags['role_tag']}")
    return writable(role[:20])


def _content(message: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    value = message.get(tags["content_tag"])
    if isinstance(value, list):
        value = "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    if value is None and (calls := message.get("tool_calls")):
        value = str(calls)
    if not isinstance(value, str):
        raise BrokenRowError(f"has a message whose {tags['content_tag']} is not text")
    return value


def _joined(messages: list[Any], tags: Mapping[str, str]) -> str:
    if not all(isinstance(message, dict) for message in messages):
        raise BrokenRowError("has a message that is no object")
    return "\n".join(_content(message, tags) for message in messages)


def _kind(value: object) -> str:
    names = {type(None): "empty", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "text" if isinstance(value, str) else "an object")
