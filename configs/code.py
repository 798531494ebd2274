"""Code ideas: which files a language model may change, how much, and how the study knows a change as a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from pydantic import Field

from nightlab.configs.problems import Location, Problem
from nightlab.configs.section import Section
from nightlab.configs.units import Duration, Flag
from nightlab.configs.values import RepositoryPath, Scalar

__all__ = [
    "CodeSettings",
    "idea_name",
    "idea_parameter",
    "is_idea",
    "is_mutable",
    "lies_below",
    "problems_of_code",
    "settings_of",
    "with_ideas_unused",
    "without_unused_ideas",
]

PREFIX = "code/"
"""An accepted idea is a parameter of this prefix: false in the baseline, true where it is applied."""

Value = TypeVar("Value")


class CodeSettings(Section):
    """Changes to the code that a language model proposes; without `mutable` none are asked for."""

    mutable: list[RepositoryPath] = Field(default_factory=list)
    """Files a model may change, e.g. `[train.py]`; patterns such as `model/*.py` too. Frozen paths never are."""
    ideas: Annotated[int, Field(ge=1, le=64)] = 8
    """Ideas that are accepted at most."""
    at_once: Annotated[int, Field(ge=1, le=8)] = 2
    """Accepted ideas that wait to be tried; further ones are asked for when there are fewer."""
    max_changed_lines: Annotated[int, Field(ge=1, le=2000)] = 60
    """Lines that one idea may add and remove, together."""
    required_calls: list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]] = Field(default_factory=list)
    """Functions that must be called, and be what they are, as before: those that measure, e.g. `[evaluate]`."""
    short_run: Flag = True
    """Whether every idea has to pass a short run before it counts. Switch it off where a run of the night fills the
    GPU: an idea that fails at once then costs a run."""
    smoke: dict[str, Scalar] = Field(default_factory=dict)
    """Parameter values for the short run, e.g. `{steps: 5}`; without any those of
    `launcher.dry_run`."""
    smoke_timeout_seconds: Duration | None = Field(default=None, alias="smoke_timeout")
    """Longest time the short run may take; without it `launcher.dry_run_timeout`."""
    instructions: RepositoryPath | None = None
    """A file of the repository whose text the model is given as your instructions, e.g. `program.md`."""


def is_idea(parameter: str) -> bool:
    """Whether a parameter or factor stands for a code idea."""
    return parameter.startswith(PREFIX)


def idea_parameter(name: str) -> str:
    return PREFIX + name


def idea_name(parameter: str) -> str:
    return parameter.removeprefix(PREFIX)


def settings_of(parameters: Mapping[str, Value]) -> dict[str, Value]:
    """What a launcher is given: the parameters without the code ideas, which are in the code."""
    return {name: value for name, value in parameters.items() if not is_idea(name)}


def without_unused_ideas(parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A configuration as it is recorded: an idea that is not applied does not stand in it.

    So a configuration stays the same one when further ideas come.
    """
    return {name: value for name, value in parameters.items() if not is_idea(name) or value is not False}


def with_ideas_unused(parameters: Mapping[str, Scalar], ideas: Iterable[str]) -> dict[str, Scalar]:
    """A recorded configuration with those of the parameters `ideas` that do not stand in it as not applied."""
    return {**dict.fromkeys(ideas, False), **parameters}


def is_mutable(settings: CodeSettings, frozen: Sequence[str], path: str) -> bool:
    """Whether an idea may change, or make, the file at `path`, as git writes it."""
    return not lies_below(path, frozen) and any(_matches(path, pattern) for pattern in settings.mutable)


def lies_below(path: str, places: Iterable[str]) -> bool:
    """Whether `path` is one of `places`, or lies in one."""
    parts = PurePosixPath(path).parts
    return any(parts[: len(at)] == at for at in (PurePosixPath(place).parts for place in places) if at)


def _matches(path: str, pattern: str) -> bool:
    """Part by part, so that `*` stays within a folder."""
    have, want = PurePosixPath(path).parts, PurePosixPath(pattern).parts
    return len(have) == len(want) and all(map(fnmatchcase, have, want))


def problems_of_code(
    code: CodeSettings, *, parameters: Iterable[str], frozen: Sequence[str], written: str | None
) -> list[Problem]:
    """What the section and the rest of the study do not agree on; `written` is the launcher's parameter file."""
    known = list(parameters)
    problems = []
    for index, path in enumerate(code.mutable):
        at: Location = ("code", "mutable", index)
        if lies_below(path, frozen):
            problems.append(Problem("is frozen", at, "take it out of frozen or out of mutable", path))
        elif written and _matches(str(PurePosixPath(written)), path):
            problems.append(Problem("holds the parameter file, which the lab writes", at, "name other files", path))
    problems += [
        Problem("is not among parameters", ("code", "smoke", name), "add it to parameters or correct the name", name)
        for name in code.smoke
        if name not in known
    ]
    if code.mutable:
        mend = f"rename it: names that begin with {PREFIX} are those of code ideas"
        problems += [
            Problem("is the name of a code idea", ("parameters", name), mend) for name in known if is_idea(name)
        ]
    return problems
