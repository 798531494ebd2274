"""The analysis with a model beside the night: no slot waits for it, and what it says is taken up when it comes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.scripted_model import ScriptedModel
from nightlab.agents.brain import Advice
from nightlab.agents.design import read_design
from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyStatus
from nightlab.night import run_night
from tests.task import make_repository

FINDING = {"dimension": "Training method", "finding": "The rate is far too small.", "symptoms": ["underfit"]}
PATIENCE_SECONDS = 50.0


class LateModel:
    """Answers the analysis only once something new was measured."""

    def __init__(self) -> None:
        self.ledger = Path()
        self.asked = 0

    def __call__(self, _request: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up and not self._has_measured():
            time.sleep(0.05)
        return {"dimensions": [FINDING], "ranking": [], "factors": []}

    def _has_measured(self) -> bool:
        with Ledger.open_to_read(self.ledger) as ledger:
            return any(experiment.number for experiment, _, _ in ledger.measured_runs())


def night(folder: Path, base_url: str, model: LateModel | None = None) -> tuple[Path, Advice]:
    """A night to its end; the ledger's file and the design's advice."""
    brain = {"kind": "llm", "review": "nothing", "endpoints": [{"model": "scripted", "base_url": base_url}]}
    search = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_seeds_most": 2, "confirm_candidates": 1}
    file = make_repository(folder / "repo", brain=brain, search=search, budget={"runs": 9})
    place = locate(load_study(file))
    if model is not None:
        model.ledger = place.paths.ledger
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open_to_read(place.paths.ledger) as ledger:
        advice = read_design(ledger.study_row().design).advice
    assert advice is not None
    return place.paths.ledger, advice


def test_runs_go_on_while_the_model_thinks_and_its_answer_is_taken_up(tmp_path: Path) -> None:
    late = LateModel()
    with ScriptedModel(late) as server:
        path, advice = night(tmp_path, server.base_url, late)
    assert (advice.model, late.asked) == ("scripted", 1)
    with Ledger.open_to_read(path) as ledger:
        told = [(event.kind, event.number, event.text) for event in ledger.events()]
    taken = next(place for place, one in enumerate(told) if "after what scripted said" in one[2])
    assert any(kind == "measured" and number for kind, number, _ in told[:taken])
    assert "The rate is far too small." in (path.parent / "analysis_report.md").read_text()


def test_where_nobody_answers_the_rules_design_stands_and_says_why(tmp_path: Path) -> None:
    with ScriptedModel(LateModel()) as server:
        address = server.base_url
    path, advice = night(tmp_path, address)
    assert advice.failure and not advice.model
    assert "so the rules decided alone" in (path.parent / "analysis_report.md").read_text()
