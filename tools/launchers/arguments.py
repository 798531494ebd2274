"""The arguments a training framework takes: of the version installed where the jobs run, else of one kept here."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from nightlab.configs.files import write_atomically
from nightlab.configs.wording import show

__all__ = ["Argument", "Arguments", "Missing", "bundled", "installed"]

DATA = Path(__file__).with_name("data")
DUMP = Path(__file__).with_name("argument_dump.py")
MARK = "nightlab-arguments: "
DUMP_SECONDS = 180.0
VERSION_SECONDS = 30.0
_NOT_IMPORTED = re.compile(r"ImportError|ModuleNotFoundError|No module named|undefined symbol")

_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}


class Argument(BaseModel):
    """One argument: what its value may be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = "any"
    """`bool`, `int`, `float`, `str`; `any` where only the framework knows."""
    choices: tuple[str | int | float | bool, ...] = ()
    many: bool = False
    """Whether it is a list."""

    def problem_of(self, value: object) -> tuple[str, str] | None:
        """What is wrong with a value, and the mend; None for a good one, and for `null`."""
        for one in value if isinstance(value, list) and self.many else (value,):
            if one is not None and (problem := self._problem_of_one(one)):
                return problem
        return None

    def _problem_of_one(self, value: object) -> tuple[str, str] | None:
        if self.choices:
            return self._problem_of_choice(value)
        if isinstance(value, dict | list):
            return None if self.type in ("any", "str") else (f"is not {_WORDS[self.type]}", "write one value")
        good = {
            "bool": isinstance(value, bool),
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, int | float) and not isinstance(value, bool),
            # Frameworks take a number or a switch for some texts (`packing`, `report_to`): only they know which.
            "str": True,
        }
        if good.get(self.type, True):
            return None
        return f"{show(value)} is not {_WORDS[self.type]}", f"write {_WORDS[self.type]}, without quotes"

    def _problem_of_choice(self, value: object) -> tuple[str, str] | None:
        if value in self.choices:
            return None
        if value is False and "no" in self.choices:
            return "no is read as false", "write 'no' in quotes"
        close = get_close_matches(str(value), [str(choice) for choice in self.choices], n=1)
        if close:
            return f"{show(value)} is no choice", f"did you mean {close[0]}?"
        shown = [str(choice) for choice in self.choices[:12]]
        more = f" and {len(self.choices) - 12} more" if len(self.choices) > 12 else ""
        return f"{show(value)} is no choice", f"write one of {', '.join(shown)}{more}"


class Arguments(BaseModel):
    """All arguments of one version of a framework (and task)."""

    model_config = ConfigDict(frozen=True)

    version: str
    arguments: dict[str, Argument]
    is_installed: bool = False
    """Whether they were read from the installed framework; else from the list kept here."""

    def closest(self, key: str, cutoff: float = 0.7) -> list[str]:
        """Names that may have been meant, best first."""
        return get_close_matches(key, list(self.arguments), n=3, cutoff=cutoff)


@dataclass(frozen=True)
class Missing:
    """Why the installed framework could not be asked."""

    reason: str
    is_broken: bool = False
    """Whether it is installed, but cannot be imported: no run could start."""


@cache
def bundled(framework: str, task: str | None = None) -> Arguments:
    """The arguments of the version this list was made from."""
    name = f"{framework}-{task}" if task else framework
    return Arguments.model_validate_json((DATA / f"{name}.json").read_bytes())


def installed(
    python: str, framework: str, task: str | None, env: Mapping[str, str], cache_folder: Path | None
) -> Arguments | Missing:
    """The arguments of the framework that the interpreter `python` imports in the environment `env`.

    Importing it takes seconds: they are kept in `cache_folder`, if that exists, by version.
    """
    version = _version(python, framework, env)
    if isinstance(version, Missing):
        return version
    name = "-".join(part for part in ("arguments", framework, task, version) if part)
    file = cache_folder / f"{name}.json" if cache_folder is not None and cache_folder.is_dir() else None
    if file is not None and (known := _read(file)):
        return known
    found = _dump(python, framework, task, env)
    if file is not None and isinstance(found, Arguments):
        write_atomically(file, found.model_dump_json() + "\n")
    return found


def _version(python: str, framework: str, env: Mapping[str, str]) -> str | Missing:
    code = f"import importlib.metadata as m; print(m.version({framework!r}))"
    try:
        done = _call([python, "-c", code], env, VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Missing(f"{python} cannot be started: {error}")
    return done.stdout.strip() if done.returncode == 0 else Missing(f"{framework} is not installed for {python}")


def _dump(python: str, framework: str, task: str | None, env: Mapping[str, str]) -> Arguments | Missing:
    command = [python, str(DUMP), framework, *([task] if task else [])]
    try:
        done = _call(command, env, DUMP_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Missing(f"{framework} could not be asked for its arguments: {error}")
    line = next((line for line in done.stdout.splitlines() if line.startswith(MARK)), None)
    if done.returncode != 0 or line is None:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else "no reason given"
        # A version that is built otherwise cannot be asked, but may well run.
        is_broken = bool(_NOT_IMPORTED.search(reason)) and f"No module named '{framework}" not in reason
        return Missing(f"{framework} cannot be imported by {python}: {reason}", is_broken)
    return Arguments.model_validate(json.loads(line.removeprefix(MARK)) | {"is_installed": True})


def _call(command: list[str], env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False, env=dict(env)
    )


def _read(file: Path) -> Arguments | None:
    try:
        return Arguments.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
