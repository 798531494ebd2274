"""The built-in catalog is sound; a user's own file extends it, and its faults are told all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.study import Scalar
from nightlab.configs.yaml_reader import read_yaml
from nightlab.errors import ConfigError
from nightlab.knowledge.catalog import BUILT_IN, Catalog, factor_levels, load_catalog, method_names, prior_effect

GOOD = """\
meta:
  symptoms:
    cold_start: the first hundred steps are wasted
techniques:
- id: lr
  tier: 2
- id: my_trick
  name: My own trick
  tier: 3
  applies_to: [sft-lora]
  params:
    trick: {values: [1e-3, 2, on, true], by_method: {sft-lora: [7]}}
  symptoms: [cold_start, overfit]
  conflicts: [lora_rank]
"""


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "my_catalog.yaml"


def ids(catalog: Catalog, **how: object) -> list[str]:
    return [technique.id for technique in catalog.match(**how)]  # type: ignore[arg-type]


def test_the_built_in_catalog_is_sound(catalog: Catalog) -> None:
    known = {technique.id for technique in catalog.techniques}
    assert len(known) == len(catalog.techniques) == 120
    for technique in catalog.techniques:
        assert set(technique.symptoms) <= catalog.meta.symptoms.keys(), technique.id
        assert technique.evidence in catalog.meta.evidence
        assert technique.tier in catalog.meta.tiers
        fixed = [name for name in technique.together[1:] if technique.params[name].power is None]
        assert all(len(factor_levels(technique, name, "grpo")) == 1 for name in fixed), technique.id
        for other in technique.conflicts:
            assert technique.id in catalog.get(other).conflicts, (technique.id, other)


def test_the_built_in_file_means_the_same_to_every_yaml_reader(catalog: Catalog) -> None:
    document = read_yaml(BUILT_IN.read_text(encoding="utf-8"), BUILT_IN)
    assert document.faults == []
    read = document.data["techniques"]
    assert isinstance(read, list)
    assert [t.model_dump(exclude_unset=True) for t in catalog.techniques] == read


def test_an_unknown_id_is_answered_with_the_closest(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"'lora_rang' is no technique .*did you mean lora_rank") as caught:
        catalog.get("lora_rang")
    assert caught.value.faults[0].value == "lora_rang"
    with pytest.raises(ConfigError, match="catalog list"):
        catalog.get("zzzz")


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("pretrain", ("pretrain", "pretrain_lora", "pretrain_full")),
        ("sft", ("sft", "sft_lora", "sft_full")),
        ("sft-lora", ("sft_lora", "sft")),
        ("DPO-full", ("dpo_full", "dpo")),
    ],
)
def test_a_study_method_is_known_by_the_catalog_names(method: str, names: tuple[str, ...]) -> None:
    assert method_names(method) == names


def test_match_filters_by_method(catalog: Catalog) -> None:
    both, lora, full = (set(ids(catalog, method=method)) for method in ("sft", "sft-lora", "sft-full"))
    assert both == lora | full
    assert lora ^ full
    assert ids(catalog, method="dpo-lora") == ids(catalog, method="dpo") != []
    assert ids(catalog, method="knitting") == []
    assert len(ids(catalog)) == 120


def test_match_orders_by_tier_symptoms_cost_and_evidence(catalog: Catalog) -> None:
    wanted = {"overfit", "data_small"}
    found = catalog.match("sft-lora", symptoms=wanted)
    assert all(wanted & set(technique.symptoms) for technique in found)
    keys = [(t.tier, -len(wanted & set(t.symptoms)), t.cost) for t in found]
    assert keys == sorted(keys)
    assert len({t.tier for t in found}) > 1
    assert found[0].id == "epochs"


def test_match_filters_by_text_and_tier(catalog: Catalog) -> None:
    assert "lr" in ids(catalog, text="Learning RATE")
    assert "lr" in ids(catalog, text="learning_rate")
    assert ids(catalog, text="learning zebra") == []
    assert {t.tier for t in catalog.match(tier=6)} == {6}


def test_an_unknown_symptom_is_told(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"'overfitt' is no symptom .*did you mean overfit"):
        catalog.match(symptoms=["overfitt"])


@pytest.mark.parametrize(
    ("technique", "parameter", "method", "levels"),
    [
        ("lr", "learning_rate", "pretrain", (0.0003, 0.0006, 0.001)),
        ("lr", "learning_rate", "sft-full", (5e-6, 1e-5, 2e-5)),
        ("lr", "learning_rate", "sft", (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4)),
        ("lr", "learning_rate", "dpo", (3e-7, 5e-7, 1e-6, 5e-6, 1e-5, 2e-5)),
        ("lr", "learning_rate", "kto-lora", (5e-7, 1e-6, 5e-6)),
        ("lr", "learning_rate", "distill", (1e-5, 5e-5, 1e-4, 2e-4)),
        ("thinking_off", "enable_thinking", "sft", (False, True)),
        ("rl_prompt_filter", "pass_rate_band", "grpo", ()),
    ],
)
def test_levels_fit_the_method(
    catalog: Catalog, technique: str, parameter: str, method: str, levels: tuple[Scalar, ...]
) -> None:
    assert factor_levels(catalog.get(technique), parameter, method) == levels


def test_levels_of_an_unknown_parameter_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"lr has no parameter lrate \(it has: learning_rate\)"):
        factor_levels(catalog.get("lr"), "lrate", "sft")


def test_the_prior_falls_with_tier_evidence_and_cost(catalog: Catalog) -> None:
    technique = catalog.get("lr")
    best = prior_effect(technique)
    for worse in ({"tier": 2}, {"evidence": "memory"}, {"cost": 2.0}):
        assert 0 < prior_effect(technique.model_copy(update=worse)) < best <= 1
    assert prior_effect(technique.model_copy(update={"cost": 0.5})) == best


def test_a_file_of_ones_own_adds_and_overrides(own: Path, catalog: Catalog) -> None:
    own.write_text(GOOD, encoding="utf-8")
    mine = load_catalog(own)
    assert len(mine.techniques) == 121
    assert mine.get("lr") == catalog.get("lr").model_copy(update={"tier": 2})
    trick = mine.get("my_trick")
    assert (trick.evidence, trick.cost, trick.params["trick"].values) == ("heuristic", 1.0, [0.001, 2, "on", True])
    assert factor_levels(trick, "trick", "sft-lora") == (7,)
    assert "my_trick" in ids(mine, method="sft-lora", symptoms=["cold_start"])
    assert load_catalog() == catalog


def test_conflicts_hold_both_ways_and_can_be_lifted(own: Path) -> None:
    own.write_text(GOOD, encoding="utf-8")
    assert load_catalog(own).get("lora_rank").conflicts == ["full_vs_lora", "my_trick"]
    own.write_text("techniques:\n- id: lora_rank\n  conflicts: []\n", encoding="utf-8")
    mine = load_catalog(own)
    assert mine.get("lora_rank").conflicts == []
    assert "lora_rank" not in mine.get("full_vs_lora").conflicts
    assert "qlora" in mine.get("full_vs_lora").conflicts


def test_a_copy_of_the_built_in_file_is_a_good_start(own: Path, catalog: Catalog) -> None:
    own.write_bytes(BUILT_IN.read_bytes())
    mine = load_catalog(own)
    assert mine.meta == catalog.meta
    assert [t.model_copy(update={"conflicts": sorted(t.conflicts)}) for t in catalog.techniques] == list(
        mine.techniques
    )


def test_every_fault_is_told_at_once_with_its_line(own: Path) -> None:
    own.write_text(
        """\
technique: []
techniques:
- id: lr
  tier: 9
  evidnce: docs
- name: nameless
- id: new_one
  tier: 2
  applies_to: []
  params: {p: {values: [{a: 1}], scales: log}}
- id: other
  name: Other
  tier: 1
  applies_to: [sft]
  symptoms: [overfit, sleepy]
  conflicts: [lora_rang]
- id: other
""",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_catalog(own)
    told = {(fault.line, fault.key) for fault in caught.value.faults}
    assert told == {
        (1, "technique"),
        (4, "techniques[0].tier"),
        (5, "techniques[0].evidnce"),
        (6, "techniques[1]"),
        (7, "techniques[2].name"),
        (9, "techniques[2].applies_to"),
        (10, "techniques[2].params.p.values[0]"),
        (10, "techniques[2].params.p.scales"),
        (15, "techniques[3].symptoms[1]"),
        (16, "techniques[3].conflicts[0]"),
        (17, "techniques[4].id"),
    }
    assert all(fault.file == own and fault.mend and "\n" not in str(fault) for fault in caught.value.faults)
    text = str(caught.value)
    for part in ("did you mean evidence?", "did you mean lora_rank?", "did you mean scale?", "'sleepy' is unknown"):
        assert part in text
    assert text.count("\n") == len(told) - 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n", "is empty .*techniques:"),
        (b"techniques: {a: 1}\n", "holds no list of techniques"),
        (b"techniques:\n- just text\n", r":2: techniques\[0\]: has no id"),
        (b"meta: {symptom: {a: b}}\ntechniques: [{id: lr}]\n", ":1: meta: may hold nothing but symptoms"),
        (b"meta: {symptoms: [a]}\ntechniques: [{id: lr}]\n", ":1: meta.symptoms: must be id: description"),
        (b"techniques:\n- id: lr\n  tier: 1\n  tier: 2\n", ":4: "),
        (b"techniques: [\n", "my_catalog.yaml:"),
        (b"techniques: \xff\n", "is not UTF-8 text"),
    ],
)
def test_a_broken_file_is_told_in_one_line(own: Path, content: bytes, message: str) -> None:
    own.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_catalog(own)
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_told(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"my_catalog\.yaml: cannot be read: No such file .*catalog\.file"):
        load_catalog(own)


def test_parameters_together_must_be_the_techniques_own(own: Path) -> None:
    own.write_text(GOOD.replace("  symptoms: [cold_start, overfit]", "  together: [trick, treat]"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"together\[1\]: treat is none of its params .it has trick"):
        load_catalog(own)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("{a: {}}", r"params\.a: has no values to try .give one of values, times, power"),
        ("{a: {values: [1], times: [2]}}", r"params\.a: has both values and times"),
        ("{a: {power: 1, by_method: {sft: [1]}}}", r"params\.a\.by_method: does not go with power"),
        ("{a: {times: [0]}, b: {power: 1}}, together: [a, b]", r"params\.a\.times\[0\]"),
        ("{a: {times: [2]}}", r"params\.a\.times: has nothing that follows it"),
        ("{a: {times: [2]}, b: {values: [1]}}, together: [a, b]", r"params\.b: needs a power"),
        ("{a: {values: [2]}, b: {power: 1}}, together: [a, b]", r"params\.b: follows nothing"),
    ],
)
def test_a_rule_that_does_not_hold_together_is_told(own: Path, params: str, message: str) -> None:
    own.write_text(f"techniques: [{{id: x, name: X, tier: 1, applies_to: [sft], params: {params}}}]", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_catalog(own)
