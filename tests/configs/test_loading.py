"""Overrides, blanks and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.loading import LoadedStudy, load_study
from nightlab.configs.study import Study
from nightlab.errors import ConfigError
from tests.configs.sample import SAMPLE, changed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(text: str) -> LoadedStudy:
    file = Path("study.yaml")
    file.write_text(text, encoding="utf-8")
    return load_study(file)


def warnings(*replacements: tuple[str, str]) -> list[str]:
    return [str(warning).removeprefix("study.yaml:") for warning in loaded(changed(*replacements)).warnings]


def test_scientific_numbers_are_numbers_everywhere(here: Path) -> None:
    study = loaded(SAMPLE).study
    assert (study.parameters["lr"], study.space["lr"].levels, study.objective.min_effect) == (
        0.001,
        [0.0003, 0.003],
        0.001,
    )


def test_clock_times_and_durations_are_not_base_sixty(here: Path) -> None:
    text = changed(("runs: 20", "until: 10:30\n  duration: 1:30\nbackend: {timeout: 2h}"))
    study = loaded(text).study
    assert (study.budget.until, study.budget.duration_seconds, study.backend.timeout_seconds) == ("10:30", 90, 7200)


def test_a_key_without_a_value_counts_as_not_written(here: Path) -> None:
    study = loaded(changed(("[steps]", ""), ("frozen: [prepare.py]", "frozen:\ncatalog:\nbackend:\n  gpus:"))).study
    assert (study.locked, study.frozen, study.backend.gpus, study.catalog.match) == ([], [], [], False)


def test_windows_line_ends_and_a_byte_order_mark_are_read(here: Path) -> None:
    Path("study.yaml").write_bytes(b"\xef\xbb\xbf" + SAMPLE.replace("\n", "\r\n").encode())
    assert load_study(Path("study.yaml")).study == loaded(SAMPLE).study


def test_overrides_are_put_over_the_file(here: Path) -> None:
    Path("study.yaml").write_text(changed(("  steps: 100", "  steps: 100\n  model.width: 64")), encoding="utf-8")
    values = {
        "budget.runs": 5,
        "backend.slots": 2,
        "parameters.model.width": 128,
        "space.lr.levels": [0.1],
        "goal": "x",
    }
    study = load_study(Path("study.yaml"), values).study
    assert (study.budget.runs, study.backend.slots, study.goal) == (5, 2, "x")
    assert study.parameters["model.width"] == 128
    assert study.space["lr"].levels == [0.1]


def test_a_fault_of_an_override_names_the_override_and_no_line(here: Path) -> None:
    Path("study.yaml").write_text(SAMPLE, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_study(Path("study.yaml"), {"budget.runs": 0, "search.sede": 3, "colour.red": 1})
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("budget.runs: 0 must be at least 1, given as override budget.runs (")
    assert lines[1].startswith("colour: unknown key, given as override colour.red (")
    assert lines[2] == "search.sede: unknown key, given as override search.sede (did you mean `seed`?)"


def test_the_model_alone_names_each_inconsistency_at_its_place() -> None:
    data = {
        "study": "x",
        "scenario": "x",
        "method": "x",
        "base_model": "x",
        "objective": {"metric": "loss", "direction": "minimize", "min_effect": 0.1},
        "parameters": {"lr": 1},
        "space": {"depth": {"levels": [1]}, "lr": {"levels": [2]}},
        "locked": ["lr", "width"],
        "launcher": {"command": "train"},
        "budget": {"runs": 3},
    }
    with pytest.raises(ValueError, match="3 validation errors") as raised:
        Study.model_validate(data)
    text = str(raised.value)
    assert all(place in text for place in ("space.depth\n", "space.lr\n", "locked.1\n"))


@pytest.mark.parametrize(
    ("replacement", "warning"),
    [
        (("min_effect: 1e-3", "min_effect: 0"), "8: objective.min_effect: 0 counts any certain improvement as a win"),
        (("  plausible: [0.5, 8]\n", ""), "5: objective: has no plausible range"),
        (("[prepare.py]", "[]"), "17: frozen: is empty"),
        (("[3e-4, 3e-3]", "[3e-4, 0.001]"), "15: space.lr.levels[1]: 0.001 is the baseline's own value (remove it)"),
        (("[3e-4, 3e-3]", "[3e-4, 0.0003]"), "15: space.lr.levels[1]: 0.0003 is listed twice (remove one)"),
        (("scale: log", "technique: lr-sweep, tier: 2"), "15: space.lr.tier: 2 replaces the tier of lr-sweep"),
        (("  lr: {levels: [3e-4, 3e-3], scale: log}", "  {}"), "14: space: there is nothing to try"),
        (("optimizer: adam", "optimizer: '1e-3'"), "12: parameters.optimizer: '1e-3' is text, not a number"),
        (("optimizer: adam", "optimizer: 007"), "12: parameters.optimizer: '007' is text, not a number"),
        (("optimizer: adam", "optimizer: 1_000"), "12: parameters.optimizer: '1_000' is text, not a number"),
        (("optimizer: adam", "optimizer: 0,9"), "12: parameters.optimizer: '0,9' is text, not a number"),
        (("optimizer: adam", "optimizer: Off"), "12: parameters.optimizer: 'Off' is text, not true or false"),
        ((" --seed {seed}", ""), "19: launcher.command: does not hand over {seed}"),
        (("[3e-4, 3e-3], scale: log", "[small, 1e-2]"), "15: space.lr.levels: not all are numbers like the baseline's"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(replacement: tuple[str, str], warning: str, here: Path) -> None:
    (found,) = warnings(replacement)
    assert found.startswith(warning)


@pytest.mark.parametrize("value", ["'off'", "'007'", "adamw", "v1.2.3", "/dev/null", "true", "1e-3"])
def test_what_is_meant_gives_no_warning(value: str, here: Path) -> None:
    assert warnings(("optimizer: adam", f"optimizer: {value}")) == []


def test_the_shell_may_use_braces_of_its_own(here: Path) -> None:
    assert warnings(('"{python} train.py', '"bash run.sh ${HOME} {{x}} {lr}')) == []
