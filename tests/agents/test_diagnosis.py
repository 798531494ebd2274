"""The rules of the diagnosis: each symptom from facts that show it, and from none that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nightlab.agents.brain import Brain, Diagnosis, Dimension, Facts, RulesBrain
from nightlab.agents.diagnosis import FEWEST_POINTS, diagnose, loss_symptoms
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.records import Phase, Verdict, VerdictKind

GIBIBYTE = 1024**3
FACTS = Facts(
    base_model="smol",
    method="sft-lora",
    metric="val_loss",
    unit="nats",
    input_bytes=0,
    tracked_files=4,
    repository_bytes=2048,
    cores=8,
    memory_bytes=16 * GIBIBYTE,
    gpus=(),
    slots=2,
    baseline_values=(),
    baseline_wall_seconds=None,
    baseline_peak_memory_bytes=None,
    losses=(),
    evaluation_frozen=("eval.py",),
    prompt_parameters=(),
    data_parameters=(),
)


def finding(facts: Facts, name: str) -> Dimension:
    return next(dimension for dimension in diagnose(facts).dimensions if dimension.name == name)


def falling(points: int) -> tuple[float, ...]:
    return tuple(4.0 * 0.97**step for step in range(points))


FLAT = tuple(3.0 - 2.0 * min(step, 20) / 20 for step in range(100))


@pytest.mark.parametrize(
    ("losses", "symptoms"),
    [
        ((), ()),
        (falling(FEWEST_POINTS - 1), ()),
        (falling(FEWEST_POINTS), ("slow_convergence",)),
        (falling(100), ("slow_convergence",)),
        (FLAT, ("loss_plateau_high",)),
        ((*FLAT[:80], *(1.0 + 0.02 * step for step in range(20))), ("loss_diverges",)),
        ((*FLAT[:60], 4.0, *FLAT[60:]), ("loss_plateau_high", "loss_spikes")),
        # A loss below zero (a likelihood) falls and rises like any other.
        (tuple(-1.0 - 0.1 * step for step in range(50)), ("slow_convergence",)),
        (tuple(-6.0 + 0.1 * step for step in range(50)), ("loss_diverges",)),
        ((0.0,) * 50, ("loss_plateau_high",)),
    ],
)
def test_each_curve_shows_its_symptoms(losses: tuple[float, ...], symptoms: tuple[str, ...]) -> None:
    assert loss_symptoms(losses) == symptoms
    assert finding(replace(FACTS, losses=losses), "Training method").symptoms == symptoms


def test_the_high_start_of_a_curve_is_no_spike() -> None:
    assert "loss_spikes" not in loss_symptoms((50.0, 20.0, 10.0, *FLAT))


def test_every_symptom_the_rules_know_is_described_in_the_catalog() -> None:
    full = replace(FACTS, baseline_peak_memory_bytes=10 * GIBIBYTE)
    curves = [falling(50), FLAT, tuple(1.0 + step for step in range(50)), (*FLAT[:60], 4.0, *FLAT[60:])]
    found = {symptom for losses in curves for symptom in diagnose(replace(full, losses=losses)).symptoms}
    assert found == {"slow_convergence", "loss_plateau_high", "loss_diverges", "loss_spikes", "memory_tight"}
    assert found <= load_catalog().meta.symptoms.keys()


def test_memory_is_tight_when_all_slots_together_fill_the_machine() -> None:
    assert finding(replace(FACTS, baseline_peak_memory_bytes=6 * GIBIBYTE), "Resources").symptoms == ()
    tight = finding(replace(FACTS, baseline_peak_memory_bytes=7 * GIBIBYTE), "Resources")
    assert tight.symptoms == ("memory_tight",) and "7.0 GiB" in tight.finding


def test_it_has_seven_dimensions_whatever_is_known() -> None:
    names = [dimension.name for dimension in diagnose(FACTS).dimensions]
    assert names == [
        "Base model",
        "Data quality",
        "Prompt and template",
        "Training method",
        "Evaluation",
        "Resources",
        "Baseline",
    ]
    assert finding(FACTS, "Baseline").finding == "Not measured yet."
    assert "locked" in finding(FACTS, "Base model").finding


def test_what_a_person_reads_names_the_facts() -> None:
    facts = replace(
        FACTS,
        baseline_values=(2.0, 2.02, 1.98),
        baseline_wall_seconds=0.254,
        input_bytes=3 * GIBIBYTE,
        data_parameters=("data_mix",),
        prompt_parameters=("template",),
        losses=(3.0,),
    )
    assert finding(facts, "Baseline").finding == (
        "val_loss 2 nats over 3 runs, standard deviation between seeds 0.02; 0.25 s a run."
    )
    assert "an hour" not in finding(replace(facts, baseline_wall_seconds=3723.4), "Baseline").finding
    assert (
        "1 hour, 2 minutes and 3 seconds a run"
        in finding(replace(facts, baseline_wall_seconds=3723.4), "Baseline").finding
    )
    assert "3.0 GiB in declared inputs" in finding(facts, "Data quality").finding
    assert "data_mix" in finding(facts, "Data quality").finding
    assert "template" in finding(facts, "Prompt and template").finding
    assert "1 logged point, too few" in finding(facts, "Training method").finding
    assert "could change its own evaluation" in finding(replace(FACTS, evaluation_frozen=()), "Evaluation").finding


def test_a_diagnosis_names_each_symptom_once_in_the_order_found() -> None:
    dimensions = (Dimension("a", "", ("x", "y")), Dimension("b", "", ("y", "z", "x")))
    assert Diagnosis(dimensions).symptoms == ("x", "y", "z")


def test_the_built_in_brain_is_a_brain_and_says_the_same_each_time() -> None:
    brain: Brain = RulesBrain()
    facts = replace(FACTS, losses=FLAT, baseline_values=(2.0,))
    assert brain.name == "rules"
    assert brain.diagnose(facts) == brain.diagnose(facts)
    verdict = Verdict(number=3, kind=VerdictKind.KEEP, basis=Phase.CONFIRM, label="confirmed", reason="it wins")
    assert brain.explain("lr-0-01", verdict) == "lr-0-01: confirmed. it wins"
