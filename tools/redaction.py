"""Keeps secrets out of everything the lab writes.

A `Redactor` knows values by name and, besides, the shapes of well-known keys. It reads text, logs in pieces, data and
log records, and raises nothing: what it cannot read it leaves out.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from nightlab.errors import Fault
from nightlab.tools.backends.environment import looks_secret
from nightlab.tools.redaction_pass import Pass, pattern_finder
from nightlab.tools.secret_forms import (
    MINIMUM_CHARACTERS,
    SHAPE_WINDOW_BYTES,
    TOKEN_SHAPES,
    base64_spellings,
    literals,
    spellings,
)
from nightlab.tools.secret_probe import Probe
from nightlab.tools.wrapped_secrets import wrapped_pass

__all__ = [
    "RedactingFilter",
    "Redactor",
    "carrying",
    "check_secrets",
    "declared_secrets",
    "environment_secrets",
    "redactor_for",
]

_MARK = "[redacted]"
_BARE_MARK = "***"
_MARKS = ("[redacted", _BARE_MARK)
_MARK_ENDS = ("]", _BARE_MARK)
_VARIABLE = "env:"
_CARRIED = "nightlab_redactor"
_UNSET_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_SETTINGS = frozenset({"default", "disabled", "enabled", "external", "forbidden", "optional", "required", "unlimited"})
_NO_KEYS = frozenset({"ollama", "lm-studio", "no-key", "nokey", "not-needed", "no-key-needed", "no-key-required"})
"""What servers without a key are given for one; such a word may stand anywhere."""
_DEEPEST = 100
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class Redactor:
    """Replaces secrets by `[redacted:NAME]`, by `[redacted]` where they have no name.

    Takes pairs of name (may be empty) and value; values under six characters are passed over.
    """

    def __init__(self, names_and_values: Iterable[tuple[str, str]] = ()) -> None:
        names: dict[bytes, str] = {}
        encoded: dict[bytes, str] = {}
        for name, value in names_and_values:
            for form in spellings(value):
                names.setdefault(form, name)
            for form in base64_spellings(value):
                encoded.setdefault(form, name)
        marks = {name: _mark(name, names) for name in set(names.values())}
        replacements = {form: marks[name] for form, name in names.items()}
        bare = _mark("", names)

        def shown(match: re.Match[bytes]) -> bytes:
            return (match[1] if match.re.groups else b"") + bare

        self._passes = [
            Pass(pattern_finder(pattern, shown), SHAPE_WINDOW_BYTES, hint=hint) for hint, pattern in TOKEN_SHAPES
        ]
        if wrapped := wrapped_pass({form: marks[name] for form, name in encoded.items()}):
            self._passes.insert(0, wrapped)
        if names:
            find = pattern_finder(re.compile(literals(names)), lambda match: replacements[match[0]])
            self._passes.insert(0, Pass(find, max(map(len, names)), probe=Probe(names)))

    @classmethod
    def of(
        cls,
        declared: Iterable[str] = (),
        environment: Mapping[str, str] = os.environ,
        more: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """For a study: what it declares (`secrets:`), what looks like a key in the environment, and `more` pairs."""
        return cls([*declared_secrets(declared, environment), *more, *environment_secrets(environment)])

    def redact(self, text: str) -> str:
        """The text without secrets; the same object when there is none in it."""
        raw = text.encode("utf-8", "surrogatepass")
        safe = self._redacted(raw)
        if safe == raw:
            return text
        try:
            return safe.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            # A secret of raw bytes may have been the middle of a character.
            return safe.decode("utf-8", "replace")

    def redact_data(self, data: Any) -> Any:
        """JSON-able data (dicts with their keys, lists, tuples, sets, text, bytes, numbers) without secrets.

        What contains itself, or lies deeper than a hundred levels, becomes `[redacted]`.
        """
        return self._data(data, ())

    def redact_bytes(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """A log in pieces of any size, without secrets: one that is split between pieces is found too."""
        pieces: Iterator[bytes] = iter(chunks)
        for one in self._passes:
            pieces = one.stream(pieces)
        return pieces

    def redact_exception(self, error: BaseException) -> str:
        """The whole traceback, with causes and notes, without secrets."""
        return self.redact("".join(traceback.format_exception(error)))

    def _redacted(self, raw: bytes) -> bytes:
        for one in self._passes:
            raw = one.redacted(raw)
        return raw

    def _data(self, data: Any, above: tuple[int, ...]) -> Any:
        if id(data) in above or len(above) > _DEEPEST:
            return _MARK
        inside = (*above, id(data))
        match data:
            case str():
                return self.redact(data)
            case bytes() | bytearray():
                return self._redacted(bytes(data))
            case Mapping():
                return {self._data(key, inside): self._data(value, inside) for key, value in data.items()}
            case list() | tuple() | set() | frozenset():
                items = [self._data(item, inside) for item in data]
                return items if isinstance(data, list) else tuple(items) if isinstance(data, tuple) else set(items)
            case int() | float() if not isinstance(data, bool):
                return self._number(data)
            case _:
                return data

    def _number(self, number: float) -> float | str:
        """The number, unless it is itself a secret; one that only has a secret among its digits is a measurement."""
        safe = self.redact(str(number))
        return safe if safe.startswith(_MARKS) and safe.endswith(_MARK_ENDS) else number


class RedactingFilter(logging.Filter):
    """Put on a handler: takes secrets out of messages, tracebacks and extra fields before they are written."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: the record is changed, never dropped."""
        record.msg, record.args = self._redactor.redact(_message(record)), None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = self._redactor.redact_exception(record.exc_info[1]).rstrip("\n")
        elif record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        # Handlers with a layout of their own would print the error itself.
        record.exc_info = None
        if record.stack_info:
            record.stack_info = self._redactor.redact(record.stack_info)
        extra = {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        vars(record).update({name: self._redactor.redact_data(value) for name, value in extra.items()})
        return True


@contextmanager
def carrying(redactor: Redactor) -> Iterator[None]:
    """Errors that leave the block take the redactor along, for whoever shows them: see `redactor_for`."""
    try:
        yield
    except Exception as error:
        vars(error)[_CARRIED] = redactor
        raise


def redactor_for(error: BaseException) -> Redactor:
    """The redactor an error carries; without one, what is secret by its shape or in the environment is known."""
    carried = vars(error).get(_CARRIED)
    return carried if isinstance(carried, Redactor) else Redactor.of()


def environment_secrets(environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Name and value of the variables that look like keys.

    Left out, because the name alone suggests a secret: folders, files that exist, settings such as `disabled`, and
    counts of tokens.
    """
    return [
        (name, value) for name, value in environment.items() if looks_secret(name) and not _is_harmless(name, value)
    ]


def declared_secrets(declared: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Name and value of a study's `secrets`: `env:NAME` or NAME for a variable that is set, else the value itself."""
    pairs = []
    for entry in declared:
        name = entry.removeprefix(_VARIABLE)
        if name in environment:
            pairs.append((name, environment[name]))
        elif not entry.startswith(_VARIABLE) and not _UNSET_VARIABLE.fullmatch(entry):
            pairs.append(("", entry))
    return pairs


def check_secrets(declared: Iterable[str], environment: Mapping[str, str] = os.environ) -> list[Fault]:
    """Entries of a study's `secrets` that cannot be kept secret because their value is too short."""
    faults = []
    for position, entry in enumerate(declared):
        for name, value in declared_secrets([entry], environment):
            if len(value.strip()) < MINIMUM_CHARACTERS:
                message = f"the value{' of ' + name if name else ''} is shorter than {MINIMUM_CHARACTERS} characters"
                mend = "so short a value cannot be told from other text; use a longer one"
                faults.append(Fault(message, key=f"secrets.{position}", mend=mend))
    return faults


def _is_harmless(name: str, value: str) -> bool:
    if name in _FOLDERS or value.strip().lower() in _SETTINGS | _NO_KEYS:
        return True
    if "TOKENS" in name.upper() and value.strip().isdecimal():
        return True
    return value.startswith("/") and os.path.lexists(value)


def _mark(name: str, forms: Iterable[bytes]) -> bytes:
    """What stands in a secret's place; it must not spell a secret itself."""
    label = re.sub(r"[^A-Za-z0-9_.-]", "", name)
    for mark in (f"[redacted:{label}]" if label else _MARK, _MARK):
        if not any(form in mark.encode() for form in forms):
            return mark.encode()
    return _BARE_MARK.encode()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - formatting runs code of whatever was logged, and a log line never fails
        return f"(a message that cannot be shown: {type(error).__name__})"
