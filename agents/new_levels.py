"""Values that a model proposes: checked as a person's study is, and narrower; those that pass may enter the plan."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from nightlab.agents.brain import Advised, NewLevels
from nightlab.agents.context import Lab
from nightlab.agents.design import Design
from nightlab.agents.said import FactorSaid, plain
from nightlab.agents.space import fits, space_of
from nightlab.configs.levels import same_value
from nightlab.configs.proposals import propose_locked
from nightlab.configs.space import problems_of_space
from nightlab.configs.study import Factor, Scalar
from nightlab.configs.wording import show
from nightlab.search.chances import EVEN
from nightlab.search.ranking import rank_factors

__all__ = ["MOST_FACTORS", "Checked", "check_levels", "with_new_levels"]

MOST_FACTORS = 6
MOST_LEVELS = 4
MOST_HINTS = 6
TIER = 5
PRIOR = 0.2
"""What a catalog entry of the last tier has at most: a model's guess waits behind everything with a source."""
WIDEST = 100.0
"""How far from the values there are a fraction may lie, as a ratio; a whole number makes runs grow and gets less."""
WIDEST_WHOLE = 8.0
FROM_ZERO = 1.0
FROM_ZERO_WHOLE = 100
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+\-]{0,39}")
ONLY_A_PERSON = "decides how long a run takes, what it learns from or how it is measured: only a person may search it"


@dataclass
class Checked:
    """What became of the proposals."""

    factors: list[NewLevels] = field(default_factory=list)
    hints: list[Advised] = field(default_factory=list)
    """Parameters that the study does not have: for a person."""
    refused: list[str] = field(default_factory=list)


def check_levels(lab: Lab, proposed: Iterable[FactorSaid]) -> Checked:
    """The proposals that an experiment may try; of the others why not."""
    checks, checked = _Checks(lab), Checked()
    for one in proposed:
        name, reason = one.parameter, plain(one.reason)
        if name not in lab.study.parameters and name not in lab.study.space:
            if len(checked.hints) < MOST_HINTS and _WORD.fullmatch(name):
                checked.hints.append(Advised(name, reason))
            else:
                checked.refused.append(f"factor {plain(name, 60)}: is not among parameters")
            continue
        levels, problem = checks.levels(name, one)
        if not problem and any(name == held.parameter for held in checked.factors):
            problem = "was proposed already"
        if not problem and len(checked.factors) == MOST_FACTORS:
            problem = f"more than {MOST_FACTORS} factors"
        if problem:
            checked.refused.append(f"factor {plain(name, 60)}: {plain(problem, 160)}")
        else:
            checked.factors.append(NewLevels(name, tuple(levels), checks.is_log(name, one, levels), reason))
    return checked


class _Checks:
    def __init__(self, lab: Lab) -> None:
        self.lab, self.study, self.space = lab, lab.study, space_of(lab)

    def levels(self, name: str, said: FactorSaid) -> tuple[list[Scalar], str]:
        """The values that may be tried, and why there is none."""
        if problem := self._problem_of(name):
            return [], problem
        held = [self.study.parameters[name], *(self.space[name].values if name in self.space else ())]
        new: list[Scalar] = []
        why = "no value to try"
        for level in said.levels[: 4 * MOST_LEVELS]:
            if problem := self._problem_at(level, held):
                why = problem
            elif not any(same_value(level, one) for one in (*held, *new)):
                new.append(level)
            else:
                why = "every value is tried already"
        new = new[:MOST_LEVELS]
        return (new, self._problem_in_space(name, said, new)) if new else ([], why)

    def is_log(self, name: str, said: FactorSaid, levels: Sequence[Scalar]) -> bool:
        values = [self.study.parameters[name], *levels]
        return said.scale == "log" and all(not isinstance(v, bool | str) and v > 0 for v in values)

    def _problem_of(self, name: str) -> str:
        bundle = next((one for one, factor in self.space.items() if name in (*factor.parameters_set,)), None)
        if bundle or (name in self.space and self.space[name].settings is not None):
            return f"belongs to the bundle {bundle or name}"
        if name in self.study.locked:
            return "is locked"
        if propose_locked({name: self.study.parameters[name]}) or "seed" in name.lower():
            return ONLY_A_PERSON
        return "" if self.study.reaches_runs(name) else "the command has no place for it"

    def _problem_at(self, level: Scalar, held: Sequence[Scalar]) -> str:
        baseline = held[0]
        shown = show(level)[:60]
        if not fits(level, baseline):
            return f"{shown} is of another kind than {show(baseline)}"
        if isinstance(level, str):
            return self._problem_of_text(level, str(baseline))
        if isinstance(level, bool) or isinstance(baseline, bool):
            return ""
        if not math.isfinite(level):
            return f"{shown} is not finite"
        numbers = [float(one) for one in held if isinstance(one, int | float)]
        if all(number.is_integer() for number in numbers) and isinstance(baseline, int):
            if not float(level).is_integer():
                return f"{shown} is no whole number"
            return _out_of_reach(float(level), numbers, WIDEST_WHOLE, FROM_ZERO_WHOLE)
        return _out_of_reach(float(level), numbers, WIDEST, FROM_ZERO)

    def _problem_of_text(self, level: str, baseline: str) -> str:
        if "/" in baseline or baseline in self._names:
            return "its value names a file: only a person may search it"
        if not _WORD.fullmatch(level):
            return f"{show(level)[:60]} is no plain word"
        return f"{level} names a file of the repository" if level in self._names else ""

    @cached_property
    def _names(self) -> frozenset[str]:
        """What stands at the top of the repository or is named in the study: data and code are no values."""
        paths = [*self.lab.git.files_at(self.lab.base_commit), *self.study.inputs, *self.study.frozen]
        return frozenset(part for path in paths for part in (path, path.split("/")[0], path.split("/")[-1]))

    def _problem_in_space(self, name: str, said: FactorSaid, new: list[Scalar]) -> str:
        """What the study's own checks say of it."""
        factor = _factor(new, is_log=self.is_log(name, said, new))
        changed = self.study.model_copy(update={"space": {**self.study.space, name: factor}})
        at = ("space", name)
        return next((one.message for one in problems_of_space(changed) if one.at[:2] == at), "")


def _factor(levels: Sequence[Scalar], *, is_log: bool) -> Factor:
    return Factor(levels=list(levels), scale="log" if is_log else "linear", tier=TIER)


def _out_of_reach(level: float, held: Sequence[float], widest: float, from_zero: float) -> str:
    """Whether a number lies far from all that a person named, or has another sign."""
    sizes = [abs(number) for number in held if number]
    reach = (min(sizes) / widest, max(sizes) * widest) if sizes else (0.0, from_zero)
    low, high = (reach[0] if level else 0.0), (max(reach[1], from_zero) if 0 in held else reach[1])
    sign_fits = level >= 0 if min(held) >= 0 else level <= 0 if max(held) <= 0 else True
    if sign_fits and low <= abs(level) <= high:
        return ""
    return f"{level:g} lies too far from {', '.join(f'{number:g}' for number in held[:4])}"


def with_new_levels(lab: Lab, design: Design) -> Design:
    """The design with the proposed values in its plan: new factors as tier 5, new values behind a factor's own."""
    if design.advice is None:
        return design
    factors = list(design.factors)
    by = f"proposed by {plain(design.advice.model, 60)}"
    for proposed in design.advice.factors:
        at = next((index for index, factor in enumerate(factors) if factor.name == proposed.parameter), None)
        if at is None:
            space = {proposed.parameter: _factor(proposed.levels, is_log=proposed.log)}
            priors = {proposed.parameter: PRIOR}
            ranked = rank_factors(lab.study, space, tiers={}, priors=priors)
            factors += [replace(one, reason=f"{one.reason}, {by}") for one in ranked]
            continue
        known = factors[at]
        new = tuple(v for v in proposed.levels if not any(same_value(v, held) for held in known.levels))
        if new and not known.also:
            chances = (*known.chances, *(EVEN for _ in new)) if known.chances else ()
            reason = f"{known.reason}, {len(new)} of its values {by}"
            factors[at] = replace(known, levels=(*known.levels, *new), chances=chances, reason=reason)
    return replace(design, factors=tuple(sorted(factors, key=lambda one: (one.tier, -one.score))))
