"""Values stated in plain lines: `name: value`, `name = value`, `name=value`, `'name': '0.5'`.

A line may hold several statements (`step 100 | loss=0.5 | val_bpb: 2.3`) and a log prefix. The rules keep look-alikes
from becoming values; what they pass over is named in the message when nothing else is found:

1. The name is a whole word: `bpb` is not in `val_bpb`, `loss` not in `val/loss`, `eval.loss`, `--loss` or `eval:loss`.
2. The separator follows the name at once: `best val_bpb so far: 2.1` and `val_bpb improved from 2.5 to 2.3` state
   nothing.
3. A word right before the name makes it another quantity (`train loss: 0.5`, `best val_bpb: 2.1`), except numbers, log
   levels and a few neutral words (`final`, `metrics`, `and` …). A source's `key: train loss` reads just that quantity.
4. `best`, `previous` and their like earlier in the line, `target`, `delta` and their like in the same clause, claim the
   value for themselves unless they have one of their own: `best at step 5, val_bpb: 2.1` is passed over,
   `best: 2.1 | val_bpb: 2.3` is 2.3.
5. A value that changes (`2.5 -> 2.3`, `2.5 to 2.3`) and a name inside a nested mapping (`{'eval': {'loss': 0.5}}`) are
   passed over.
6. Text that does not start like a number (`loss: cross_entropy`) is prose and passed over; text that does but is no
   plain number (`0,95`, `3/10`, `2.3s`, `[1, 2]`) is refused; `nan`, `inf`, `None`, `n/a` count as not finite.
7. A name that carries no split of its own (`loss`, not `val_loss`) and is stated for several (`train: loss=0.9`,
   `eval: loss=0.5`) is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import excerpt, is_missing_value, looks_like_number, parse_number
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.steps import AtStep, step_in
from nightlab.tools.metrics.stream import search_word, text_lines

__all__ = ["Statement", "line_outcomes", "statements"]

_QUOTES = "\"'`*"
_BEFORE_NAME = rf"(?:^|(?<=[\s|,;{{(\[\]>{_QUOTES}!]))"
_SEPARATOR = rf"[{_QUOTES}]{{0,2}}\s*[:=](?![:=>])\s*"
_WRAPPER = r"(?:[\w.]*(?:tensor|array|Tensor|Array|float\d*|Decimal|scalar)\()?"
_TOKEN = rf"[^\s,;|)\]}}{_QUOTES}±]+(?:,\d[^\s,;|)\]}}{_QUOTES}±]*)*"
_VALUE = rf"{_WRAPPER}[{_QUOTES}]{{0,3}}\s*(?P<value>{_TOKEN})"
_CHANGE = re.compile(r"\s*(?:->|=>|→)|\s+to\b")
_FRACTION = re.compile(r"\s*/\s*\d+")
_SPACED_GROUPS = re.compile(r"(?:[ \u00a0\u2009\u202f]\d{3})+(?![\w.])")
_SMALL_WHOLE = re.compile(r"[-+]?\d{1,3}")

_LOG_PREFIX = re.compile(r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:|\[\d+,\d+\]<std(?:out|err)>:)")
_NEUTRAL = frozenset(
    [
        *("trace", "debug", "info", "notice", "warn", "warning", "error", "critical", "true", "false", "and", "with"),
        *("final", "result", "results", "metric", "metrics", "summary", "current"),
    ]
)
_COUNTED = re.compile(
    r"(?:(?:step|iter(?:ation)?|epoch|ep|rank|worker|batch|update|gpu|fold|seed|run)[-_#]?)?[^a-z]+", re.I
)
_OWN_VALUE = r"(?!\s*[:=]?\s*[-+]?\.?\d)"
_CLAIMED_ANYWHERE = re.compile(
    rf"(?<![\w./-])(?:best|lowest|highest|previous(?:ly)?|prev|baseline|improved|improvement)(?![\w./-]){_OWN_VALUE}",
    re.I,
)
_CLAIMED_IN_CLAUSE = re.compile(
    rf"(?<![\w./-])(?:target|goal|initial|old|former|expected|reference|threshold|delta|change|diff|difference|minimum|maximum"
    rf"|min|max)(?![\w./-]){_OWN_VALUE}",
    re.I,
)
_SPLITS = "train|training|val|valid|validation|eval|evaluation|test|testing|dev|holdout"
_SPLIT_WORD = re.compile(rf"(?<![\w./-])(?:{_SPLITS})(?![\w./-])", re.I)
_LONGEST_WORD = 256
_SPLIT_PART = re.compile(rf"(?:^|[\W_])(?:{_SPLITS})(?:[\W_]|$)", re.I)


@dataclass(frozen=True)
class Statement:
    """One `name: value` in a line; `scope` is the split named before it (`eval: loss=0.5`), if any."""

    text: str
    scope: str | None = None

    def outcome(self) -> Outcome:
        try:
            return parse_number(self.text)
        except MetricError as error:
            return error


def line_outcomes(path: Path, name: str, at: AtStep | None = None) -> Iterator[Outcome]:
    """Every value stated for `name`, in the order of the file; with `at` only in lines that state this step.

    Raises OSError, and MetricError with cause `metric-absent` (naming a look-alike) or `metric-ambiguous` (rule 7).
    """
    pattern = _pattern(name)
    scopes: set[str | None] = set()
    look_alike = None
    found = False
    for line in text_lines(path, containing=search_word(name)):
        for statement in _scan(line, pattern):
            if statement is None:
                look_alike = look_alike or line
                continue
            found = True
            if at is None or at.takes(step_in(line, AtStep.names)):
                scopes.add(statement.scope)
                yield statement.outcome()
    if not scopes:
        raise MetricError(at.absence(name), cause="metric-absent") if at and found else _absent(name, look_alike)
    if len(scopes) > 1 and not _SPLIT_PART.search(name):
        named = ", ".join(sorted(f"{scope} {name}" if scope else name for scope in scopes))
        raise MetricError(
            f"{name} is stated for several splits ({named}); give the metric's source a key or a pattern that fits one",
            cause="metric-ambiguous",
        )


def statements(line: str, name: str) -> list[Statement]:
    """The statements of `name` in one clean line, look-alikes left out."""
    return [statement for statement in _scan(line, _pattern(name)) if statement is not None]


def _pattern(name: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in name.split())
    # The value is only looked at, so that in `loss: loss=0.5` the second statement is found too.
    return re.compile(f"{_BEFORE_NAME}{words}{_SEPARATOR}(?={_VALUE})")


def _absent(name: str, look_alike: str | None) -> MetricError:
    if look_alike is None:
        return MetricError(f"no line states {name} (expected for example `{name}: 0.5`)", cause="metric-absent")
    return MetricError(
        f"no line states {name} plainly; {excerpt(look_alike.strip(), 120)} was passed over as another quantity (print "
        f"`{name}: <value>`, or read it with kind regex)",
        cause="metric-absent",
    )


def _scan(line: str, pattern: re.Pattern[str]) -> Iterator[Statement | None]:
    """Statements in one line; None stands for a look-alike."""
    body = line[prefix.end() :] if (prefix := _LOG_PREFIX.match(line)) else line
    before = _Before(body)
    for match in pattern.finditer(body):
        before.read_to(match.start())
        text = _value_text(match)
        yield None if text is None or before.is_other_quantity() else Statement(text, before.split)


def _value_text(match: re.Match[str]) -> str | None:
    """The printed value of a match; None when prose or a change stands there."""
    text = match["value"].rstrip(".:!?")
    if not (looks_like_number(text) or is_missing_value(text)) or _CHANGE.match(match.string, match.end("value")):
        return None
    if fraction := _FRACTION.match(match.string, match.end("value")):
        return text + fraction[0]
    if _SMALL_WHOLE.fullmatch(text) and (groups := _SPACED_GROUPS.match(match.string, match.end("value"))):
        return text + groups[0]
    return text


class _Before:
    """What stands before a name, each sign read once: a line may hold thousands of statements."""

    def __init__(self, line: str) -> None:
        self.split: str | None = None
        """The last split that is named."""
        self._line = line
        self._end = self._depth = 0
        self._is_claimed = self._is_clause_claimed = False

    def read_to(self, end: int) -> None:
        line, start = self._line, self._end
        self._depth += line.count("{", start, end) - line.count("}", start, end)
        self._is_claimed = self._is_claimed or _CLAIMED_ANYWHERE.search(line, start, end) is not None
        for found in _SPLIT_WORD.finditer(line, start, end):
            self.split = found[0].lower()
        clause = max(line.rfind(mark, start, end) for mark in ",;|") + 1
        is_claimed = _CLAIMED_IN_CLAUSE.search(line, max(start, clause), end) is not None
        self._is_clause_claimed = is_claimed or (self._is_clause_claimed and not clause)
        self._end = end

    def is_other_quantity(self) -> bool:
        last = self._line[max(0, self._end - _LONGEST_WORD) : self._end].rstrip(_QUOTES)
        if last and last[-1].isspace() and last.split() and not _is_neutral(last.split()[-1]):
            return True
        return self._depth > 1 or self._is_claimed or self._is_clause_claimed


def _is_neutral(word: str) -> bool:
    """True for what may stand right before a name without changing its meaning."""
    if not word[-1].isalnum() or re.search(r"[:=]", word) or _COUNTED.fullmatch(word):
        return True
    starts_as_number = re.match(r"[-+]?\.?\d", word) is not None
    return starts_as_number or is_missing_value(word) or word.lower() in _NEUTRAL
