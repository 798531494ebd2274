"""YAML as a person means it: YAML 1.2 scalars, a line for every key, nothing silently dropped.

PyYAML's own loaders follow YAML 1.1, where `1e-3` is text, `on` is a boolean, `010` is eight, `10:30` is 630, and the
second of two equal keys wins. Here only its parser is used; values follow the core schema of YAML 1.2
(https://yaml.org/spec/1.2.2/#103-core-schema), but a whole number with leading zeros stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nightlab.configs.problems import Location
from nightlab.configs.wording import one_line, show, written
from nightlab.errors import ConfigError, Fault

__all__ = ["Document", "read_scalar", "read_yaml"]

MAX_DEPTH = 20
MAX_VALUES = 20_000
MAX_DIGITS = 400

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}


@dataclass
class Document:
    """A parsed file: its values, the line of every key and item, and what was wrong on the way."""

    data: dict[str, object] = field(default_factory=dict)
    lines: dict[Location, int] = field(default_factory=dict)
    quoted: set[Location] = field(default_factory=set)
    """Where the value stands in quotes or in a block, so that it is text on purpose."""
    faults: list[Fault] = field(default_factory=list)

    def line(self, at: Location) -> int | None:
        """The line of `at`, or of the nearest section around it that stands in the file."""
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at)


def read_scalar(text: str) -> object:
    """The value of an unquoted scalar: None, a boolean, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MAX_DIGITS or _LEADING_ZERO.fullmatch(text):
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _RADIX.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def read_yaml(text: str, file: Path) -> Document:
    """The document in `text`; ConfigError where there is no telling what was meant."""
    reader = _Reader(file)
    try:
        return reader.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        fault = Fault(f"character {show(chr(error.character))} is not allowed", file, line, mend="delete it")
        raise ConfigError(fault) from error
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_fault(error, text, file)) from error
    except (ValueError, OverflowError) as error:
        # PyYAML lets these out for an escape such as "\UFFFFFFFF" or an endless %YAML version.
        raise ConfigError(Fault("an escape or a directive in it is not valid YAML", file)) from error


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _syntax_fault(error: yaml.MarkedYAMLError, text: str, file: Path) -> Fault:
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    content = lines[mark.line] if mark and mark.line < len(lines) else ""
    reason = f"{error.context or ''} {error.problem or 'cannot be read'}".strip()
    if "\t" in content[: len(content) - len(content.lstrip())] or "'\\t'" in reason:
        message, mend = "a tab stands in the indentation", "indent with spaces"
    elif _BRACED.search(content):
        message, mend = "text that starts with { or [ is not in quotes", "for example command: '{python} train.py'"
    else:
        known = (words for part, *words in _SYNTAX if part in reason)
        message, mend = next(known, (f"not valid YAML: {one_line(reason)}", "look at this line and the one above"))
    if "end of stream" in reason or "parsing a flow" in reason:
        mark = error.context_mark or mark
    line = min(mark.line + 1, max(len(lines), 1)) if mark else None
    if line and (opened := _open_quote(text, line)):
        return Fault("a quotation mark is not closed", file, opened, mend="close it")
    return Fault(message, file, line, mend=mend)


def _open_quote(text: str, line: int) -> int | None:
    """The line of a quotation mark that was closed only in `line`, by one that was to open another text."""
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            first, last = int(token.start_mark.line) + 1, int(token.end_mark.line) + 1
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"') and first < last == line:
                return first
    except (yaml.YAMLError, ValueError, OverflowError):
        return None
    return None


_BRACED = re.compile(r"^\s*(- |[^\s:'\"]+:)\s*([{][^{}]*[}]|\[[^\[\]]*\])\s*[^\s#,\]}]")

_SYNTAX = (
    ("could not find expected ':'", "a key has no colon behind it", "write `key: value`"),
    (
        "mapping values are not allowed",
        "a colon or an indentation too many",
        "put text with a colon in quotes; or the line above lacks its colon",
    ),
    ("quoted scalar found unexpected", "a quotation mark is not closed", "close it"),
    ("quoted scalar found unknown escape", "a backslash stands in double quotes", "use single quotes"),
    ("parsing a flow sequence", "a list is not closed", "put a comma between its values and ] at its end"),
    ("parsing a flow mapping", "a brace is not closed", "put a comma between its keys and } at its end"),
    ("parsing a block mapping", "this line does not fit the section above", "keys of one section start in one column"),
    ("parsing a block collection", "this line does not fit the list above", "its items start in one column, with `- `"),
    ("'<document start>'", "this line does not fit the one above", "keys of one section start in one column"),
    ("cannot start any token", "text starts with a sign that YAML keeps for itself", "put it in quotes"),
    ("scanning a block scalar", "text stands behind | or >", "begin it in the next line, indented"),
)


@dataclass(frozen=True)
class _Anchored:
    value: object
    size: int
    height: int


class _Reader:
    """Builds a document from PyYAML's events, depth and size bounded whatever the file holds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._document = Document()
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self._deepest = 0

    def document(self, events: Iterator[yaml.Event]) -> Document:
        next(events)  # the stream's start
        if isinstance(next(events), yaml.StreamEndEvent):
            raise ConfigError(Fault("is empty", self._file, mend="`nightlab init` writes a study file to start from"))
        first = next(events)
        data = self._value(first, events, ())
        next(events)  # the document's end
        if not isinstance(following := next(events), yaml.StreamEndEvent):
            mend = "keep one study in a file, without `---`"
            raise ConfigError(Fault("a second document starts here", self._file, _line(following), mend=mend))
        if data is None:
            raise ConfigError(Fault("is empty", self._file, mend="`nightlab init` writes a study file to start from"))
        if not isinstance(data, dict):
            raise ConfigError(
                Fault(
                    f"holds {show(data)}, not `key: value` lines", self._file, mend="`nightlab init` writes an example"
                )
            )
        self._document.data = data
        return self._document

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], at: Location) -> object:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, at)
        before, outside, self._deepest = self._values, self._deepest, len(at)
        self._count(1, len(at), event)
        value: object = None
        if isinstance(event, yaml.SequenceStartEvent):
            value = self._list(events, at)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(events, at)
        elif isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, at)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self._anchors[event.anchor] = _Anchored(value, self._values - before, self._deepest - len(at))
        self._deepest = max(outside, self._deepest)
        return value

    def _list(self, events: Iterator[yaml.Event], at: Location) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            here = (*at, len(items))
            self._document.lines[here] = _line(event)
            items.append(self._value(event, events, here))
        return items

    def _mapping(self, events: Iterator[yaml.Event], at: Location) -> dict[str, object]:
        mapping: dict[str, object] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._key(event, events, at)
            here = (*at, key)
            if key in mapping:
                first = self._document.lines[here]
                self._fault("is given twice", event, here, f"it stands in line {first} already; keep one of them")
                # A place of its own: the second value's lines must not replace the first's.
                self._value(next(events), events, (*at, key, "(twice)"))
                continue
            self._document.lines[here] = _line(event)
            value = self._value(next(events), events, here)
            if key == "<<":
                self._fault("merge keys are not supported", event, here, "write the keys out")
            else:
                mapping[key] = value
        return mapping

    def _key(self, event: yaml.Event, events: Iterator[yaml.Event], at: Location) -> str:
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        self._fault("a key must be a word", event, at, "write `key: value`; text with { or [ belongs in quotes")
        return str(self._value(event, events, (*at, "(key)")))[:20]

    def _scalar(self, event: yaml.ScalarEvent, at: Location) -> object:
        text = str(event.value)
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._fault("YAML tags are not supported", event, at, "take out the word that starts with !")
        if event.style or event.tag:
            self._document.quoted.add(at)
            return text
        return read_scalar(text)

    def _aliased(self, event: yaml.AliasEvent, at: Location) -> object:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            message, mend = f"no &{event.anchor} stands above it", "put text that starts with * in quotes"
            raise ConfigError(Fault(message, self._file, _line(event), written(at), mend=mend))
        self._deepest = max(self._deepest, len(at) + anchored.height)
        self._count(anchored.size, len(at) + anchored.height, event)
        return anchored.value

    def _count(self, values: int, depth: int, event: yaml.Event) -> None:
        self._values += values
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            limit = f"deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"longer than {MAX_VALUES} values"
            line = _line(event)
            raise ConfigError(Fault(f"the file is {limit} here", self._file, line, mend="a study file needs far less"))

    def _fault(self, message: str, event: yaml.Event, at: Location = (), mend: str | None = None) -> None:
        line = _line(event)
        self._document.faults.append(Fault(message, self._file, line, written(at) or None, mend=mend))
