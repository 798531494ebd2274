"""What a study may say but hardly means: warnings, not faults."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from nightlab.configs.findings import Finding
from nightlab.configs.levels import same_value
from nightlab.configs.problems import Location
from nightlab.configs.study import Factor, Scalar, Study, placeholders_in
from nightlab.configs.wording import show
from nightlab.configs.yaml_reader import read_scalar

__all__ = ["advise"]

_NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*[.,]?\d*|\.\d+)([eE][-+]?\d+)?%?")
_BOOLEAN_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def advise(study: Study, quoted: Collection[Location]) -> list[Finding]:
    """Warnings for a valid study; `quoted` are the places of values in quotation marks."""
    found = [*_about_belief(study), *_about_score(study), *_about_space(study), *_about_command(study)]
    found += _about_code(study)
    found += [finding for at, value in _scalars(study) if (finding := _about_text(at, value, quoted=at in quoted))]
    return found


def _warning(at: Location, message: str, mend: str, value: object = None) -> Finding:
    return Finding(at, "warning", message, mend, value)


def _about_belief(study: Study) -> Iterator[Finding]:
    objective = study.objective
    if objective.min_effect == 0:
        mend = "give the smallest improvement worth having"
        yield _warning(("objective", "min_effect"), "0 counts any certain improvement as a win", mend, 0)
    if objective.plausible is None:
        mend = "add plausible: [lowest, highest] so that review rejects impossible values"
        yield _warning(("objective",), "has no plausible range", mend)
    if not study.frozen:
        mend = "list the evaluation code and data that no experiment may change"
        yield _warning(("frozen",), "is empty", mend)


def _about_score(study: Study) -> Iterator[Finding]:
    score = study.source_of(study.objective.metric).score
    if score and not study.maximize:
        at = ("objective", "direction")
        yield _warning(at, f"minimises {score.kind}, which is better when larger", "write maximize", "minimize")


def _about_space(study: Study) -> Iterator[Finding]:
    proposes = bool(study.code.mutable) and study.brain.kind == "llm"
    if not study.space and not study.catalog.match and not study.catalog.include and not proposes:
        yield _warning(("space",), "there is nothing to try", "add factors here or set catalog.match: true")
    for name, factor in study.space.items():
        at = ("space", name)
        if factor.technique and factor.tier:
            mend = "remove tier to take the catalog's"
            yield _warning((*at, "tier"), f"{factor.tier} replaces the tier of {factor.technique}", mend, factor.tier)
        if factor.settings is None:
            yield from _about_levels(at, factor, study.parameters[name])
        else:
            yield from _about_settings(at, factor, study.parameters)


def _about_code(study: Study) -> Iterator[Finding]:
    if study.code.mutable and study.brain.kind == "rules":
        mend = "set brain.kind: llm, or remove it"
        yield _warning(("code", "mutable"), "nobody proposes changes: the brain is rules", mend)
    if study.code.mutable and not study.code.required_calls:
        mend = "name the functions that measure, e.g. [evaluate], so that no idea leaves them out"
        yield _warning(("code", "required_calls"), "is empty", mend)


def _about_levels(at: Location, factor: Factor, baseline: Scalar) -> Iterator[Finding]:
    levels = factor.levels or []
    for index, level in enumerate(levels):
        here = (*at, "levels", index)
        if same_value(level, baseline):
            yield _warning(here, f"{show(level)} is the baseline's own value", "remove it", level)
        elif any(same_value(level, other) for other in levels[:index]):
            yield _warning(here, f"{show(level)} is listed twice", "remove one", level)
    if any(_sort(level) != _sort(baseline) for level in levels) and not factor.categorical:
        mend = "give values of one sort or set categorical: true"
        yield _warning((*at, "levels"), f"not all are {_sort(baseline)} like the baseline's {show(baseline)}", mend)


def _about_settings(at: Location, factor: Factor, parameters: Mapping[str, Scalar]) -> Iterator[Finding]:
    settings = factor.settings or {}
    whole = {label: factor.setting(label, parameters) for label in settings}
    for index, (label, setting) in enumerate(settings.items()):
        here = (*at, "settings", label)
        if all(same_value(value, parameters[name]) for name, value in setting.items()):
            yield _warning(here, "changes nothing", "give values that differ from the baseline's, or remove it")
        elif twin := next((one for one in list(settings)[:index] if whole[one] == whole[label]), None):
            yield _warning(here, f"is the same as {twin}", "remove one")
        for name, value in setting.items():
            if _sort(value) != _sort(baseline := parameters[name]):
                mend = f"write {_sort(baseline)} like the baseline's {show(baseline)} if that is meant"
                yield _warning((*here, name), f"{show(value)} is not {_sort(baseline)}", mend, value)


def _sort(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "text" if isinstance(value, str) else "numbers"


def _about_command(study: Study) -> Iterator[Finding]:
    if not study.launcher.is_framework and "seed" not in placeholders_in(study.launcher.command):
        mend = "add for example --seed {seed}, or see that the script reads NIGHTLAB_SEED; equal runs show no noise"
        yield _warning(("launcher", "command"), "does not hand over {seed}", mend)


def _scalars(study: Study) -> Iterator[tuple[Location, Scalar]]:
    """Every place where any scalar may stand, so that its type decides what it means."""
    yield from ((("parameters", name), value) for name, value in study.parameters.items())
    yield from ((("launcher", "dry_run", name), value) for name, value in study.launcher.dry_run.items())
    for name, factor in study.space.items():
        at = ("space", name)
        yield from (((*at, "levels", index), value) for index, value in enumerate(factor.levels or []))
        yield from (((*at, "requires", other), value) for other, value in factor.requires.items())
        for label, setting in (factor.settings or {}).items():
            yield from (((*at, "settings", label, other), value) for other, value in setting.items())
    for index, forbidden in enumerate(study.forbid):
        yield from ((("forbid", index, other), value) for other, value in forbidden.items())


def _about_text(at: Location, value: Scalar, *, quoted: bool) -> Finding | None:
    if not isinstance(value, str):
        return None
    if _NUMBER_LIKE.fullmatch(value) and not (quoted and isinstance(read_scalar(value), str)):
        mend = "take it out of quotes" if quoted else "write it with digits, a point and no leading zero, or in quotes"
        return _warning(at, f"{show(value)} is text, not a number", f"{mend} if a number is meant", value)
    if value.lower() in _BOOLEAN_WORDS and not quoted:
        mend = f"write {_BOOLEAN_WORDS[value.lower()]}, or put it in quotes if text is meant"
        return _warning(at, f"{show(value)} is text, not true or false", mend, value)
    return None
