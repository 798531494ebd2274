"""Factors, bundles, conditions and constraints in the study file: what they mean, and each mistake in one line."""

# The lines are whole on purpose.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.levels import steps_of
from nightlab.configs.loading import LoadedStudy, load_study
from nightlab.configs.study import Factor
from nightlab.errors import ConfigError
from tests.configs.sample import SAMPLE, changed

ROOT = Path(__file__).parents[2]
LR = "  lr: {levels: [3e-4, 3e-3], scale: log}"
BUNDLE = f"{LR}\n  recipe: {{settings: {{long: {{schedule: cosine, warmup: 0.1}}, short: {{schedule: cosine}}}}}}"
MORE = ("  steps: 100", "  steps: 100\n  schedule: linear\n  warmup: 0.0")


def load(folder: Path, *replacements: tuple[str, str]) -> LoadedStudy:
    (folder / "study.yaml").write_text(changed(*replacements), encoding="utf-8")
    return load_study(folder / "study.yaml")


def faults(folder: Path, *replacements: tuple[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(folder, *replacements)
    return [str(fault).removeprefix(f"{folder}/study.yaml:") for fault in raised.value.faults]


def with_bundle(bundle: str = BUNDLE, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [MORE, (LR, bundle), *more]


def forbid(text: str) -> tuple[str, str]:
    return "locked: [steps]", f"forbid: {text}\nlocked: [steps]"


def test_a_bundle_is_one_variable_and_fills_in_what_a_setting_leaves_out(tmp_path: Path) -> None:
    study = load(tmp_path, *with_bundle(BUNDLE, forbid("[{recipe: long, lr: 3e-3}]"))).study
    recipe = study.space["recipe"]
    assert recipe.parameters_set == ["schedule", "warmup"] and recipe.values == []
    assert recipe.setting("short", study.parameters) == {"schedule": "cosine", "warmup": 0.0}
    assert study.plain(study.forbid[0]) == {"schedule": "cosine", "warmup": 0.1, "lr": 0.003}


def test_what_agrees_is_accepted(tmp_path: Path) -> None:
    conditional = LR.replace("scale: log", "scale: log, requires: {recipe: short}")
    bundle = BUNDLE.replace(LR, conditional)
    assert load(tmp_path, *with_bundle(bundle)).warnings == ()
    assert load(tmp_path, *with_bundle(BUNDLE, forbid("[{schedule: cosine, lr: 1e-3}, {warmup: 0, lr: 3e-4}]")))
    catalog = ("scale: log", "requires: {optimizer: lion}"), ("budget:", "catalog: {match: true}\nbudget:")
    assert load(tmp_path, *catalog).study.space["lr"].requires == {"optimizer": "lion"}, "the catalog may add it"


@pytest.mark.parametrize(
    ("replacements", "line"),
    [
        (
            with_bundle(BUNDLE, ("[steps]", "[steps, warmup]")),
            "18: space.recipe.settings.long.warmup: is locked (take it out of locked or out of the setting)",
        ),
        (
            with_bundle(BUNDLE.replace("warmup", "warm")),
            "18: space.recipe.settings.long.warm: is not among parameters (give its baseline value there)",
        ),
        (
            with_bundle(BUNDLE.replace("recipe", "optimizer")),
            "18: space.optimizer: is the name of a parameter (give the bundle a name of its own)",
        ),
        (
            with_bundle(BUNDLE.replace("warmup: 0.1", "lr: 0.1")),
            "18: space.recipe.settings.long.lr: is changed by the factor lr as well (leave it to one of the two)",
        ),
        (
            with_bundle(f"{LR}\n  recipe: {{settings: {{}}}}"),
            "18: space.recipe.settings: is empty (name the settings to try, e.g. {long_cosine: {scheduler: cosine, warmup: 0.1}})",
        ),
        (
            with_bundle(BUNDLE.replace("{settings:", "{levels: [1], settings:")),
            "18: space.recipe: has both levels and settings (keep one of them)",
        ),
        (
            with_bundle(BUNDLE.replace("warmup: 0.1", "warmup: [1]")),
            "18: space.recipe.settings.long.warmup: [1] is not a number, text, true or false",
        ),
        (
            with_bundle(BUNDLE, forbid("[{recipe: long}]")),
            "18: space.recipe.settings.long: is forbidden by forbid[0] (take one of the two out)",
        ),
        (
            with_bundle(BUNDLE.replace("scale: log", "scale: log, requires: {recipe: longer}")),
            "17: space.lr.requires.recipe: 'longer' is no value that recipe can have (it may be 'long', 'short')",
        ),
        (
            [("scale: log", "requires: {optimizer: lion}")],
            "15: space.lr.requires.optimizer: 'lion' is no value that optimizer can have (it may be 'adam')",
        ),
        (
            [("scale: log", "requires: {lr: 3e-4}")],
            "15: space.lr.requires.lr: 'lr' is the factor itself (name another parameter)",
        ),
        (
            [forbid("[{lr: 3e-3, optimiser: adam}]")],
            "16: forbid[0].optimiser: 'optimiser' is not among parameters (name a parameter of this study)",
        ),
        (
            [forbid("[{lr: 3e-2, optimizer: adam}]")],
            "16: forbid[0].lr: 0.03 is no value that lr can have (it may be 0.001, 0.0003, 0.003)",
        ),
        ([forbid("[{}]")], "16: forbid[0]: names no value (write for example {precision: fp16, optimizer: adam8bit})"),
        (
            [forbid("[{lr: 1e-3, optimizer: adam}]")],
            "16: forbid[0]: forbids the baseline itself (correct it, or the values under parameters)",
        ),
        ([forbid("[lr]")], "16: forbid[0]: 'lr' is not a section of `key: value` lines"),
        (
            [("levels: [3e-4, 3e-3], scale: log", "range: [0.5, 8], integer: true")],
            "15: space.lr.range: [0.5, 8] is not of whole numbers (round it or take integer out)",
        ),
    ],
)
def test_one_mistake_gives_one_line(replacements: list[tuple[str, str]], line: str, tmp_path: Path) -> None:
    assert faults(tmp_path, *replacements) == [line]


def test_what_rests_on_a_mistake_is_no_second_one(tmp_path: Path) -> None:
    bundle = BUNDLE.replace("scale: log", "scale: log, requires: {recipe: long}").replace("warmup: 0.1", "warmup: [1]")
    found = faults(tmp_path, *with_bundle(bundle, forbid("[{recipe: long, lr: 3e-3}]"), ("adam", "[adam]")))
    assert [fault.split(": ")[1] for fault in found] == ["parameters.optimizer", "space.recipe.settings.long.warmup"]


def test_a_setting_the_command_has_no_place_for_is_told(tmp_path: Path) -> None:
    launcher = ('"{python} train.py --seed {seed}"', '"train {lr} {schedule} {seed}"\n  parameters: {via: template}')
    (line,) = faults(tmp_path, *with_bundle(BUNDLE, launcher))
    assert line.startswith("18: space.recipe.settings.long.warmup: the command has no place for it (write {warmup} ")


@pytest.mark.parametrize(
    ("bundle", "warning"),
    [
        (BUNDLE.replace("{schedule: cosine}}", "{warmup: 0}}"), "18: space.recipe.settings.short: changes nothing"),
        (BUNDLE.replace(", warmup: 0.1", ""), "18: space.recipe.settings.short: is the same as long (remove one)"),
        (BUNDLE.replace("0.1", "'yes'"), "18: space.recipe.settings.long.warmup: 'yes' is not numbers"),
    ],
)
def test_what_a_setting_hardly_means_is_a_warning(bundle: str, warning: str, tmp_path: Path) -> None:
    (found,) = load(tmp_path, *with_bundle(bundle)).warnings
    assert str(found).removeprefix(f"{tmp_path}/study.yaml:").startswith(warning)


def test_the_example_of_the_page_means_what_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "space.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    head, _, tail = SAMPLE.partition("parameters:")
    (tmp_path / "study.yaml").write_text(f"{head}{example}{tail[tail.index('frozen:') :]}", encoding="utf-8")
    loaded = load_study(tmp_path / "study.yaml")
    assert loaded.warnings == ()
    assert loaded.study.space["lr"].values == [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]
    assert loaded.study.space["depth"].values == [2, 4, 6, 8]


def test_neighbours_on_a_log_scale_are_about_twice_each_other() -> None:
    assert Factor(range=(1, 16), scale="log").values == [1, 2, 4, 8, 16]
    assert Factor(range=(1e-4, 1e-3), scale="log").values == [1e-4, 2.15e-4, 4.64e-4, 1e-3]
    assert [steps_of(1, ratio, "log") for ratio in (1.1, 2, 3, 1e6)] == [2, 2, 3, 9]
    assert Factor(range=(0, 1)).values == [0, 0.5, 1]
    assert Factor(range=(1e-4, 1e-2), scale="log", steps=3).values == [1e-4, 1e-3, 1e-2], "what is said holds"


def test_whole_numbers_come_once_each() -> None:
    assert Factor(range=(1, 3), integer=True, steps=9).values == [1, 2, 3]
    assert all(type(value) is int for value in Factor(range=(8, 512), integer=True, scale="log").values)
