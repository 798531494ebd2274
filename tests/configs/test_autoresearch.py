"""A study of a repository in the shape of autoresearch: what is found, what is passed, what a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.autoresearch import read_autoresearch
from nightlab.configs.init import write_template
from nightlab.configs.loading import load_study
from nightlab.configs.study import Study

PREPARE = '''\
"""Fixed."""
TIME_BUDGET = 300
EVAL_TOKENS = 40 * 524288


def evaluate_bpb(model):
    return 1.0


def make_dataloader(split):
    yield split
'''
TRAIN = '''\
"""One file, one GPU."""
import torch
from prepare import TIME_BUDGET, evaluate_bpb, make_dataloader

ASPECT_RATIO = 64       # width by depth
WINDOW_PATTERN = "SSSL"
TOTAL_BATCH_SIZE = 2**19
MATRIX_LR = 0.04
ADAM_BETAS = (0.8, 0.95)
DEPTH = 8

torch.manual_seed(42)
PEAK_FLOPS = 989.5e12
loader = make_dataloader("train")
val_bpb = evaluate_bpb(None)
print("---")
print(f"val_bpb:          {val_bpb:.6f}")
print(f"training_seconds: {300.1:.1f}")
print(f"peak_vram_mb:     {45060.2:.1f}")
'''
READS = """
import json, os, pathlib
if pathlib.Path("nightlab_params.json").exists():
    globals().update(json.loads(pathlib.Path("nightlab_params.json").read_text()))

"""


def repository(folder: Path, *, reads: bool = False) -> Path:
    train = TRAIN
    if reads:
        train = train.replace("\ntorch.manual_seed(42)", READS + 'torch.manual_seed(int(os.environ.get("SEED", "42")))')
    (folder / "train.py").write_text(train, encoding="utf-8")
    (folder / "prepare.py").write_text(PREPARE, encoding="utf-8")
    (folder / "program.md").write_text("Lower val_bpb.\n", encoding="utf-8")
    return folder


def study_of(folder: Path) -> Study:
    return load_study(write_template(folder, kind="karpathy", name="x")).study


def test_as_it_is_only_the_code_is_to_be_changed(tmp_path: Path) -> None:
    study = study_of(repository(tmp_path))
    assert (study.objective.metric, study.objective.direction) == ("val_bpb", "minimize")
    assert (study.parameters, study.space, study.locked) == ({}, {}, [])
    assert (study.code.mutable, study.frozen) == (["train.py"], ["prepare.py"])
    assert (study.code.required_calls, study.code.instructions) == (["evaluate_bpb"], "program.md")
    assert not study.code.short_run and study.brain.kind == "llm" and not study.brain.endpoints
    assert {guard.metric: guard.max for guard in study.guardrails} == {"peak_vram_mb": 80000, "training_seconds": 330}
    assert study.report.tsv
    assert study.launcher.command == "env SEED={seed} {python} train.py"


def test_constants_above_the_lines_that_read_them_are_the_baseline(tmp_path: Path) -> None:
    study = study_of(repository(tmp_path, reads=True))
    assert study.parameters == {
        "ASPECT_RATIO": 64,
        "WINDOW_PATTERN": "SSSL",
        "TOTAL_BATCH_SIZE": 524288,
        "MATRIX_LR": 0.04,
        "DEPTH": 8,
        "TIME_BUDGET": 300,
    }
    assert study.locked == ["TIME_BUDGET"] and study.launcher.dry_run == {"TIME_BUDGET": 10}
    assert study.space["TOTAL_BATCH_SIZE"].levels == [262144, 1048576]
    assert study.space["MATRIX_LR"].levels == [0.012, 0.12]


def test_its_own_environment_is_linked_and_used(tmp_path: Path) -> None:
    python = repository(tmp_path) / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    study = study_of(tmp_path)
    assert study.inputs == [".venv"] and study.launcher.command == "env SEED={seed} .venv/bin/python train.py"


def test_without_a_program_no_instructions_are_named(tmp_path: Path) -> None:
    (repository(tmp_path) / "program.md").unlink()
    assert study_of(tmp_path).code.instructions is None


@pytest.mark.parametrize(
    ("reads", "expected"),
    [(False, ["does not read SEED", "keeps its constants"]), (True, [])],
)
def test_a_person_is_told_what_the_script_lacks(reads: bool, expected: list[str], tmp_path: Path) -> None:
    notes = read_autoresearch(repository(tmp_path, reads=reads)).notes
    assert len(notes) == len(expected) and all(word in note for word, note in zip(expected, notes, strict=True))


def test_an_empty_folder_and_a_script_without_its_frozen_half(tmp_path: Path) -> None:
    assert ["the study is an example" in note for note in read_autoresearch(tmp_path).notes] == [True]
    (tmp_path / "train.py").write_text("SEED = 1\n", encoding="utf-8")
    assert "there is no prepare.py" in read_autoresearch(tmp_path).notes[0]
