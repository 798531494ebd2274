"""Failure signatures: what a line of a training log means, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.wording import nearest, show
from nightlab.errors import ConfigError, Fault
from nightlab.knowledge.user_file import open_user_file, plain_error

__all__ = ["Action", "Role", "Signature", "Signatures", "load_signatures"]

BUILT_IN = Path(__file__).parent / "data" / "failures.yaml"

SHAPE = "write `signatures:` and below it one `- id: …` a signature"

Action = Literal["retry", "retry_changed", "fix_config", "fix_data", "fix_env", "ask_user", "stop", "note"]
"""`retry`: the same again; `retry_changed`: again with an automatic change; `fix_…`: needs an edit; `note`: says
something, decides nothing."""

Role = Literal["cause", "consequence", "symptom", "warning"]
"""How far a match explains a failure, most telling first (see the head of `data/failures.yaml`)."""

Line = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\r\n]*$")]


class Signature(BaseModel):
    """One known failure."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_\-]*$")]
    """Lower-case letters, digits, `_` and `-`."""
    category: Annotated[str, Field(min_length=1)] = "own"
    regex: Line
    """Python `re`, searched in every line."""
    example: Line
    """A line it must match."""
    cause: Annotated[str, Field(min_length=1)]
    """What is behind it, in words."""
    remedy: str = ""
    """What helps, in words."""
    action: Action
    """What the lab does about it."""
    role: Role = "cause"
    """How far a match explains the failure."""
    exit_codes: list[Annotated[int, Field(ge=1, le=255)]] = Field(default_factory=list)
    """Exit statuses that say the same where the log is silent; 128 + n stands for signal n."""
    source: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    @model_validator(mode="after")
    def _recognises_its_example(self) -> Signature:
        try:
            pattern = re.compile(self.regex)
        except (re.error, OverflowError, RecursionError) as error:
            refuse(Problem(f"is not a regular expression: {error}", ("regex",), "Python's re syntax"))
        if pattern.search(""):
            refuse(Problem("matches an empty line, so every line", ("regex",), "name the words of the failure"))
        if not pattern.search(self.example):
            refuse(Problem("the regex does not match the example", ("example",), "paste a line of a log that it finds"))
        return self


@dataclass(frozen=True)
class Signatures:
    """All signatures in the order in which they count."""

    entries: tuple[Signature, ...]

    @cached_property
    def _by_id(self) -> dict[str, Signature]:
        return {signature.id: signature for signature in self.entries}

    def get(self, signature_id: str) -> Signature:
        """One signature. Raises ConfigError with the closest id for an unknown one."""
        if signature_id not in self._by_id:
            close = nearest(signature_id, self._by_id)
            mend = f"did you mean {close}?" if close else f"there are {len(self.entries)} signatures"
            raise ConfigError(Fault(f"{show(signature_id)} is no failure signature", value=signature_id, mend=mend))
        return self._by_id[signature_id]


def load_signatures(user_file: Path | None = None) -> Signatures:
    """The built-in signatures, with a user's own file on top.

    An entry with a known id replaces only the keys it gives and stays in its place; new ones come before all others,
    so that they can be more special. Raises ConfigError with every fault of the user's file at once.
    """
    built_in = _built_in()
    return built_in if user_file is None else Signatures(tuple(_with_own(user_file, built_in.entries)))


@cache
def _built_in() -> Signatures:
    # Where PyYAML was built without libyaml its own loader reads the same, ten times slower.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with BUILT_IN.open("rb") as file:
        data = yaml.load(file, Loader=loader)  # noqa: S506
    return Signatures(tuple(Signature.model_validate(entry) for entry in data["signatures"]))


def _with_own(file: Path, built_in: Iterable[Signature]) -> Iterable[Signature]:
    known = {signature.id: signature for signature in built_in}
    own_file = open_user_file(file, setting="failures.file", shape=SHAPE)
    own_file.refuse_keys_but(("version", "signatures"), "a file of failure signatures")
    own = {name: item.entry for name, item in own_file.entries("signatures", known, _plain).items()}
    own_file.finish()
    new = {name: entry for name, entry in own.items() if name not in known}
    return {**new, **known, **own}.values()


def _plain(detail: ErrorDetails, key: str) -> tuple[str, str]:
    """An error in plain words, and the mend."""
    if detail["type"] == "literal_error":
        options = get_args(Action if key == "action" else Role)
        close = nearest(str(detail["input"]), options)
        message = f"{show(detail['input'])} is not one of {', '.join(options)}"
        return message, f"did you mean {close}?" if close else "choose one of them"
    return plain_error(detail, Signature.model_fields)
