"""Conversations as tokens by a tokenizer's chat template, only the answers learned: what teacher and student both see.

Needs no torch; `tokenizer` is one of transformers', with a chat template and character offsets.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError

from nightlab.errors import ConfigError, DiskError, Fault
from nightlab.tools.datasets.rows import read_rows
from nightlab.tools.distillation.cache_files import IGNORED
from nightlab.tools.distillation.prompts import Turn, conversation_of

__all__ = ["Learned", "Rendered", "Renderer", "UnfitRowError", "is_tokenised", "render_file"]

Learned = Literal["last", "all"]
"""Which answers of a conversation are learned."""


class UnfitRowError(ValueError):
    """A row that cannot be rendered; the text says why, in words that many rows share."""


@dataclass(frozen=True)
class Renderer:
    """Turns conversations into `input_ids` and `labels`."""

    tokenizer: Any
    learned: Learned = "last"
    longest: int | None = None
    """Tokens of an example; a longer one is left out, not cut: half an answer teaches to stop nowhere."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the chat template, e.g. `enable_thinking`."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a tokenizer that cannot do it."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError("the teacher's tokenizer has no chat template (give one with --chat-template)")
        if not getattr(self.tokenizer, "is_fast", False):
            raise ConfigError("the teacher's tokenizer tells no offsets (give examples with input_ids and labels)")

    def example(self, turns: tuple[Turn, ...]) -> dict[str, list[int]]:
        """One example whose labels are the tokens of the answers, as the template closes them.

        A token counts to the answer when any of its characters does. Raises UnfitRowError.
        """
        whole = self._text(turns)
        spans = [self._span(turns, at, whole) for at, (role, _) in enumerate(turns) if role == "assistant"]
        spans = spans[-1:] if self.learned == "last" else spans
        encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        ids = [int(token) for token in encoded["input_ids"]]
        if self.longest is not None and len(ids) > self.longest:
            raise UnfitRowError(f"is longer than {self.longest} tokens")
        # Nothing stands before the first token that could predict it.
        labels = [IGNORED] * len(ids)
        for place, (start, end) in enumerate(encoded["offset_mapping"]):
            if place and start < end and any(first < end and start < last for first, last in spans):
                labels[place] = ids[place]
        if all(label == IGNORED for label in labels):
            raise UnfitRowError("has no token to learn")
        return {"input_ids": ids, "labels": labels}

    def _span(self, turns: tuple[Turn, ...], at: int, whole: str) -> tuple[int, int]:
        """Where an answer begins, behind what asks for it, and where its turn ends."""
        before = self._text(turns[:at], asks=True)
        until = whole if at == len(turns) - 1 else self._text(turns[: at + 1])
        if not (whole.startswith(until) and until.startswith(before) and len(before) < len(until)):
            if at == len(turns) - 1:
                raise UnfitRowError("is put by the chat template where its prompt does not lead (see --template-args)")
            if self.learned == "all":
                raise UnfitRowError("has earlier answers that the chat template changes (learn the last alone)")
            return 0, 0
        return len(before), len(until)

    def _text(self, turns: tuple[Turn, ...], *, asks: bool = False) -> str:
        messages = [{"role": role, "content": text} for role, text in turns]
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=asks, **self.template_args
            )
        except (TemplateError, TypeError, ValueError) as error:
            words = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
            raise UnfitRowError(f"is refused by the chat template: {words}") from error
        return str(text)


@dataclass
class Rendered:
    """What became of a file of conversations."""

    file: Path
    """JSON lines with `input_ids` and `labels`: what the student is to be trained on."""
    rows: int = 0
    written: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first_left_out: int = 0
    """Number of the first row that was left out; 0: none was."""


def is_tokenised(path: Path) -> bool:
    """Whether the first row of a file holds tokens; a folder of `datasets` does. Raises ConfigError."""
    if path.is_dir():
        return True
    with _read(path):
        first = next(iter(read_rows(path)), None)
    # An empty or broken file is told by whoever reads it for good.
    return first is None or (isinstance(first.value, dict) and "input_ids" in first.value)


def render_file(path: Path, out: Path, renderer: Renderer) -> Rendered:
    """Write the conversations in `path` (messages, ShareGPT, alpaca) as tokens to `out`.

    The same file, tokenizer and settings give the same bytes. Raises ConfigError for a file that cannot be read or of
    which no row can be rendered; DiskError.
    """
    told, draft = Rendered(out), out.with_name(f".{out.name}.tmp")
    with DiskError.at(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            for example in _examples(path, renderer, told):
                file.write(json.dumps(example) + "\n")
        if told.written:
            draft.replace(out)
        else:
            draft.unlink()
    if not told.written:
        reason = next(iter(told.left_out), "it is empty")
        mend = "rows need `messages`, `conversations`, or a question and its answer"
        raise ConfigError(Fault(f"holds no conversation that can be rendered: a row {reason}", path, mend=mend))
    return told


def _examples(path: Path, renderer: Renderer, told: Rendered) -> Iterator[dict[str, list[int]]]:
    with _read(path):
        for row in read_rows(path):
            told.rows += 1
            try:
                example = renderer.example(_turns(row.value, row.fault))
            except UnfitRowError as error:
                told.left_out[str(error)] += 1
                told.first_left_out = told.first_left_out or row.number
                continue
            told.written += 1
            yield example


def _turns(row: object, fault: str) -> tuple[Turn, ...]:
    if fault:
        raise UnfitRowError(fault)
    turns = conversation_of(row)
    if turns is None:
        raise UnfitRowError("is no conversation that ends with an answer")
    return turns


@contextmanager
def _read(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(Fault(f"cannot be read: {error.strerror or error}", path)) from error
