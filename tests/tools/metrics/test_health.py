"""Which runs that ended well have not trained at all, and which only look like it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.metric_source import MetricSource
from nightlab.tools.metrics import RunFiles
from nightlab.tools.metrics.curve import LossTail
from nightlab.tools.metrics.health import MOST_POINTS, read_course, sickness
from tests.tools.metrics.recorded import printed, recorded

SOURCE = MetricSource(kind="trainer")
FACTOR = 3.0


def cause_of(files: RunFiles, **how: Any) -> str | None:
    found = sickness(read_course(files, SOURCE), factor=FACTOR, **how)
    return found.cause if found else None


def lines(losses: Sequence[object], **more: object) -> str:
    """Dict lines with these losses; `more` is added to each."""
    entries = [{"loss": loss, "grad_norm": 1.0, **more, "epoch": 0.1 * n} for n, loss in enumerate(losses)]
    return "".join(f"{entry}\n" for entry in entries)


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        ("llamafactory/div", "diverged"),
        ("llamafactory/sft", None),
        ("llamafactory/full", None),
        ("llamafactory/dpo", None),
        ("llamafactory/pred", None),
        ("trl/sft", None),
        ("trl/grpo", None),
        ("roll", None),
    ],
)
@pytest.mark.parametrize("from_output", [False, True])
def test_of_the_recorded_runs_only_the_diverged_one_is_sick(
    tmp_path: Path, run: str, cause: str | None, *, from_output: bool
) -> None:
    files = recorded(run, tmp_path)
    assert cause_of(replace(files, output=tmp_path / "none") if from_output else files) == cause


def noisy(level: float, count: int, spread: float) -> list[float]:
    generator = random.Random(1)  # noqa: S311
    return [max(1e-6, level + generator.gauss(0, spread)) for _ in range(count)]


@pytest.mark.parametrize(
    ("losses", "more", "cause"),
    [
        ([2.0, 1.5, 1.2, 1.1, 1.0], {}, None),
        ([2.0, 2.1, 2.2, 2.3, 2.4, 2.5], {}, None),
        ([2.0, 1.0, 0.5, 3.0, 4.0, 5.0], {}, None),
        ([2.0, 4.0, 6.0, 8.0, 11.0, 11.0], {}, "diverged"),
        ([0.02, 0.03, 0.05, 0.08, 0.1, 0.2], {}, None),
        ([0.693, 0.5, 0.3, 0.01, 0.001, 0.05, 0.09], {"rewards/chosen": 0.1}, None),
        ([0.693, 0.9, 1.5, 3.0, 4.0, 4.0, 4.0], {"rewards/chosen": -9.0}, "diverged"),
        ([25.0, 20.0, 18.0, 21.0], {"rewards/chosen": 0.1}, None),
        ([1e-6, 0.01, -0.02, 0.5, 2.0, 4.0], {"reward": 0.5, "reward_std": 0.1}, None),
        ([0.001, 0.5, 2.0, 4.0, 4.0, 4.0], {"rewards/accuracy_reward/mean": 0.5}, None),
        ([0.0] * 6, {"reward": 0.5}, None),
        ([-0.1, 0.5, 2.0, 4.0, 4.0, 4.0], {}, None),
        ([2.0, 1.5, math.nan, 1.2, 1.1], {}, None),
        ([2.0, 1.5, 1.3, 1.2, math.nan], {}, "loss-not-finite"),
        ([2.0, 1.5, 1.3, 1.2, "nan"], {}, "loss-not-finite"),
        ([2.0, 1.5, 1.3, 1.2, "inf"], {"reward": 0.5}, "loss-not-finite"),
        ([math.nan], {}, "loss-not-finite"),
        ([2.0, 0.0, 0.0, 0.0], {"grad_norm": math.nan}, "loss-not-finite"),
        ([0.0, 0.0], {"grad_norm": "nan"}, "loss-not-finite"),
        ([2.0, 0.0, 1.4, 0.0], {"grad_norm": math.nan}, None),
        ([2.0, 1.5, 1.4, 1.3], {"grad_norm": math.nan}, None),
        ([0.0, 0.0, 0.0], {"grad_norm": 0.0}, None),
        ([5.0], {}, None),
        ([], {}, None),
        (noisy(1.0, 200, 0.5), {}, None),
        (noisy(0.3, 200, 0.3), {}, None),
        ([0.2, *noisy(1.5, 60, 0.8)], {}, None),
        ([0.5] * 50 + [1.4] * 50, {}, None),
    ],
)
def test_a_loss_is_judged_with_care(tmp_path: Path, losses: list[object], more: dict[str, object], cause: str) -> None:
    assert cause_of(printed(lines(losses, **more), tmp_path)) == cause


def test_an_evaluation_that_improved_speaks_for_the_run(tmp_path: Path) -> None:
    rising = lines([0.5, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0])
    assert cause_of(printed(rising, tmp_path)) == "diverged"
    evaluated = "{'eval_loss': 2.0, 'epoch': 0.1}\n" + rising + "{'eval_loss': 1.8, 'epoch': 1}\n"
    assert cause_of(printed(evaluated, tmp_path)) is None, "a second, harder part of the data"
    named = evaluated.replace("eval_loss", "eval_news_loss")
    assert cause_of(printed(named, tmp_path)) is None


def test_a_run_that_had_diverged_before_its_first_record_is_known_by_its_size(tmp_path: Path) -> None:
    files = printed(lines([371677.8], grad_norm=1.6e9), tmp_path)
    assert cause_of(files) is None
    assert cause_of(files, is_language_model=True) == "diverged"
    summed = printed(lines([128.0] * 5, grad_norm=3.0), tmp_path)
    assert cause_of(summed, is_language_model=True) is None, "a loss that is summed over accumulation"


def test_what_the_study_does_not_want_looked_at_is_not(tmp_path: Path) -> None:
    diverged = read_course(recorded("llamafactory/div", tmp_path), SOURCE)
    assert sickness(diverged, factor=None) is None
    lost = read_course(printed(lines([math.nan] * 4), tmp_path / "nan"), SOURCE)
    assert sickness(lost, factor=FACTOR, non_finite=False) is None


def test_a_plain_script_is_judged_by_the_losses_it_prints(tmp_path: Path) -> None:
    def script(losses: Sequence[object]) -> RunFiles:
        return printed("".join(f"step {n} | loss: {loss}\n" for n, loss in enumerate(losses)), tmp_path)

    assert cause_of(script([2.0, 9.0, 9.0])) is None, "too few to say"
    assert cause_of(script([2.0, *range(3, 30)])) == "diverged"
    assert cause_of(script([2.0, 1.0, "nan"])) is None, "printed once at the end, for whatever reason"
    assert cause_of(script([2.0, "nan", "nan", "nan"])) == "loss-not-finite"
    assert cause_of(script(["nan", "nan", "nan", 2.0])) is None


def test_files_of_an_earlier_run_are_not_judged(tmp_path: Path) -> None:
    files = recorded("llamafactory/div", tmp_path)
    files.stdout.write_text("", encoding="utf-8")
    later = replace(files, started_at=datetime.now(UTC) + timedelta(hours=1))
    assert cause_of(later) is None


def test_the_ranks_of_a_run_are_one_run(tmp_path: Path) -> None:
    healthy = lines([2.0, 1.5, 1.2, 1.1]).splitlines()
    text = "".join(f"[rank1]: {line.replace('1.1', 'nan')}\n[rank0]: {line}\n" for line in healthy)
    assert cause_of(printed(text, tmp_path)) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"log_history": 3}', '{"log_history": [3, {"loss": "x"}]}'])
def test_a_broken_state_is_passed_over(tmp_path: Path, content: str) -> None:
    files = printed(lines([2.0, 1.5, math.nan]), tmp_path, {"trainer_state.json": content})
    assert cause_of(files) == "loss-not-finite"


def test_a_long_course_is_thinned_and_keeps_both_ends(tmp_path: Path) -> None:
    entries = "".join(json.dumps({"current_steps": n, "loss": 1 + n}) + "\n" for n in range(3 * MOST_POINTS))
    course = read_course(printed("", tmp_path, {"trainer_log.jsonl": entries}), SOURCE)
    assert len(course.losses) <= MOST_POINTS
    assert (course.losses[0], course.losses[-1]) == (1.0, 3.0 * MOST_POINTS)


def test_a_watched_loss_of_reinforcement_learning_is_only_looked_at_for_nan(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(lines([1e-6, 0.07, "nan"], reward=-0.3, reward_std=0.1), encoding="utf-8")
    assert [math.isnan(loss) for loss in LossTail(log).new_losses()] == [True]
    log.write_text(lines([0.69, 0.4], **{"rewards/chosen": 0.1}), encoding="utf-8")
    assert LossTail(log).new_losses() == [0.69, 0.4], "a preference loss is a loss"


@pytest.mark.parametrize(
    ("losses", "cause"),
    [
        ([3.9, 7.0, 10.2, *noisy(10.8, 12, 0.1)], "diverged"),
        ([3.9, 9.9, *noisy(10.8, 3, 0.1)], "diverged"),
        ([10.8, 10.9, *noisy(10.8, 12, 0.1)], None),
        ([3.9, 3.2, 3.0, *noisy(10.8, 12, 0.1)], None),
        ([2.0, 2.6, 3.0, *noisy(3.2, 12, 0.1)], None),
        ([4.0, 10.5, 10.0, 9.4, 9.0, 8.5, 8.1, 7.6, 7.0, 6.4, 6.2, 6.1], None),
        ([4.0, 10.5, 10.6], None),
    ],
)
def test_a_language_model_that_ends_above_where_it_began_at_the_logarithm_of_its_vocabulary(
    tmp_path: Path, losses: list[float], cause: str | None
) -> None:
    files = printed(lines(losses), tmp_path)
    assert cause_of(files) is None, "less than three times where it began"
    assert cause_of(files, is_language_model=True) == cause
    evaluated = "{'eval_loss': 9.0, 'epoch': 0.1}\n" + lines(losses) + "{'eval_loss': 8.0, 'epoch': 1}\n"
    assert cause_of(printed(evaluated, tmp_path), is_language_model=True) is None


@pytest.mark.parametrize(
    ("losses", "gradients", "cause"),
    [
        # As LLaMA-Factory logged it: LoRA at a learning rate of 50, 444 tokens; it began above where it ended.
        ([6.781837, 6.203270, 6.095824, 6.095825, 6.095824, 6.095824], [149.9, 0, 0, 0, 0, 0], "diverged"),
        ([6.781837, 6.203270, 6.095824, 6.095825, 6.095824, 6.095824], [149.9, 0, 0, 1e-3, 0, 0], None),
        ([4.997, 4.633, 4.239, 3.879, 3.769, 3.626], [0.0] * 6, None),
        ([0.7, 0.1, 0.0, 0.0, 0.0], [1.0, 0.1, 0, 0, 0], None),
        ([6.1, 6.1], [0, 0], None),
    ],
)
def test_a_language_model_whose_loss_stands_still_without_gradients_is_dead(
    tmp_path: Path, losses: list[float], gradients: list[float], cause: str | None
) -> None:
    pairs = enumerate(zip(losses, gradients, strict=True))
    entries = [{"loss": loss, "grad_norm": norm, "epoch": 0.1 * n} for n, (loss, norm) in pairs]
    files = printed("".join(f"{entry}\n" for entry in entries), tmp_path)
    assert cause_of(files, is_language_model=True) == cause
    assert cause_of(files) is None, "other models may have come to rest"


@pytest.mark.parametrize("name", ["val loss", "Validation loss", "test loss", "eval: loss", "{'eval': {'loss'"])
def test_a_held_out_loss_that_rises_is_no_divergence(tmp_path: Path, name: str) -> None:
    epochs = [(0.69 / (n + 1), 0.69 + 0.2 * n) for n in range(12)]
    overfit = "".join(f"epoch {n}\ntrain loss: {low}\n{name}: {high}\n" for n, (low, high) in enumerate(epochs))
    assert cause_of(printed(overfit, tmp_path)) is None
    trained = overfit.replace("train loss", "x").replace(name, "train loss")
    assert cause_of(printed(trained, tmp_path)) == "diverged"
    lost = overfit + f"{name}: nan\n" * 3
    assert cause_of(printed(lost, tmp_path)) == "loss-not-finite"
