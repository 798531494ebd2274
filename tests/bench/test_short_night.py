"""A short night with a real model: SmolLM2-135M learns query rewriting by LoRA, and the report tells what was measured.

Five minutes of CPU on two cores; `make test-train` has what it needs.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.nights import runner
from nightlab.configs.loading import load_study
from nightlab.configs.paths import StudyPaths
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import ExperimentState, Phase, RunState, StudyStatus
from nightlab.night import run_night

for _needed in ("torch", "transformers", "peft", "gguf"):
    pytest.importorskip(_needed)

# The first test plays the whole night, beside whatever else the machine does.
pytestmark = [pytest.mark.train, pytest.mark.timeout(1800)]

STEPS, QUESTIONS = 6, 8
WORD = re.compile(r"\w+")
CELL = re.compile(r"[−+]?\d[\d,.]*")


@dataclass(frozen=True)
class Measured:
    """One run: what the ledger holds of it, and what it left behind itself."""

    number: int
    seed: int
    phase: Phase
    state: RunState
    values: dict[str, float]
    answers: list[dict[str, str]]
    stdout: str


@dataclass(frozen=True)
class Night:
    repository: Path
    paths: StudyPaths
    status: StudyStatus
    runs: list[Measured]
    kept: list[int]

    def means(self, number: int, metric: str, *, fresh: bool) -> float:
        """Over the runs of an experiment; `fresh`: over those on seeds that had no part in finding it."""
        chosen = [run for run in self.runs if run.number == number and (not fresh or run.phase is Phase.CONFIRM)]
        return statistics.fmean(scores(run.answers)[metric] for run in chosen)


def changes() -> dict[str, Any]:
    """The bench's study cut short: fewer steps and questions, the two factors that matter most."""
    study = yaml.safe_load((runner.HERE / "smollm2" / "study.yaml").read_text(encoding="utf-8"))
    return {
        "parameters": study["parameters"] | {"steps": STEPS, "eval_rows": QUESTIONS},
        "space": {
            "learning_rate": {"levels": [0.002], "scale": "log", "technique": "lr"},
            "lora_target": study["space"]["lora_target"],
        },
        "search": {"baseline_replicates": 2, "replicate_ties": 0, "confirm_seeds": 3, "confirm_candidates": 1},
        "budget": {"runs": 11, "experiments": 3},
    }


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    repository = tmp_path_factory.mktemp("smollm2") / "repository"
    (file,) = runner.make("smollm2", repository, Path(sys.executable), changes())
    status = run_night(file, say=print).status
    # Half a gigabyte that pytest would keep.
    shutil.rmtree(repository / "model")
    paths = locate(load_study(file)).paths
    with Ledger.open_to_read(paths.ledger) as ledger:
        runs = []
        for run in ledger.runs():
            files, seen = paths.job(run.number, run.seed, run.attempt), ledger.observation(run.key)
            answers = files.output / "generated_predictions.jsonl"
            runs.append(
                Measured(
                    run.number,
                    run.seed,
                    run.phase,
                    run.state,
                    seen.values if seen else {},
                    [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()],
                    files.stdout.read_text(encoding="utf-8"),
                )
            )
        kept = [one.number for one in ledger.experiments(states=[ExperimentState.KEPT]) if one.number]
    yield Night(repository, paths, status, runs, kept)


def scores(answers: list[dict[str, str]]) -> dict[str, float]:
    """ROUGE-L in points and the share of exact answers, counted here and not by the lab."""
    pairs = [[tuple(WORD.findall(row[side].lower())) for side in ("label", "predict")] for row in answers]
    shares = [2 * common(label, said) / (len(label) + len(said)) for label, said in pairs]
    exact = [row["label"] == row["predict"] for row in answers]
    return {"rouge_l": 100 * statistics.fmean(shares), "exact_match": statistics.fmean(exact)}


@cache
def common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Length of the longest common subsequence."""
    if not one or not other:
        return 0
    if one[-1] == other[-1]:
        return common(one[:-1], other[:-1]) + 1
    return max(common(one[:-1], other), common(one, other[:-1]))


def test_the_night_runs_to_its_end(night: Night) -> None:
    assert night.status is StudyStatus.FINISHED
    assert {run.state for run in night.runs} == {RunState.REVIEWED}
    assert {run.number for run in night.runs} == {0, 1, 2, 3}
    assert [run.seed for run in night.runs if run.number == 0][:2] == [0, 1]
    for run in night.runs:
        losses = re.findall(r'"loss": ([\d.]+)', run.stdout)
        assert len(losses) == STEPS and len(run.answers) == QUESTIONS
        assert f"eval_loss: {run.values['eval_loss']:.5f}" in run.stdout


def test_the_questions_are_those_held_out(night: Night) -> None:
    data = (night.repository / "data" / "eval.jsonl").read_text(encoding="utf-8").splitlines()[:QUESTIONS]
    wanted = [(row["input"], row["output"]) for row in map(json.loads, data)]
    for run in night.runs:
        asked = [row["prompt"].split("search query.\n")[1].split("<|im_end|>")[0] for row in run.answers]
        assert list(zip(asked, [row["label"] for row in run.answers], strict=True)) == wanted


def test_every_score_is_that_of_the_answers_given(night: Night) -> None:
    for run in night.runs:
        assert {name: run.values[name] for name in ("rouge_l", "exact_match")} == pytest.approx(scores(run.answers))
    # A trained model that answers as the untrained one would make the night pointless.
    best = max(night.runs, key=lambda run: run.values["rouge_l"])
    assert best.number > 0 and best.values["rouge_l"] > 2 * night.means(0, "rouge_l", fresh=False)


def test_the_table_holds_the_means(night: Night) -> None:
    with night.paths.results_csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == [0, 1, 2, 3]
    for row in rows:
        # A finalist's figures are those of its fresh seeds.
        number = int(row["number"])
        fresh = number > 0 and any(run.phase is Phase.CONFIRM for run in night.runs if run.number == number)
        assert float(row["metric_mean"]) == pytest.approx(night.means(number, "rouge_l", fresh=fresh))


def test_the_report_tells_before_and_after_with_intervals(night: Night) -> None:
    text = night.paths.final_report_md.read_text(encoding="utf-8")
    (winner,) = night.kept
    before, after = (night.means(number, "rouge_l", fresh=True) for number in (0, winner))
    title, gain = text.splitlines()[0], text.splitlines()[2]
    assert cells(title) == [pytest.approx(before, abs=0.51), pytest.approx(after, abs=0.51)]
    assert cells(gain)[0] == pytest.approx(after - before, abs=0.51)
    assert re.search(r"\d % interval \+[\d.]+ … \+[\d.]+, 3 fresh seeds", gain)

    # Beside the baseline over seeds, then over the questions.
    row, _ = rows_of(text, "exact_match")
    wins = [night.means(number, "exact_match", fresh=True) for number in (0, winner)]
    told, low, high = cells(row)[2:5]
    assert cells(row)[:2] == pytest.approx(wins, abs=5e-4)
    assert told == pytest.approx(wins[1] - wins[0], abs=0.051) and low <= told <= high
    (row,) = rows_of(text, "rouge_l")
    told, _, _, low, high = cells(row)[2:7]
    assert told == pytest.approx(after - before, abs=0.51) and 0 < low < told < high


def rows_of(text: str, metric: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| `{metric}` |")]


def cells(line: str) -> list[float]:
    return [float(found.replace("−", "-").replace(",", "")) for found in CELL.findall(line)]
