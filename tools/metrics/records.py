"""The dict lines of Hugging Face trainers: `{'loss': '1.23', 'grad_norm': '0.5', 'epoch': '0.1'}`.

Numbers may stand in quotes (transformers 5) or bare, nan and inf bare too. Before a record there may be what launchers,
loggers and progress bars put there; a dict in the middle of prose or of other data is none. Nor is a dict that says
neither where in training it belongs nor what was measured (a dumped configuration), nor one that names a key twice.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nightlab.tools.metrics.stream import text_lines

__all__ = ["Record", "records", "records_in"]

_BAR = r"(?:[\w .,-]{1,60}:\s*)?\d{1,3}%\|[^|{]*\|\s*[\d.]+[kKMG]?/[\d.]+[kKMG]?"
_CLOCK = r"(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL)(?::[\w.]+)?"
_PREFIX = re.compile(
    rf"""(?:\s+ | {_BAR} | \[[^\[\]{{}}]{{1,120}}\]:? | \([^(){{}}]{{1,160}}\) | <std(?:out|err)>:? | std(?:out|err):
    | {_CLOCK} | {_LEVEL} | [\w./-]+:\d+:? | \d{{1,6}}: | [\w.-]{{1,60}}\s*\| | >> | [-|:])*+""",
    re.VERBOSE,
)
_PAIR = re.compile(
    r"""\s*+(?:'(?P<key>[^'\\]{1,200})'|"(?P<quoted_key>[^"\\]{1,200})")\s*+:\s*+
    (?:'(?P<single>(?:[^'\\]|\\.)*+)'|"(?P<double>(?:[^"\\]|\\.)*+)"
    |(?P<list>\[[^\[\]{}]*+\])|[A-Za-z_][\w.]*+\(\s*+(?P<wrapped>[-+\w.]++)[^(){}]*+\)|(?P<bare>[-+\w.]++))\s*+(?P<end>[,}])""",
    re.VERBOSE,
)
_MARK = re.compile(r"(?:\w+_)?(?:loss|runtime)|epoch|reward|(?:eval|test|predict)_[\w./-]+")
_RANK = re.compile(
    r"\[(?:rank|default)?[ _]?(\d{1,6})\]:|\[\d+,(\d{1,6})\]<std|^\s*(\d{1,6}): |\brank[ =:_]*(\d{1,6})", re.I
)
_WORKER = re.compile(r"\b(?:pid|worker)=(\w+)", re.I)
REMEMBERED = 256
"""Records that are compared with a new one: ranks print the same one close together."""


@dataclass(frozen=True)
class Record:
    """One record as it was printed."""

    values: dict[str, str]
    """Key → the text of the value, without quotes."""
    source: str = ""
    """Which process printed it (`rank 0`, `worker 123`), '' where the log does not say."""


def records(path: Path, word: str) -> Iterator[Record]:
    """The records of a log in the lines that hold `word`, in order; one printed by several ranks alike comes once.

    Raises OSError.
    """
    recent: deque[int] = deque(maxlen=REMEMBERED)
    for line in text_lines(path, containing=word):
        for record in records_in(line):
            identity = hash((record.source, tuple(record.values.items())))
            if identity not in recent:
                recent.append(identity)
                yield record


def records_in(line: str) -> Iterator[Record]:
    """The records in one clean line."""
    at = 0
    while (match := _PREFIX.match(line, at)) and line.startswith("{", match.end()):
        prefix, start = match[0], match.end()
        values, at = _parsed(line, start)
        # Prose after a dict speaks about it; what another process printed into the line starts at once or as a prefix.
        rest = _PREFIX.match(line, at)
        if values is None or (line[at : at + 1] == " " and rest and line[rest.end() : rest.end() + 1] not in ("", "{")):
            return
        if any(_MARK.fullmatch(key) for key in values):
            yield Record(values, _source(prefix))


def _parsed(line: str, start: int) -> tuple[dict[str, str] | None, int]:
    """The dict that opens at `start` and the place after it; None when it is not a flat one, each key once."""
    values: dict[str, str] = {}
    at = start + 1
    while match := _PAIR.match(line, at):
        key = match["key"] or match["quoted_key"]
        if key in values:
            return None, match.end()
        texts = (match["single"], match["double"], match["wrapped"], match["bare"], match["list"])
        values[key] = next(text for text in texts if text is not None)
        at = match.end()
        if match["end"] == "}":
            return values, at
    return None, at


def _source(prefix: str) -> str:
    if found := _RANK.search(prefix):
        return f"rank {int(next(group for group in found.groups() if group is not None))}"
    return f"worker {found[1]}" if (found := _WORKER.search(prefix)) else ""
