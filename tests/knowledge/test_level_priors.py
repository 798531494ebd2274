"""What lessons say of a level: weights by scenario, base model, age and the value it replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nightlab.configs.study import Study
from nightlab.knowledge.level_priors import LevelPrior, prior_from
from nightlab.knowledge.model_size import model_size, size_text
from nightlab.knowledge.records import Effect, Lesson, VerdictKind

LATELY = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)
NOTHING = LevelPrior()


def lesson(verdict: VerdictKind = VerdictKind.KEEP, **fields: Any) -> Lesson:
    values: dict[str, Any] = {
        "id": str(fields),
        "time": LATELY,
        "study": "earlier",
        "scenario": "pydoc",
        "base_model": "scratch",
        "method": "pretrain",
        "parameters": {"lr": 0.003},
        "baseline": {"lr": 0.001},
        "metric": "val_bpb",
        "verdict": verdict,
        "label": "worse" if verdict is VerdictKind.DISCARD else "x",
        "evidence": {},
    }
    return Lesson.model_validate(values | fields)


def told(study: Study, *lessons: Lesson, **change: Any) -> LevelPrior:
    return prior_from(lessons, study).of(change or {"lr": 0.003})


def test_verdicts_are_wins_losses_or_nothing(study: Study) -> None:
    assert told(study, lesson()) == LevelPrior(1.0, 0.0, kept=1)
    assert told(study, lesson(VerdictKind.DISCARD)) == LevelPrior(0.0, 1.0)
    assert told(study, lesson(VerdictKind.DISCARD, label="without effect")) == LevelPrior(0.0, 0.5)
    assert told(study, lesson(VerdictKind.FAILED), lesson(VerdictKind.PRUNED)) == LevelPrior(0.0, 2.0)
    assert told(study, lesson(VerdictKind.INCONCLUSIVE), lesson(VerdictKind.REJECTED)) == NOTHING
    seen = Effect(delta=0.02, low=0.01, high=0.03, runs=3, baseline_runs=3)
    assert told(study, lesson(VerdictKind.INCONCLUSIVE, effect=seen)) == LevelPrior(0.5, 0.0)


def test_the_same_number_is_the_same_level_and_true_is_not_one(study: Study) -> None:
    lessons = [lesson(parameters={"width": 1.0}, baseline={"width": 64})]
    assert told(study, *lessons, width=1).wins == 1.0
    assert told(study, *lessons, width=True) == NOTHING


def test_superseded_lessons_and_those_of_other_methods_say_nothing(study: Study) -> None:
    old = lesson()
    new = lesson(VerdictKind.DISCARD, supersedes=[old.id])
    assert told(study, old, new) == LevelPrior(0.0, 1.0)
    assert told(study, lesson(method="dpo")) == NOTHING


def test_another_scenario_weighs_less_and_so_does_another_model_size(study: Study) -> None:
    assert told(study, lesson(scenario="chat")).wins == 0.25
    assert told(study, lesson(base_model="Other-7B")).wins == 0.5
    small = study.model_copy(update={"base_model": "Qwen3-0.6B"})
    assert told(small, lesson(base_model="SmolLM2-360M")).wins == 1.0
    assert told(small, lesson(base_model="SmolLM2-135M")).wins == 0.5
    assert told(small, lesson(base_model="mine", base_model_size="1B")).wins == 1.0


def test_old_lessons_fade_against_new_ones(study: Study) -> None:
    old = lesson(VerdictKind.DISCARD, time=LATELY - timedelta(days=180))
    assert told(study, old, lesson()) == LevelPrior(1.0, 0.5, kept=1)
    assert told(study, old).losses == 1.0, "the newest there is counts fully"


def test_a_level_that_replaced_another_value_weighs_less(study: Study) -> None:
    assert told(study, lesson(baseline={"lr": 0.0001})).wins == 0.5


def test_a_lesson_whose_winner_is_the_baseline_now_speaks_against_going_back(study: Study) -> None:
    back: dict[str, Any] = {"parameters": {"lr": 0.001}, "baseline": {"lr": 0.01}}
    assert told(study, lesson(**back), lr=0.01) == LevelPrior(0.0, 1.0)
    assert told(study, lesson(VerdictKind.DISCARD, **back), lr=0.01) == LevelPrior(1.0, 0.0)
    assert told(study, lesson(VerdictKind.DISCARD, label="without effect", **back), lr=0.01) == NOTHING


def test_a_combination_speaks_for_itself_and_when_it_won_a_little_for_its_parts(study: Study) -> None:
    both: dict[str, Any] = {"parameters": {"lr": 0.003, "width": 128}, "baseline": {"lr": 0.001, "width": 64}}
    assert told(study, lesson(**both), lr=0.003, width=128).wins == 1.0
    assert told(study, lesson(**both)) == LevelPrior(0.5, 0.0, kept=1)
    assert told(study, lesson(VerdictKind.DISCARD, **both)) == NOTHING
    assert told(study, lesson(VerdictKind.DISCARD, **both), lr=0.003, width=128).losses == 1.0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Qwen3-0.6B", 6e8),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 1.35e8),
        ("llama-3-8b", 8e9),
        ("0.6B", 6e8),
        ("scratch", None),
        ("gpt2", None),
        ("model-4bit", None),
    ],
)
def test_the_size_stands_in_a_models_name(text: str, size: float | None) -> None:
    assert model_size(text) == size


def test_a_known_size_is_written_short() -> None:
    assert size_text(268e6, "scratch") == "268M" and size_text(1.5e9, "") == "1.5B"
    assert size_text(None, "Qwen3-0.6b") == "0.6B" and size_text(None, "scratch") is None
