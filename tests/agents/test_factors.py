"""From space, catalog, symptoms and lessons to the order of what is tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nightlab.agents.analysis import gather_facts
from nightlab.agents.brain import Diagnosis, Dimension
from nightlab.agents.context import Lab
from nightlab.agents.design import Design
from nightlab.agents.documents import analysis_report, improve_guide
from nightlab.agents.factors import design_of, lessons_for, ranked
from nightlab.agents.space import forbidden_in, space_of
from nightlab.configs.study import Study
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.lessons import append, make_lesson
from nightlab.knowledge.records import Effect, Experiment, Lesson, Phase, Verdict, VerdictKind
from nightlab.search.history import RankedFactor
from nightlab.tools.launchers import launcher_for
from tests.agents.lab import new_lab
from tests.task import study_data


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    with new_lab(tmp_path_factory.mktemp("factors")) as lab:
        return lab


def lab_with(base: Lab, **changes: Any) -> Lab:
    return replace(base, study=Study.model_validate(study_data(**changes)))


BY_CATALOG: dict[str, Any] = {
    "parameters": {"learning_rate": 0.001, "weight_decay": 0.0, "crash": "no"},
    "space": {},
    "locked": [],
    "launcher": study_data()["launcher"] | {"dry_run": {}},
}


def catalog_lab(base: Lab, selection: dict[str, Any], **changes: Any) -> Lab:
    return lab_with(base, **{**BY_CATALOG, "catalog": selection, **changes})


def test_without_the_catalog_the_space_is_the_studys(base: Lab) -> None:
    assert list(space_of(base)) == ["lr", "width", "color", "crash"]
    assert space_of(catalog_lab(base, {})) == {}


def test_matching_adds_what_the_baseline_names_and_include_only_what_it_says(base: Lab) -> None:
    matched = space_of(catalog_lab(base, {"match": True}))
    assert {"learning_rate", "weight_decay"} <= matched.keys()
    assert matched.keys() <= {"learning_rate", "weight_decay"}
    included = space_of(catalog_lab(base, {"include": ["lr"]}))
    assert list(included) == ["learning_rate"]
    assert included["learning_rate"].levels == [0.0003, 0.0006, 0.001]
    assert included["learning_rate"].technique == "lr" and included["learning_rate"].scale == "log"


def test_excluded_locked_and_own_factors_stay_out(base: Lab) -> None:
    assert "learning_rate" not in space_of(catalog_lab(base, {"match": True, "exclude": ["lr"]}))
    assert "learning_rate" not in space_of(catalog_lab(base, {"match": True}, locked=["learning_rate"]))
    own = catalog_lab(base, {"match": True}, space={"learning_rate": {"levels": [0.5]}})
    assert space_of(own)["learning_rate"].levels == [0.5]


def test_a_parameter_may_have_another_name_here(base: Lab) -> None:
    parameters = {"lr": 0.001, "crash": "no"}
    selection = {"match": True, "parameters": {"learning_rate": "lr"}}
    assert list(space_of(catalog_lab(base, selection, parameters=parameters))) == ["lr"]
    assert space_of(catalog_lab(base, {"match": True}, parameters=parameters)) == {}


def test_values_of_another_sort_and_prose_are_left_out(base: Lab) -> None:
    """The catalog's `schedule_free` says `2-5x usual` of the learning rate, and `dedup` holds a value with a blank."""
    lab = catalog_lab(base, {"include": ["schedule_free"]}, parameters={"lr": 0.001})
    assert space_of(lab) == {}
    lab = catalog_lab(base, {"include": ["dedup"]}, parameters={"method": "none"})
    assert space_of(lab)["method"].levels == ["exact"]
    lab = catalog_lab(base, {"include": ["thinking_off"]}, parameters={"enable_thinking": "yes"})
    assert space_of(lab) == {}


def test_a_parameter_the_command_never_sees_is_not_searched(base: Lab) -> None:
    launcher = {"command": "train {weight_decay}", "parameters": {"via": "template"}}
    found = space_of(catalog_lab(base, {"match": True}, launcher=launcher))
    assert list(found) == ["weight_decay"]


def test_what_only_a_person_may_try_never_enters(base: Lab) -> None:
    locked = [technique for technique in load_catalog().techniques if technique.locked]
    assert locked
    for technique in locked:
        parameters = dict.fromkeys(technique.params, 1.0) | {"crash": "no"}
        lab = catalog_lab(base, {"include": [technique.id]}, parameters=parameters)
        assert space_of(lab) == {}, technique.id


def test_the_catalogs_usual_values_are_the_likely_ones(base: Lab) -> None:
    """For pretraining the catalog's learning rates lie between 0.0003 and 0.001."""
    space = {"max_lr": {"levels": [0.02, 0.005, 0.001], "scale": "log", "technique": "lr"}}
    (lr,) = ranked(catalog_lab(base, {}, parameters={"max_lr": 0.01}, space=space), [], [])
    assert lr.levels == (0.001, 0.005, 0.02)
    assert lr.chances == pytest.approx((0.5 + 0.25 * 0.9, 0.5 + 0.15 * 0.9, 0.5 - 0.25 * 0.9))


LORA: dict[str, Any] = {
    "method": "sft-lora",
    "parameters": {"finetuning_type": "lora", "lora_rank": 8, "packing": False, "neat_packing": False, "crash": "no"},
}


def test_what_a_technique_needs_becomes_a_condition(base: Lab) -> None:
    space = space_of(catalog_lab(base, {"match": True}, **LORA))
    assert space["lora_rank"].requires == {"finetuning_type": "lora"}
    assert space["neat_packing"].requires == {"packing": True} and space["packing"].requires == {}
    own = catalog_lab(
        base,
        {"match": True, "parameters": {"packing": "pack"}},
        **{**LORA, "parameters": {"pack": False, "neat_packing": False}},
    )
    assert space_of(own)["neat_packing"].requires == {"pack": True}


def test_what_can_never_be_met_stays_out(base: Lab) -> None:
    parameters = {**LORA["parameters"], "finetuning_type": "full"}
    changes = {**LORA, "parameters": parameters, "locked": ["finetuning_type", "packing"]}
    space = space_of(catalog_lab(base, {"match": True}, **changes))
    assert space == {}
    unknown = {**LORA, "parameters": {"lora_rank": 8, "neat_packing": False}}
    assert space_of(catalog_lab(base, {"match": True}, **unknown))["lora_rank"].requires == {}


GSPO: dict[str, Any] = {
    "method": "grpo",
    "parameters": {"importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": 0.2, "crash": "no"},
}


def test_parameters_that_belong_together_are_one_variable(base: Lab) -> None:
    lab = catalog_lab(base, {"include": ["gspo"]}, **GSPO)
    (gspo,) = ranked(lab, [], [])
    assert (gspo.name, gspo.technique, gspo.levels) == ("gspo", "gspo", ("importance_sampling_level-sequence",))
    assert gspo.also == ({"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},)
    assert gspo.chances[0] > 0.5
    several = space_of(
        catalog_lab(
            base, {"include": ["clip_higher"]}, method="grpo", parameters={"epsilon_low": 0.1, "epsilon_high": 0.2}
        )
    )
    assert several["clip_higher"].settings == {
        "epsilon_high-0.28": {"epsilon_high": 0.28, "epsilon_low": 0.2},
        "epsilon_high-0.3": {"epsilon_high": 0.3, "epsilon_low": 0.2},
    }


def test_a_bundle_that_cannot_be_whole_leaves_its_first_parameter_alone(base: Lab) -> None:
    locked = catalog_lab(base, {"include": ["gspo"]}, **GSPO, locked=["epsilon"])
    assert list(space_of(locked)) == ["importance_sampling_level"]
    without = {**GSPO, "parameters": {"epsilon": 0.2, "epsilon_high": 0.2}}
    assert space_of(catalog_lab(base, {"include": ["gspo"]}, **without)) == {}
    taken = {"mine": {"settings": {"low": {"epsilon": 0.1}}}}
    assert list(space_of(catalog_lab(base, {"include": ["gspo"]}, **GSPO, space=taken))) == [
        "mine",
        "importance_sampling_level",
    ]


SCALED: dict[str, Any] = {
    "method": "sft-lora",
    "parameters": {"learning_rate": 1e-4, "effective_batch": 16, "micro_batch": 8, "crash": "no"},
    "space": {},
}


def test_the_batch_and_the_learning_rate_that_follows_it_are_one_variable(base: Lab) -> None:
    lab = catalog_lab(base, {"include": ["batch_lr_sqrt"], "match": True}, **SCALED)
    rule = next(factor for factor in ranked(lab, ["loss_spikes"], []) if factor.technique == "batch_lr_sqrt")
    assert (rule.name, rule.tier, rule.ordered) == ("batch_lr_sqrt", 2, False)
    found = dict(zip(rule.levels, rule.also, strict=True))
    assert found == {
        "effective_batch-32": {"effective_batch": 32, "learning_rate": 1.414e-4},
        "effective_batch-8": {"effective_batch": 8, "learning_rate": 7.071e-5},
        "effective_batch-64": {"effective_batch": 64, "learning_rate": 2e-4},
    }
    assert rule.reason.endswith("against loss_spikes")
    assert {factor.technique for factor in ranked(lab, [], [])} == {"batch_lr_sqrt"}, "what is included comes first"
    linear = space_of(catalog_lab(base, {"include": ["batch_lr_linear"]}, **SCALED))["batch_lr_linear"]
    assert linear.settings is not None
    assert [one["learning_rate"] for one in linear.settings.values()] == [2e-4, 5e-5, 4e-4]


@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        ({"effective_batch": 16, "micro_batch": 16}, [("effective_batch", 32), ("effective_batch", 64)]),
        ({"batch_size": 3}, [("batch_size", 6), ("batch_size", 12)]),
        (
            {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1},
            [("gradient_accumulation_steps", 2), ("gradient_accumulation_steps", 4)],
        ),
        ({"tokens": 16}, []),
        ({"effective_batch": "auto"}, []),
    ],
)
def test_the_batch_under_whatever_name(base: Lab, parameters: dict[str, Any], settings: list[tuple[str, int]]) -> None:
    """No multiple that processes × per-device batch does not divide, and none that is no whole number."""
    changed = {**SCALED, "parameters": {"learning_rate": 1e-4, "crash": "no", **parameters}}
    space = space_of(catalog_lab(base, {"include": ["batch_lr_sqrt"]}, **changed))
    found = space["batch_lr_sqrt"].settings if space else {}
    assert found is not None
    assert [next(iter(setting.items())) for setting in found.values()] == settings


def test_a_rule_of_ones_own(base: Lab, tmp_path: Path) -> None:
    """As on the page about the space: what follows keeps its sort, so that steps are whole."""
    params = "{effective_batch: {times: [2, 4]}, learning_rate: {power: 0.5}, warmup_steps: {power: -1}}"
    names = "[effective_batch, learning_rate, warmup_steps]"
    text = f"{{id: mine, name: Mine, tier: 2, applies_to: [sft], params: {params}, together: {names}}}"
    (tmp_path / "own.yaml").write_text(f"techniques: [{text}]")
    parameters = {"learning_rate": 1e-4, "effective_batch": 16, "warmup_steps": 99, "crash": "no"}
    lab = catalog_lab(base, {"include": ["mine"]}, **{**SCALED, "parameters": parameters})
    (rule,) = space_of(replace(lab, catalog=load_catalog(tmp_path / "own.yaml"))).values()
    assert rule.settings is not None
    assert [tuple(one.values()) for one in rule.settings.values()] == [(32, 1.414e-4, 50), (64, 2e-4, 25)]
    assert [type(one["warmup_steps"]) for one in rule.settings.values()] == [int, int]


def test_half_a_rule_is_none(base: Lab) -> None:
    """A batch whose learning rate cannot follow would be another technique."""
    chosen = {"include": ["batch_lr_sqrt"]}
    assert space_of(catalog_lab(base, chosen, **{**SCALED, "locked": ["learning_rate"]})) == {}
    own = {"learning_rate": {"levels": [2e-4]}}
    assert list(space_of(catalog_lab(base, chosen, **{**SCALED, "space": own}))) == ["learning_rate"]


@pytest.mark.parametrize(
    ("launcher", "method", "config"),
    [
        ({"kind": "llamafactory"}, "sft-lora", {"dataset": "d", "template": "qwen"}),
        ({"kind": "trl", "task": "dpo"}, "dpo", {"dataset_name": "d"}),
        ({"kind": "roll", "task": "sft"}, "sft-full", {"exp_name": "mine", "sft_train": {"training_args": {}}}),
    ],
)
def test_a_framework_is_given_the_whole_rule(
    base: Lab, tmp_path: Path, launcher: dict[str, Any], method: str, config: dict[str, Any]
) -> None:
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config))
    parameters = {"learning_rate": 1e-4, "effective_batch": 16, "per_device_train_batch_size": 2}
    settings = {**launcher, "config": "train.yaml"}
    lab = catalog_lab(base, {"include": ["batch_lr_sqrt"]}, method=method, parameters=parameters, launcher=settings)
    rule = space_of(lab)["batch_lr_sqrt"]
    assert list(rule.settings or {}) == ["effective_batch-32", "effective_batch-8", "effective_batch-64"]
    changed = {**parameters, **rule.setting("effective_batch-32", parameters)}
    (text,) = launcher_for(lab.study).files(changed, tmp_path).values()
    written = yaml.safe_load(text)
    written = written.get("sft_train", {}).get("training_args", written)
    assert (written["gradient_accumulation_steps"], written["learning_rate"]) == (16, 1.414e-4)


def test_conflicting_techniques_are_never_combined(base: Lab) -> None:
    parameters = {"packing": False, "group_by_length": False, "train_on_prompt": False, "mask_history": True}
    lab = catalog_lab(base, {"match": True}, method="sft-full", parameters=parameters)
    assert forbidden_in(lab, space_of(lab)) == (
        {"group_by_length": True, "packing": True},
        {"mask_history": True, "train_on_prompt": True},
    )
    alone = catalog_lab(base, {"match": True, "exclude": ["packing"]}, method="sft-full", parameters=parameters)
    assert {"group_by_length": True, "packing": True} not in forbidden_in(alone, space_of(alone))


def test_a_conflict_the_baseline_lives_with_is_none(base: Lab) -> None:
    parameters = {"packing": True, "group_by_length": True}
    lab = catalog_lab(base, {"match": True}, method="sft-full", parameters=parameters)
    assert forbidden_in(lab, space_of(lab)) == ()


def test_own_constraints_come_first_in_plain_parameters(base: Lab) -> None:
    space = {"recipe": {"settings": {"fast": {"a": 2, "b": 3}}}, "c": {"levels": [2]}}
    lab = catalog_lab(base, {}, parameters={"a": 1, "b": 1, "c": 1}, space=space, forbid=[{"recipe": "fast", "c": 2}])
    design = design_of(lab, [], [])
    assert design.forbidden == ({"a": 2, "b": 3, "c": 2},)
    text = improve_guide(lab, design, [], [])
    assert "| `recipe` | as in the study | `fast` |" in text
    assert "- `recipe`, one variable: `fast` sets `a` = `2`, `b` = `3`." in text
    assert "- `a` = `2` with `b` = `3` with `c` = `2`" in text


def names(factors: tuple[RankedFactor, ...]) -> list[str]:
    return [factor.name for factor in factors]


def two_of_one_tier(base: Lab) -> tuple[Lab, str, str, str]:
    """Two factors of one tier, the second of which alone answers to a symptom: lab, first, second, symptom."""
    catalog = load_catalog()
    chosen = [t for t in catalog.techniques if not t.locked and t.tier == 2 and t.symptoms]
    for second in chosen:
        for first in chosen:
            symptom = next((s for s in second.symptoms if s not in first.symptoms), None)
            if symptom and first.id != second.id:
                space = {"a": {"levels": [1], "technique": first.id}, "b": {"levels": [1], "technique": second.id}}
                lab = lab_with(base, **{**BY_CATALOG, "parameters": {"a": 0, "b": 0}, "space": space})
                if names(ranked(lab, [], [])) == ["a", "b"] and names(ranked(lab, [symptom], [])) == ["b", "a"]:
                    return lab, first.id, second.id, symptom
    raise AssertionError("no two techniques of tier 2 are reordered by a symptom")


def test_a_symptom_moves_what_cures_it_up_within_its_tier_and_says_so(base: Lab) -> None:
    lab, _, _, symptom = two_of_one_tier(base)
    first = ranked(lab, [symptom], [])[0]
    assert first.reason.endswith(f"against {symptom}")
    above = lab_with(
        base,
        **{
            **BY_CATALOG,
            "parameters": {"a": 0, "b": 0},
            "space": {
                "a": {"levels": [1], "tier": 1},
                "b": {"levels": [1], "technique": lab.study.space["b"].technique},
            },
        },
    )
    assert names(ranked(above, [symptom], [])) == ["a", "b"], "never across tiers"


def lesson(study: Study, changed: dict[str, float], kind: VerdictKind, **changes: Any) -> Lesson:
    experiment = Experiment(
        study="earlier",
        number=1,
        scenario="toy",
        method="pretrain",
        base_model="none",
        variable="x",
        parameters={**study.parameters, **changed},
        changed=dict(changed),
        phase=Phase.SCREEN,
        reason="r",
        branch="b",
        base_commit="c",
    )
    effect = Effect(delta=0.1, low=0.05, high=0.15, runs=3, baseline_runs=3)
    verdict = Verdict(number=1, kind=kind, effect=effect, basis=Phase.CONFIRM, label=kind.value, reason="r")
    study = study.model_copy(update={"study": "earlier"})
    return make_lesson(study, experiment.model_copy(update=changes), verdict)


def test_lessons_move_what_helped_up_and_its_best_value_first(base: Lab) -> None:
    space = {name: {"levels": [2, 3], "tier": 2} for name in ("a", "b")}
    lab = lab_with(base, **{**BY_CATALOG, "parameters": {"a": 1, "b": 1}, "space": space})
    assert names(ranked(lab, [], [])) == ["a", "b"]
    told = [lesson(lab.study, {"b": 3}, VerdictKind.KEEP), lesson(lab.study, {"a": 2}, VerdictKind.DISCARD)]
    factors = ranked(lab, [], told)
    assert names(factors) == ["b", "a"]
    assert factors[0].levels == (3, 2) and factors[1].levels == (3, 2)
    assert "lessons confirmed 1 of its values" in factors[0].reason
    assert "lessons found 1 of its values no better" in factors[1].reason


def test_only_lessons_of_this_method_that_still_hold_are_heard_and_other_scenarios_less(base: Lab) -> None:
    old = lesson(base.study, {"lr": 0.01}, VerdictKind.KEEP)
    new = lesson(base.study, {"lr": 0.01}, VerdictKind.DISCARD).model_copy(update={"supersedes": [old.id]})
    elsewhere = lesson(base.study, {"lr": 0.1}, VerdictKind.KEEP, scenario="other")
    otherwise = lesson(base.study, {"lr": 0.01}, VerdictKind.KEEP, method="dpo")
    for one in (old, new, elsewhere, otherwise):
        append(base.lessons_path, one)
    told = lessons_for(base)
    assert [one.id for one in told] == [new.id, elsewhere.id]
    lr = ranked(base, [], told)[0]
    assert lr.levels == (0.1, 0.01) and lr.chances == pytest.approx((1.25 / 2.25, 1 / 3))
    assert "1 from study earlier (scenario other, which count less)" in improve_guide(base, Design((lr,)), [], told)
    base.lessons_path.unlink()


def rows(text: str) -> list[list[str]]:
    return [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and "---" not in line]


def test_the_guide_says_what_is_tried_in_which_order_and_why(base: Lab) -> None:
    told = [lesson(base.study, {"lr": 0.01}, VerdictKind.KEEP)]
    factors = ranked(base, [], told)
    needy = replace(factors[1], requires={"color": "red"})
    text = improve_guide(base, Design((factors[0], needy)), ["loss_plateau_high"], told)
    table = rows(text)
    assert table[1][2].strip() == "`lr`" and table[1][4].strip() == "`0.01`, `0.1`"
    assert "lessons confirmed 1 of its values" in table[1][6]
    assert "only with `color` = `red`" in table[2][6]
    assert {len(row) for row in table} == {7}
    assert "`loss_plateau_high`" in text and "1 from study earlier." in text
    assert "data overrule them: `lr` `0.01` likely (0.67)." in text
    assert "## What is changed together" not in text and "## What is never tried together" not in text
    assert "`steps`, `seconds`" in text and "`prepare.py`" in text and "30 runs" in text


def test_the_analysis_names_symptoms_with_their_cures_and_what_is_locked(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        diagnosis = Diagnosis((Dimension("Training method", "a | b", ("loss_plateau_high", "made_up")),))
        text = analysis_report(lab, gather_facts(lab), diagnosis)
    assert "- `loss_plateau_high`: train loss flat" in text and "`lr`" in text
    assert "- `made_up`: not described in the catalog." in text
    assert "a \\| b" in text
    assert "| `steps` | `10` | locked |" in text and "| `lr` | `0.001` | searched |" in text
    assert "Measured so far" not in text
