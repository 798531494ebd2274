"""A second study in the same repository starts from what the first one learnt, beside the first one's branches."""

from __future__ import annotations

from pathlib import Path

import yaml

from nightlab.graph.driver import run_lab
from nightlab.knowledge.records import StudyStatus, VerdictKind
from tests.agents.lab import new_lab, opened
from tests.task import commit_all, git, study_data

SMALL = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1}
SPACE = {
    "width": {"levels": [48, 64], "tier": 2},
    "lr": {"levels": [0.1, 0.01], "scale": "log", "tier": 2, "categorical": True},
}


def table(guide: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in guide.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_second_study_orders_its_trials_by_the_lessons_of_the_first(tmp_path: Path) -> None:
    with new_lab(tmp_path, search=SMALL, space=SPACE, budget={"runs": 14}) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        assert not lab.aside.start(lambda: None), "a lab that stays for answers asks no model any more"
        file = lab.study_file
        first = table(lab.paths.improve_guide.read_text())
        kept = [number for number, v in lab.ledger.verdicts().items() if v.kind is VerdictKind.KEEP]
        assert kept and lab.ledger.experiment(kept[0]).changed["lr"] == 0.01
        assert [row[2] for row in first] == ["`width`", "`lr`"] and first[1][4] == "`0.1`, `0.01`"

    again = study_data(study="second", search=SMALL, space=SPACE | {"color": {"levels": ["blue"], "tier": 2}})
    second = file.with_name("second.yaml")
    second.write_text(yaml.safe_dump(again, sort_keys=False))
    commit_all(file.parent, "a second study")
    before = set(git(file.parent, "branch", "--list", "experiment-*").split())
    with opened(second) as lab:
        lab.stop_requested = lambda: any(run.number == 1 and run.state != "planned" for run in lab.ledger.runs())
        assert run_lab(lab) is StudyStatus.STOPPED
        guide = lab.paths.improve_guide.read_text()
        assert "from study tiny" in guide
        rows = {row[2]: row for row in table(guide)}
        assert rows["`lr`"][4] == "`0.01`, `0.1`", "what was confirmed comes first"
        assert "lessons confirmed 1 of its values" in rows["`lr`"][6]
        assert "lessons found 1 of its values no better" in rows["`lr`"][6]
        assert list(rows)[-1] == "`color`", "what nothing is known of comes after what helped"
        branches = {experiment.branch for experiment in lab.ledger.experiments()}
        assert not branches & before
        assert "experiment-00-toy-pretrain-baseline-second" in branches
        lab.backend.cancel({job.key: Path(job.directory) for job in lab.ledger.jobs()})
