"""A plateau in the ledger is told in the analysis and turns the plan to the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nightlab.agents.analysis import analysis_agent, write_analysis_report
from nightlab.agents.context import Lab
from nightlab.agents.design import read_design, write_design
from nightlab.agents.history import history_of
from nightlab.agents.saturation import data_factors, plateau_findings
from nightlab.knowledge.records import Proposal
from nightlab.search.engine import propose
from tests.agents.lab import executed, new_lab, planned
from tests.task import study_data

PARAMETERS = {
    **study_data()["parameters"],
    "a": 1,
    "b": 1,
    "method": "none",
    "corpus_data": "all",
    "mixed_precision": 0,
}
SPACE: dict[str, Any] = {
    "a": {"levels": [2], "tier": 1},
    "b": {"levels": [2], "tier": 1},
    "color": {"levels": ["blue"], "tier": 1},
    "mixed_precision": {"levels": [1], "tier": 1},
    "method": {"levels": ["exact"], "technique": "dedup"},
    "corpus_data": {"levels": ["clean"], "tier": 6},
}
CHANGES: list[dict[str, Any]] = [{"a": 2}, {"b": 2}, {"color": "blue"}, {"mixed_precision": 1}]


def run(lab: Lab, *changes: dict[str, Any]) -> None:
    for changed in changes:
        executed(lab, planned(lab, changed))


def begun(lab: Lab) -> None:
    for seed in range(3):
        executed(lab, planned(lab, {}, seed=seed))
    analysis_agent.invoke({"symptoms": []}, context=lab)


def proposals_of(lab: Lab) -> list[Proposal]:
    history = history_of(lab.ledger, runs_left=20)
    return propose(lab.study, replace(history, data=data_factors(lab, history)), 0)


def test_saturated_tuning_is_told_and_the_data_come_next(tmp_path: Path) -> None:
    with new_lab(tmp_path, parameters=PARAMETERS, space=SPACE) as lab:
        begun(lab)
        assert data_factors(lab, history_of(lab.ledger)) == {"method", "corpus_data"}
        run(lab, *CHANGES[:-1])
        assert plateau_findings(lab) == (), "a factor of the first tiers was never tried"
        run(lab, CHANGES[-1])
        (finding,) = plateau_findings(lab)
        assert finding.symptoms == ("plateau_after_tuning",)
        assert "What is left of the data (corpus_data, method)" in finding.text
        first, second, *_ = proposals_of(lab)
        assert (first.changed["method"], first.technique) == ("exact", "dedup")
        assert second.changed["corpus_data"] == "clean"
        assert "against plateau_after_tuning" in first.reason
        write_analysis_report(lab)
        report = lab.paths.analysis_report.read_text()
        assert "Tuning has reached a plateau" in report and "`plateau_after_tuning`: three or more" in report
        run(lab, first.changed, second.changed)
        assert all("plateau" not in one.reason for one in proposals_of(lab)), "nothing of the data is left"
        assert "Of the data corpus_data, method were tried, too." in plateau_findings(lab)[0].text
        without_data(lab)


def without_data(lab: Lab) -> None:
    design = read_design(lab.ledger.study_row().design)
    tuning = tuple(factor for factor in design.factors if factor.name not in ("method", "corpus_data"))
    lab.ledger.update_study(design=write_design(replace(design, factors=tuning)))
    (finding,) = plateau_findings(lab)
    assert finding.text.endswith("their quality, mixture and amount are what to look at next.")
