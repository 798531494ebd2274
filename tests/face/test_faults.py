"""Bad input: clear lines on stderr, exit status 2, nothing changed on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.face.calling import call, state_of
from tests.task import commit_all, git, make_repository, study_data, write_study

LAUNCHER = study_data()["launcher"]


def plain(folder: Path) -> Path:
    return make_repository(folder).parent


def changed(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: make_repository(folder, **changes).parent


def with_script(text: str, **changes: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        make_repository(folder, **changes)
        (folder / "train.py").write_text(text)
        commit_all(folder, "script")
        return folder

    return make


def with_study(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        make_repository(folder)
        (folder / "study.yaml").write_text(text)
        return folder

    return make


def no_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return write_study(folder).parent


def no_commit(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    return write_study(folder).parent


def no_study(folder: Path) -> Path:
    make_repository(folder)
    (folder / "study.yaml").unlink()
    return folder


def dirty(folder: Path) -> Path:
    make_repository(folder)
    (folder / "train.py").write_text("# at work\n")
    (folder / "notes.txt").write_text("at work\n")
    return folder


BAD = [
    pytest.param(no_repository, ["not inside a git repository", "git init"], id="no repository"),
    pytest.param(no_commit, ["no commit yet", "git commit"], id="no commit"),
    pytest.param(no_study, ["study.yaml: does not exist", "nightlab init"], id="no study file"),
    pytest.param(with_study("study: [\n"), ["study.yaml:"], id="not YAML"),
    pytest.param(with_study("just text\n"), ["study.yaml"], id="no keys"),
    pytest.param(dirty, ["uncommitted changes: train.py, notes.txt", "--snapshot"], id="dirty tree"),
    pytest.param(changed(budgets={"runs": 3}), ["study.yaml:", "budgets", "budget"], id="wrong key"),
    pytest.param(changed(method="SFT LoRA"), ["study.yaml:", "method"], id="wrong value"),
    pytest.param(changed(frozen=["eval/"]), ["study.yaml: frozen: eval/ is not in the last commit"], id="frozen path"),
    pytest.param(changed(inputs=["data"]), ["study.yaml: inputs: ", "does not exist"], id="input missing"),
    pytest.param(
        changed(catalog={"include": ["lora_rnak"]}),
        ["catalog.include.0", "did you mean lora_rank"],
        id="unknown technique",
    ),
    pytest.param(changed(budget={"runs": 5}), ["budget.runs: 5 runs cannot cover", "the least is 10"], id="few runs"),
    pytest.param(
        changed(budget={"until": "2020-01-01T07:30"}), ["budget.until: 2020-01-01T07:30 is past"], id="past deadline"
    ),
    pytest.param(
        with_script("print('loss = 3')\nprint('accuracy 1')\n"),
        ["metrics.val_loss", "no value", "the last line of the output was 'accuracy 1'", "`val_loss: <number>`"],
        id="metric absent",
    ),
    pytest.param(
        with_script("print('val_loss: nan')\nprint('memory_mb: 1')\n"), ["metrics.val_loss", "nan"], id="metric nan"
    ),
    pytest.param(
        with_script("print('val_loss: 1.5')\n"), ["metrics.memory_mb", "no value"], id="guardrail's metric absent"
    ),
    pytest.param(with_script("pass\n"), ["metrics.val_loss", "printed nothing"], id="silent command"),
    pytest.param(
        with_script("raise SystemExit('no GPU here')\n"),
        ["launcher.command", "exit status 1: no GPU here"],
        id="command fails",
    ),
    pytest.param(
        changed(launcher=LAUNCHER | {"command": "tarin --params {params_file}"}),
        ["launcher.command", "did not start: cannot start tarin: No such file"],
        id="command not found",
    ),
    pytest.param(
        changed(launcher=LAUNCHER | {"command": "{python} train.py {lerning_rate}"}),
        ["launcher.command", "lerning_rate"],
        id="unknown placeholder",
    ),
    pytest.param(
        with_script("import time\ntime.sleep(60)\n", launcher=LAUNCHER | {"dry_run_timeout": 0.3}),
        ["launcher.dry_run", "still going after 0.3 s"],
        id="dry run hangs",
    ),
]


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("make", "said"), BAD)
def test_bad_input_is_named_and_changes_nothing(
    make: Callable[[Path], Path], said: list[str], command: str, tmp_path: Path
) -> None:
    root = make(tmp_path / "repo")
    before = state_of(root)
    called = call(root, command)
    assert called.status == 2
    assert called.err and all(line.startswith(("nightlab: ", "note: ")) for line in called.err.splitlines())
    for words in said:
        assert words in called.err
    assert state_of(root) == before


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", frozen=["eval/"], inputs=["data"], budget={"runs": 5}).parent
    called = call(root, "check")
    assert called.status == 2
    for key in ("frozen", "inputs", "budget.runs"):
        assert f"nightlab: study.yaml: {key}: " in called.err


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_snapshot_that_comes_to_nothing_is_forgotten(command: str, tmp_path: Path) -> None:
    root = dirty(tmp_path / "repo")
    before = state_of(root)
    called = call(root, command, "--snapshot")
    assert called.status == 2 and "metrics.val_loss" in called.err
    assert state_of(root) == before


NOT_BEGUN = [
    ["status"],
    ["status", "--json"],
    ["results"],
    ["show", "1"],
    ["logs", "1"],
    ["diff", "1"],
    ["report"],
    ["stop"],
    ["answer", "plan", "yes"],
    ["gc"],
]


@pytest.mark.parametrize("words", NOT_BEGUN, ids=" ".join)
def test_a_study_that_has_not_begun(words: list[str], tmp_path: Path) -> None:
    root = plain(tmp_path / "repo")
    before = state_of(root)
    called = call(root, *words)
    assert called.status == 2 and called.out == ""
    assert called.err == "nightlab: study.yaml: the study tiny has not begun (start it with `nightlab run`)\n"
    assert state_of(root) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "99"], "study.yaml: has no experiment 99 (they go from 00 to "),
        (["logs", "99"], "study.yaml: has no experiment 99"),
        (["diff", "99"], "study.yaml: has no experiment 99"),
        (["logs", "1", "--seed", "77"], "experiment 01 has no run with seed 77 (it ran with 0"),
        (["answer", "lunch", "yes"], "study.yaml: has no question lunch (nothing has been asked yet)"),
        (["catalog", "show", "lora-rank"], "did you mean lora_rank"),
        (["catalog", "list", "--method", "nope"], "no technique is for the method 'nope'"),
        (["catalog", "match", "--symptom", "overfitting"], "did you mean overfit"),
        (["lessons", "list", "--file", "nope.jsonl"], "nope.jsonl: does not exist"),
        (["init"], "study.yaml: is there already"),
        (["init", "nowhere/study.yaml"], "nowhere: the folder does not exist"),
        (["init", "other.yaml", "--template", "nope"], "is no template (choose one of script, karpathy, "),
        (["status", "--study", "."], ".: is a folder, not a study file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_finished_study_asked_for_what_it_has_not(words: list[str], said: str, finished_night: Path) -> None:
    before = state_of(finished_night.parent)
    called = call(finished_night.parent, *words)
    assert called.status == 2 and called.out == ""
    assert called.err.startswith("nightlab: ") and said in called.err
    assert state_of(finished_night.parent) == before


@pytest.mark.parametrize("words", [["show", "one"], ["frobnicate"], ["status", "--nope"], ["logs", "1", "-n", "0"]])
def test_a_call_that_is_none_shows_how_it_is_called(words: list[str], tmp_path: Path) -> None:
    called = call(tmp_path, *words)
    assert called.status == 2 and "Usage: nightlab" in called.err and "Error: " in called.err


def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = state_of(tmp_path)
    for folder in ("mine", "file"):
        called = call(tmp_path, "demo", "--dir", folder)
        assert called.status == 2
        assert called.err == f"nightlab: {folder}: exists and is not the demo (choose another folder with --dir)\n"
    assert state_of(tmp_path) == before


def test_a_second_study_takes_names_of_its_own_beside_the_first(finished_night: Path, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    shutil.copytree(finished_night.parent, root)
    (root / "second.yaml").write_text(yaml.safe_dump(study_data(study="second"), sort_keys=False))
    commit_all(root, "second study")
    called = call(root, "check", "second.yaml")
    assert (called.status, called.err) == (0, "")
