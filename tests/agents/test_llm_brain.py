"""The analysis with a language model: what it adds, what is refused, and that nothing it says decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import Fault, ScriptedModel
from nightlab.agents.analysis import analysis_agent, gather_facts, write_analysis_report
from nightlab.agents.brain import Advice, Advised, Diagnosis, Facts
from nightlab.agents.context import Lab
from nightlab.agents.design import Design, read_design
from nightlab.agents.diagnosis import diagnose
from nightlab.agents.factors import ADVICE_BONUS, ranked
from nightlab.agents.llm_brain import BYTES_A_TOKEN, LlmBrain, analysis_prompt
from nightlab.agents.prompts import Prompt
from nightlab.knowledge.catalog import load_catalog, prior_effect
from nightlab.knowledge.records import Phase, Verdict, VerdictKind
from tests.agents.lab import executed, new_lab, opened, planned

ANSWER: dict[str, Any] = {
    "dimensions": [
        {"dimension": "Training method", "finding": "The rate is far too small.", "symptoms": ["underfit"]},
        {"dimension": "Data quality", "finding": "Rows repeat.", "symptoms": ["data_dup", "made_up"]},
        {"dimension": "Astrology", "finding": "Mercury is in retrograde.", "symptoms": []},
    ],
    "ranking": [
        {"technique": "weight_decay", "reason": "It overfits."},
        {"technique": "alchemy", "reason": "It makes gold."},
    ],
    "factors": [
        {"parameter": "dropout", "levels": [0.1], "scale": "linear", "reason": "train.py has it."},
        {"parameter": "steps", "levels": [1000], "scale": "linear", "reason": "Longer is better."},
        {"parameter": "label_smoothing", "levels": [0.1], "scale": "linear", "reason": "Not there yet."},
    ],
}
PARAMETERS: dict[str, Any] = {
    "lr": 0.001,
    "width": 32,
    "color": "red",
    "crash": "no",
    "seconds": 0,
    "steps": 10,
    "dropout": 0.0,
    "weight_decay": 0.0,
}


@contextmanager
def asked_lab(
    folder: Path, answer: Callable[[dict[str, Any]], Any], **changes: Any
) -> Iterator[tuple[Lab, ScriptedModel]]:
    """A lab whose model gives `answer`, its baseline measured once."""
    with ScriptedModel(answer) as model:
        brain = {"kind": "llm", "endpoints": [{"model": "scripted", "base_url": model.base_url}]}
        with new_lab(folder, brain=brain, parameters=PARAMETERS, **changes) as lab:
            executed(lab, planned(lab, {}))
            yield lab, model


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, ScriptedModel]]:
    """After the analysis; the tests that use it only look."""
    with asked_lab(tmp_path_factory.mktemp("analysed"), lambda _: ANSWER) as (lab, model):
        analysis_agent.invoke({"symptoms": []}, context=lab)
        yield lab, model


def design_in(lab: Lab) -> Design:
    return read_design(lab.ledger.study_row().design)


def diagnosis(lab: Lab, facts: Facts) -> Diagnosis:
    assert isinstance(lab.brain, LlmBrain)
    return lab.brain.diagnose(facts)


def test_its_findings_stand_beside_those_of_the_rules(analysed: tuple[Lab, ScriptedModel]) -> None:
    lab, _ = analysed
    found = diagnosis(lab, gather_facts(lab))
    assert found.dimensions == diagnose(gather_facts(lab)).dimensions
    assert found.advice is not None
    assert [one.name for one in found.advice.dimensions] == ["Data quality", "Training method"]
    assert {"data_dup", "underfit"} <= set(found.symptoms) and "made_up" not in found.symptoms


def test_what_it_may_not_say_is_refused_and_told(analysed: tuple[Lab, ScriptedModel]) -> None:
    advice = design_in(analysed[0]).advice
    assert advice is not None
    assert [one.technique for one in advice.ranking] == ["weight_decay"]
    assert [one.parameter for one in advice.factors] == ["dropout"]
    assert [one.technique for one in advice.hints] == ["label_smoothing"]
    subjects = sorted(line.split(":")[0].replace("\\", "") for line in advice.refused)
    assert subjects == ["dimension Astrology", "factor steps", "symptom made_up", "technique alchemy"]


def test_the_documents_say_what_is_the_models(analysed: tuple[Lab, ScriptedModel]) -> None:
    lab, _ = analysed
    report, guide = lab.paths.analysis_report.read_text(), lab.paths.improve_guide.read_text()
    assert "The model `scripted` read the repository" in report
    assert "| Training method | The rate is far too small. | `underfit` |" in report
    assert "1. `weight_decay`: It overfits." in report and "technique alchemy" in report
    assert "## What the model scripted proposes" in guide and "- `dropout` = `0.1`: train.py has it." in guide
    assert "`label_smoothing` is no parameter of this study" in guide


def test_proposals_alone_change_nothing_of_the_plan(analysed: tuple[Lab, ScriptedModel]) -> None:
    lab, _ = analysed
    assert "dropout" not in [factor.name for factor in design_in(lab).factors]


def test_it_is_asked_once_also_after_a_kill_and_at_the_end(analysed: tuple[Lab, ScriptedModel]) -> None:
    lab, model = analysed
    assert len(model.requests) == 1
    with opened(lab.study_file) as again:
        found = diagnosis(again, gather_facts(again))
        executed(again, planned(again, {}, seed=1))
        write_analysis_report(again)
        assert found.advice == design_in(again).advice
    assert len(model.requests) == 1
    report = lab.paths.analysis_report.read_text()
    assert "over 2 runs" in report and "The rate is far too small." in report
    verdict = Verdict(number=1, kind=VerdictKind.DISCARD, basis=Phase.SCREEN, label="worse", reason="it is")
    assert lab.brain.explain("lr", verdict) == "lr: worse. it is" and len(model.requests) == 1


def test_its_ranking_moves_a_technique_within_its_tier_only(tmp_path: Path) -> None:
    # Of those with several parameters no value is the usual one for a factor of another name.
    techniques = [one for one in load_catalog().techniques if not one.locked and len(one.params) > 1]
    usable = [one for one in techniques if one.tier == 2]
    first, second = next((a, b) for a in usable for b in usable if a.id != b.id and prior_effect(a) == prior_effect(b))
    space = {
        "lr": {"levels": [0.01], "technique": first.id},
        "width": {"levels": [64], "technique": second.id},
        "dropout": {"levels": [0.1], "technique": "lr"},
    }
    with new_lab(tmp_path, parameters=PARAMETERS, space=space) as lab:
        unadvised = {factor.technique: factor.score for factor in ranked(lab, [], [])}
        for chosen, order in ((first, ["lr", "width"]), (second, ["width", "lr"])):
            advice = Advice("m", ranking=(Advised(chosen.id, "r"),))
            factors = ranked(lab, [], [], advice=advice)
            assert [factor.name for factor in factors] == ["dropout", *order]
            assert factors[1].reason.endswith("ranked by m") and "ranked" not in factors[2].reason
            assert factors[1].score - unadvised[chosen.id] == pytest.approx(ADVICE_BONUS)


@pytest.mark.parametrize(
    "answer",
    [Fault("status", 401), Fault("refusal"), Fault("garbage"), {"dimensions": "none"}, "I would rather not."],
)
def test_without_a_usable_answer_the_rules_decide_and_the_documents_say_so(tmp_path: Path, answer: Any) -> None:
    with asked_lab(tmp_path, lambda _: answer) as (lab, _):
        analysis_agent.invoke({"symptoms": []}, context=lab)
        design = design_in(lab)
        assert design.advice is not None and design.advice.failure and not design.advice.model
        assert [factor.name for factor in design.factors] == [factor.name for factor in ranked(lab, [], [])]
        assert "so the rules decided alone" in lab.paths.analysis_report.read_text()
        assert [event for event in lab.ledger.events() if event.kind == "fallback"]


def test_a_budget_that_does_not_bear_the_call_leaves_it_to_the_rules(tmp_path: Path) -> None:
    budget = {"runs": 30, "llm_tokens": 4500}
    with asked_lab(tmp_path, lambda _: ANSWER, budget=budget) as (lab, model):
        found = diagnosis(lab, gather_facts(lab))
        assert found.advice is not None and "budget" in found.advice.failure
        assert not model.requests


def prompt_of(lab: Lab) -> Prompt:
    facts = gather_facts(lab)
    return analysis_prompt(lab, facts, diagnose(facts))


def test_the_prompt_is_the_same_on_another_machine_at_another_time(tmp_path: Path) -> None:
    prompts = []
    for place in ("here", "there/further"):
        with new_lab(tmp_path / place) as lab:
            executed(lab, planned(lab, {}))
            prompts.append(prompt_of(lab))
            later: dict[str, Any] = {
                "baseline_wall_seconds": 99.0,
                "baseline_values": (2.0, 2.5),
                "cores": 64,
                "memory_bytes": 2**40,
            }
            facts = replace(gather_facts(lab), **later)
            prompts.append(analysis_prompt(lab, facts, diagnose(facts)))
            assert str(tmp_path) not in prompts[-1].text and lab.base_commit[:7] not in prompts[-1].text
    assert len({prompt.digest for prompt in prompts}) == 1


@pytest.mark.parametrize("tokens", [2_000, 12_000])
def test_the_prompt_keeps_within_its_bound(tmp_path: Path, tokens: int) -> None:
    files = {f"part_{index:03d}.py": "x = 1\n" * 2000 for index in range(40)}
    many = {f"p{index}": 1.0 for index in range(200)}
    changes: dict[str, Any] = {"brain": {"max_prompt_tokens": tokens}, "parameters": {**PARAMETERS, **many}}
    with new_lab(tmp_path, extra=files, **changes) as lab:
        size = len(prompt_of(lab).text.encode())
    assert size <= max(tokens, 4_000) * BYTES_A_TOKEN
    assert tokens < 12_000 or size > 0.8 * tokens * BYTES_A_TOKEN


def test_the_schema_names_the_ids_there_are(analysed: tuple[Lab, ScriptedModel]) -> None:
    asked = json.dumps(analysed[1].requests[0].body)
    assert '"enum"' in asked and "loss_plateau_high" in asked and '"additionalProperties": false' in asked
