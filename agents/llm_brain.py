"""The brain with a language model: the rules' judgement, and beside it what a model reads in the repository.

What it says is checked word by word: ids are the catalog's, values pass the study's checks, everything else is counted
and dropped. The rules' findings always stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nightlab.agents.brain import Advice, Advised, Diagnosis, Dimension, Facts, RulesBrain
from nightlab.agents.context import Lab
from nightlab.agents.llm import LanguageModel
from nightlab.agents.new_levels import check_levels
from nightlab.agents.prompts import Prompt, quoted, render
from nightlab.agents.reading import Reading, read_repository
from nightlab.agents.said import DIMENSIONS, AnalysisSaid, analysis_model, plain, unasked
from nightlab.agents.scores import shown_cases
from nightlab.agents.space import space_of
from nightlab.errors import BudgetError, ModelError
from nightlab.knowledge.records import RunState, Verdict

__all__ = ["BYTES_A_TOKEN", "LlmBrain", "analysis_prompt", "checked_advice"]

KEY = "analysis/1"
BYTES_A_TOKEN = 3
"""Of quoted code 2.9, of prose 3.2 with a vocabulary of 49,000; more with larger ones. Only a bound rests on it."""
MOST_TECHNIQUES = 60
MOST_RANKED = 12
MOST_SYMPTOMS = 6
"""Symptoms a model may add in all: with more of them every technique would cure something."""
MOST_PARAMETERS = 60
MOST_CASES, LONGEST_CASE = 4, 400
"""Of the baseline's worst answers."""
MOST_REFUSED = 20
LOSSES = 16
VOLATILE = ("Resources", "Baseline")
"""Dimensions whose findings by the rules tell times and how many seeds have ended: another prompt after a crash."""


@dataclass
class LlmBrain:
    """Asks `model` once, for the diagnosis; everything else is the rules'."""

    lab: Lab
    model: LanguageModel
    advice: Advice | None = None
    """What the model said, or why there is no answer; None before it was asked."""

    name = "llm"
    rules = RulesBrain()

    def diagnose(self, facts: Facts) -> Diagnosis:
        """The rules' diagnosis with the model's advice; where none answers, with the reason why there is none."""
        found = self.rules.diagnose(facts)
        if self.advice is None:
            self.advice = self._asked(facts, found)
        return replace(found, advice=self.advice)

    def _asked(self, facts: Facts, found: Diagnosis) -> Advice:
        symptoms, techniques = list(self.lab.catalog.meta.symptoms), _techniques(self.lab)
        prompt = analysis_prompt(self.lab, facts, found)
        try:
            wanted = analysis_model(symptoms, techniques)
            answer = self.model.structured(self.lab, wanted, prompt, purpose="analysis", key=KEY)
        except (ModelError, BudgetError) as error:
            return Advice(failure=plain(str(error)))
        return checked_advice(self.lab, answer.value, answer.model)

    def explain(self, variable: str, verdict: Verdict) -> str:
        """The rules' sentence: a call for each experiment would make the tokens grow with the night."""
        return self.rules.explain(variable, verdict)


def analysis_prompt(lab: Lab, facts: Facts, found: Diagnosis) -> Prompt:
    """The prompt of the diagnosis, the same for the same study, commit and first baseline run."""
    limit = lab.study.brain.max_prompt_tokens * BYTES_A_TOKEN
    values = _values(lab, facts, found, brief=limit < BRIEF_BELOW)
    bare = render("analysis", **values, tree="", excerpts=())
    reading = read_repository(lab, max(0, limit - len(bare.text.encode("utf-8", "replace"))))
    return render("analysis", **values, **_shown(reading))


BRIEF_BELOW = 18_000
"""Bytes below which symptoms and techniques are told by their ids alone."""


def _shown(reading: Reading) -> dict[str, Any]:
    return {"tree": reading.tree, "excerpts": reading.excerpts}


def _values(lab: Lab, facts: Facts, found: Diagnosis, *, brief: bool) -> dict[str, Any]:
    study = lab.study
    catalog = {technique.id: technique.name for technique in lab.catalog.techniques}
    losses = [value for value in facts.losses if math.isfinite(value)]
    return {
        "goal": quoted(study.goal, 600),
        "metric": quoted(study.objective.metric, 100),
        "direction": study.objective.direction,
        "unit": quoted(study.objective.unit, 60),
        "base_model": quoted(study.base_model, 200),
        "method": quoted(study.method, 60),
        "command": quoted(study.launcher.shown, 600),
        "hardware": quoted(f"{len(facts.gpus) or 'no'} GPUs, {facts.slots} slots", 60),
        "parameters": _parameters(lab),
        "findings": [
            {"name": one.name, "finding": quoted(one.finding, 500), "symptoms": one.symptoms}
            for one in found.dimensions
            if one.name not in VOLATILE
        ],
        "cases": [] if brief else _cases(lab),
        "losses": [f"{value:.4g}" for value in losses[:: max(1, len(losses) // LOSSES)][: LOSSES + 2]],
        "symptoms": [(one, "" if brief else quoted(told, 200)) for one, told in lab.catalog.meta.symptoms.items()],
        "techniques": [(one, "" if brief else quoted(catalog[one], 80)) for one in _techniques(lab)],
    }


def _cases(lab: Lab) -> list[str]:
    """What the first baseline run answered worst, where the lab scores its predictions."""
    first = next((run for run in lab.ledger.runs(0, states=(RunState.REVIEWED,))), None)
    return shown_cases(lab, first, most=MOST_CASES, longest=LONGEST_CASE) if first else []


def _parameters(lab: Lab) -> list[dict[str, str]]:
    """The parameters an experiment may set first: of a hundred the locked ones say least."""
    study, space = lab.study, space_of(lab)
    bundled = {name for factor in space.values() for name in factor.parameters_set}
    told = []
    for name, value in sorted(study.parameters.items(), key=lambda item: item[0] in study.locked)[:MOST_PARAMETERS]:
        levels = ", ".join(str(one) for one in space[name].values) if name in space else ""
        state = "searched" if name in space or name in bundled else "locked" if name in study.locked else "free"
        shown = quoted(levels, 200) if levels else ""
        told.append({"name": quoted(name, 100), "value": quoted(str(value), 120), "state": state, "levels": shown})
    return told


def _techniques(lab: Lab) -> list[str]:
    """Ids a model may rank: those with a factor in the space, then what the catalog has for the method."""
    used = [factor.technique for factor in space_of(lab).values() if factor.technique]
    fitting = [one.id for one in lab.catalog.match(method=lab.study.method) if not one.locked]
    return list(dict.fromkeys([*used, *fitting]))[:MOST_TECHNIQUES]


def checked_advice(lab: Lab, said: AnalysisSaid, model: str) -> Advice:
    """What of an answer may be used, and what it said beyond that."""
    refused = [f"key {plain(key, 60)}: nobody asked for it" for key in unasked(said)]
    dimensions = _dimensions(lab, said, refused)
    ranking = _ranking(lab, said, refused)
    checked = check_levels(lab, said.factors)
    refused += checked.refused
    return Advice(
        model=plain(model, 100),
        dimensions=dimensions,
        ranking=ranking,
        factors=tuple(checked.factors),
        hints=tuple(checked.hints),
        refused=_bounded(refused),
    )


def _dimensions(lab: Lab, said: AnalysisSaid, refused: list[str]) -> tuple[Dimension, ...]:
    found: dict[str, Dimension] = {}
    room = MOST_SYMPTOMS
    for one in said.dimensions:
        if one.dimension not in DIMENSIONS or one.dimension in found:
            refused.append(f"dimension {plain(one.dimension, 60)}: is unknown or told twice")
            continue
        named = list(dict.fromkeys(one.symptoms))
        known = [symptom for symptom in named if symptom in lab.catalog.meta.symptoms]
        refused += [f"symptom {plain(name, 60)}: is not in the catalog" for name in named if name not in known]
        refused += [f"symptom {name}: more than {MOST_SYMPTOMS} symptoms" for name in known[room:]]
        symptoms, room = tuple(known[:room]), max(0, room - len(known))
        finding = plain(one.finding)
        if finding or symptoms:
            found[one.dimension] = Dimension(one.dimension, finding, symptoms)
    return tuple(found[name] for name in DIMENSIONS if name in found)


def _ranking(lab: Lab, said: AnalysisSaid, refused: list[str]) -> tuple[Advised, ...]:
    allowed = set(_techniques(lab))
    ranked: dict[str, Advised] = {}
    for one in said.ranking:
        if one.technique not in allowed:
            refused.append(f"technique {plain(one.technique, 60)}: is none of those listed")
        elif one.technique not in ranked and len(ranked) < MOST_RANKED:
            ranked[one.technique] = Advised(one.technique, plain(one.reason))
    return tuple(ranked.values())


def _bounded(refused: Iterable[str]) -> tuple[str, ...]:
    lines = list(refused)
    more = [f"and {len(lines) - MOST_REFUSED} more"] if len(lines) > MOST_REFUSED else []
    return (*lines[:MOST_REFUSED], *more)
