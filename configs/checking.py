"""Finds every mistake of a study at once: what is wrong is mended provisionally, and the rest is checked again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from nightlab.configs.fields import section_at
from nightlab.configs.findings import Finding, findings
from nightlab.configs.problems import ACROSS_SECTIONS, IN_SECTION, Location, value_at
from nightlab.configs.study import GIVEN_PLACEHOLDERS, Study, placeholders_in
from nightlab.configs.wording import MAX_SHOWN, one_line

__all__ = ["examine", "without_blanks"]

ROUNDS = 5

_DECIDING = ("kind", "scale", "via")
"""Keys that say what the others in their section must be."""

_STAND_INS: dict[str, object] = {
    "study": "x",
    "scenario": "x",
    "method": "x",
    "base_model": "x",
    "objective": {"metric": "x", "direction": "minimize", "min_effect": 0.0},
    "parameters": {},
    "launcher": {"command": "x"},
    "budget": {"runs": 1},
}
"""Valid values for what a study must have."""


def examine(data: Mapping[str, object]) -> tuple[Study | None, list[Finding]]:
    """The study in `data`, or everything that is wrong with it, in the order of the model."""
    found: list[Finding] = []
    mended: dict[str, Any] = deepcopy(dict(data))
    for _ in range(ROUNDS):
        try:
            study = Study.model_validate(mended)
        except ValidationError as error:
            fresh = findings(error.errors(include_url=False), mended)
        else:
            found += [] if _touches_command(found) else _of_command(study)
            return (None, found) if found else (study, [])
        both = [*found, *fresh]
        found += [one for one in fresh if not _follows(one, found) and not _is_misspelt(one, both)]
        for finding in fresh:
            _mend(mended, finding)
    return None, found


def without_blanks(data: object, at: Location = ()) -> Any:
    """`data` with every key of a section that stands without a value left out, as if it were not written."""
    if isinstance(data, dict):
        blanks = section_at(at) is not None
        return {key: without_blanks(value, (*at, key)) for key, value in data.items() if not (blanks and value is None)}
    if isinstance(data, list):
        return [without_blanks(item, (*at, index)) for index, item in enumerate(data)]
    return data


def _touches_command(found: list[Finding]) -> bool:
    """Whether the command or the names it may use are in doubt already."""
    return any(one.at[:1] in (("launcher",), ("parameters",)) for one in found)


def _of_command(study: Study) -> list[Finding]:
    """Placeholders that the launcher could not fill in."""
    at = ("launcher", "command")
    given = GIVEN_PLACEHOLDERS if study.launcher.parameters.via == "file" else GIVEN_PLACEHOLDERS - {"params_file"}
    found = []
    for name in placeholders_in(study.launcher.command):
        if name in given and name in study.parameters:
            found.append(
                Finding(at, "command", f"{{{name}}} is both the lab's and a parameter", "rename the parameter")
            )
        elif name not in given and name not in study.parameters:
            mend = "add it to parameters; a brace itself is written twice"
            found.append(Finding(at, "command", f"{{{one_line(name[:MAX_SHOWN])}}} stands for nothing", mend))
    return found


def _follows(finding: Finding, earlier: list[Finding]) -> bool:
    """Whether the finding may come only from what was mended below or at its place."""
    if finding.kind == ACROSS_SECTIONS:
        return any(one.at == finding.at or _may_decide(one.at, finding.at) for one in earlier)
    causes = [one.at for one in earlier if not _is_stray(one)]
    if finding.kind == IN_SECTION and any((*finding.at[:-1], key) in causes for key in _DECIDING):
        return True
    return any(at[: len(finding.at)] == finding.at for at in causes)


def _may_decide(cause: Location, at: Location) -> bool:
    """Whether what is wrong at `cause` may be why a condition or constraint at `at` names no possible value."""
    if at[:1] == ("forbid",):
        return cause[:2] in (at[:2], ("space", at[-1]), ("parameters", at[-1]))
    return at[2:3] == ("requires",) and cause[:2] in (("space", at[-1]), ("parameters", at[-1]))


def _is_misspelt(finding: Finding, others: list[Finding]) -> bool:
    """Whether what is missing stands there under a name that was probably meant to be its own."""
    return finding.kind == "missing" and any(
        one.meant == finding.at[-1] and one.at[:-1] == finding.at[:-1] for one in others
    )


def _is_stray(finding: Finding) -> bool:
    """Whether it is a key that nobody knows and that stands for no other."""
    return finding.kind == "extra_forbidden" and finding.meant is None


def _mend(data: dict[str, Any], finding: Finding) -> None:
    """Put a valid value where one must stand, take away what need not be there."""
    at = finding.at
    if not at:
        return
    top = str(at[0])
    if at == ("parameters",):
        # Without the baseline's names nothing can be said of those who use them.
        data["parameters"] = {}
        for user in ("space", "locked", "forbid"):
            data.pop(user, None)
        if isinstance(launcher := data.get("launcher"), dict):
            launcher.pop("dry_run", None)
    elif top == "parameters" and len(at) > 1 and finding.kind != "string_pattern_mismatch":
        data["parameters"][at[1]] = 1
    elif top == "space" and len(at) > 1 and finding.kind != "string_pattern_mismatch":
        _mend_factor(data, at, finding)
    elif top == "forbid":
        data.pop("forbid", None)
    elif top == "guardrails" and isinstance(data[top], list) and len(at) > 1 and not _is_stray(finding):
        data[top][at[1]] = {"metric": "x", "min": 0}
    elif len(at) <= 2 and top in _STAND_INS:
        _stand_in(data, at, finding)
    else:
        _replace(data, at)


def _mend_factor(data: dict[str, Any], at: Location, finding: Finding) -> None:
    is_bundle = isinstance(factor := value_at(data, at[:2]), dict) and "settings" in factor
    if _is_stray(finding) or (at[2:3] == ("settings",) and len(at) > 3):
        _replace(data, at)
    elif finding.kind == ACROSS_SECTIONS or is_bundle:
        _replace(data, at[:2])
    elif isinstance(data.get("space"), dict):
        data["space"][at[1]] = {"levels": [1]}


def _stand_in(data: dict[str, Any], at: Location, finding: Finding) -> None:
    stand_in = _STAND_INS[str(at[0])]
    section = data.get(str(at[0]))
    if len(at) == 1 or not isinstance(section, dict):
        data[str(at[0])] = deepcopy(stand_in)
    elif isinstance(stand_in, dict) and at[1] in stand_in and finding.kind != "extra_forbidden":
        section[at[1]] = stand_in[str(at[1])]
    else:
        section.pop(at[1], None)


def _replace(data: dict[str, Any], at: Location) -> None:
    """Take the key at `at` away, or put a stand-in where a list item is: the other items keep their positions."""
    around: Any = value_at(data, at[:-1])
    if isinstance(around, list) and isinstance(at[-1], int) and at[-1] < len(around):
        around[at[-1]] = "x"
    elif isinstance(around, dict):
        around.pop(at[-1], None)
