"""What is measured of a study reaches its report, its ranking and the preflight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.analysis import gather_facts
from nightlab.agents.curves import fit_symptoms, held_out_losses
from nightlab.agents.diagnosis import diagnose
from nightlab.agents.documents import analysis_report
from nightlab.agents.measures import _figures, measured_sizes, measures, preflight_measures
from nightlab.agents.preflight import Site
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.knowledge.catalog import load_catalog
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for
from nightlab.tools.metrics.base import RunFiles
from nightlab.worktrees.git import Git
from tests.agents.lab import new_lab
from tests.agents.test_diagnosis import FACTS, FLAT, falling, finding
from tests.task import make_repository, study_data

ROWS = [{"instruction": f"question {at} {at * 7919 % 1009}", "output": f"answer {at * 31}"} for at in range(40)]
DATA = {"data/train.json": json.dumps(ROWS), "data/eval.json": json.dumps(ROWS[:10])}
SECTION = {"train": "data/train.json", "eval": "data/eval.json"}
LORA = {
    "method": "sft-lora",
    "base_model": "some-7B",
    "parameters": {"cutoff_len": 2048, "mbs": 4, "gas": 4, "lora_rank": 8, "crash": "no", "seconds": 0, "steps": 1},
    "space": {"mbs": {"levels": [2, 64]}},
}


def site_of(folder: Path, **changes: Any) -> Site:
    file = make_repository(folder / "repo", **changes)
    for path, text in DATA.items():
        (file.parent / path).parent.mkdir(exist_ok=True)
        (file.parent / path).write_text(text)
    study = Study.model_validate(study_data(**changes))
    paths = StudyPaths(file.parent, study.study)
    return Site(study, file, paths, Git(file.parent), LocalBackend(study.backend), launcher_for(study), load_catalog())


def test_data_reach_the_report_and_its_symptoms(tmp_path: Path) -> None:
    with new_lab(tmp_path, extra=DATA, data=SECTION) as lab:
        facts = gather_facts(lab)
        diagnosis = diagnose(facts)
        text = analysis_report(lab, facts, diagnosis)
    assert {"data_dup", "data_small"} <= set(diagnosis.symptoms)
    assert "**Leakage: 10 of 10 (100 %) evaluation rows are training rows, prompt and answer.**" in text
    assert "## What was measured" in text
    assert "40 usable training rows are few" in text
    assert "`data_dup`: many exact or near duplicates" in text


def test_without_data_nothing_is_measured_and_the_report_says_how_to(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        facts = gather_facts(lab)
        text = analysis_report(lab, facts, diagnose(facts))
    assert facts.findings == ()
    assert "name them under `data`" in text
    assert "What was measured" not in text


def test_data_that_went_away_are_no_reason_to_stop(tmp_path: Path) -> None:
    study = Study.model_validate(study_data(data=SECTION))
    assert [one.text for one in measures(study, tmp_path)] == [
        "Not measured: data/train.json does not exist.",
    ]


def test_the_preflight_names_what_is_not_there_and_tells_what_is_loud(tmp_path: Path) -> None:
    faults, notes = preflight_measures(site_of(tmp_path, data=SECTION))
    assert faults == []
    assert [note for note in notes if note.startswith("Leakage: 10 of 10")]
    faults, _ = preflight_measures(site_of(tmp_path / "other", data={"train": "data/trian.json"}))
    assert str(faults[0]).endswith("study.yaml: data.train: data/trian.json does not exist (correct it)")


def test_data_are_measured_again_only_when_they_changed(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps(ROWS))
    study = Study.model_validate(study_data(data={"train": "train.json"}))
    first = measures(study, tmp_path)
    before = _figures.cache_info()
    assert measures(study, tmp_path) == first
    assert _figures.cache_info().hits == before.hits + 1
    file.write_text(json.dumps(ROWS[:7]))
    assert "7 training rows" in measures(study, tmp_path)[0].text


def test_batch_and_memory_of_a_study(tmp_path: Path) -> None:
    study = Study.model_validate(study_data(**LORA, locked=[], backend={"gpus": [0], "gpu_memory": "80GB"}))
    texts = [one.text for one in measured_sizes(study, tmp_path)]
    assert texts[0] == "Effective batch 16 = 1 × 4 × 4 (world size × per-device batch × accumulation)."
    assert texts[1].startswith("A run needs about ")
    assert "of the 75 GiB of a GPU; expect ±25 %" in texts[1]
    assert texts[2].startswith("With mbs 64 a run needs about ")
    assert "The nearest that fits: per-device batch" in texts[2]


def test_what_hardly_fits_is_a_note_and_what_cannot_is_a_fault(tmp_path: Path) -> None:
    tight = site_of(tmp_path / "a", **LORA, locked=[], backend={"gpus": [0], "gpu_memory": "16GiB"})
    faults, notes = preflight_measures(tight)
    assert faults == []
    assert "The nearest that fits" in notes[0]
    hopeless = site_of(tmp_path / "b", **LORA, locked=[], backend={"gpus": [0], "gpu_memory": "6GiB"})
    faults, _ = preflight_measures(hopeless)
    assert faults[0].key == "parameters.mbs"
    assert "cannot fit: it needs at least" in faults[0].message


@pytest.mark.parametrize("backend", [{}, {"gpus": [0]}])
def test_without_a_known_gpu_memory_is_not_guessed(tmp_path: Path, backend: dict[str, Any]) -> None:
    study = Study.model_validate(study_data(**LORA, locked=[], backend=backend))
    assert len(measured_sizes(study, tmp_path)) == 1


@pytest.mark.parametrize(
    ("losses", "held_out", "symptoms", "words"),
    [
        (falling(40), (3.0, 2.0), (), ""),
        (falling(40), (3.0, 1.5, 1.3), (), "against the training loss"),
        (falling(40), (3.0, 1.2, 1.9), ("overfit",), "lowest 1.2 at 2 of 3: it rises"),
        (falling(100), (3.0, 2.5, 2.4), ("overfit",), "above the training loss"),
        ((3.0, 2.99, 2.98, 2.97), (3.0, 2.99, 2.98), ("underfit",), "hardly fallen"),
    ],
)
def test_training_and_held_out_loss(
    losses: tuple[float, ...], held_out: tuple[float, ...], symptoms: tuple[str, ...], words: str
) -> None:
    text, found = fit_symptoms(losses, held_out)
    assert found == symptoms
    assert words in text


def test_the_held_out_loss_of_a_log(tmp_path: Path) -> None:
    out = tmp_path / "stdout.log"
    files = RunFiles(out, tmp_path / "stderr.log", tmp_path, tmp_path)
    study = Study.model_validate(study_data(objective={"metric": "acc", "direction": "maximize", "min_effect": 0.1}))
    out.write_text("".join(f"step {at} | loss: {5 - at} | eval_loss: {4 - at}\n" for at in range(3)))
    assert held_out_losses(study, files) == (4, 3, 2)
    out.write_text("step 1 | eval_loss: 4\n")
    assert held_out_losses(study, files) == ()


def test_curves_and_seeds_in_the_diagnosis() -> None:
    facts = replace(FACTS, losses=FLAT, held_out_losses=(3.0, 1.2, 2.9), min_effect=0.05)
    assert finding(facts, "Training method").symptoms == ("loss_plateau_high", "overfit")
    noisy = finding(replace(facts, baseline_values=(1.0, 1.2, 1.4)), "Baseline")
    assert noisy.symptoms == ("seed_variance",)
    assert "more than the 0.05 worth having" in noisy.finding
    assert finding(replace(facts, baseline_values=(1.0, 1.01)), "Baseline").symptoms == ()
