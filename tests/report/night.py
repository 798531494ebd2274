"""A made-up night with everything in it: wins, losses, ties, failures, an array, fresh seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import (
    Effect,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Observation,
    Phase,
    Run,
    RunState,
    Verdict,
    VerdictKind,
    run_key,
)
from nightlab.report.build import build_report
from nightlab.report.model import StudyReport
from nightlab.search.belief import describe

START = datetime(2026, 3, 7, 22, 30, tzinfo=UTC)
GIBIBYTE = 2**30


def make_study(**changes: Any) -> Study:
    document: dict[str, Any] = {
        "study": "pydoc-night",
        "goal": "Lower the bits per byte of a small byte-level model on held-out documentation.",
        "scenario": "pydoc",
        "method": "pretrain",
        "base_model": "byte-mlp",
        "objective": {
            "metric": "val_bpb",
            "direction": "minimize",
            "unit": "bits/byte",
            "plausible": [0.5, 9],
            "min_effect": 0.02,
        },
        "guardrails": [{"metric": "latency_ms", "max": 40}],
        "parameters": {
            "learning_rate": 0.001,
            "width": 128,
            "context": 8,
            "activation": "tanh",
            "weight_decay": 0.0,
            "log_every": 50,
            "batch": 64,
            "warmup": 0,
        },
        "space": {
            "learning_rate": {"levels": [0.003, 0.01], "scale": "log", "technique": "learning-rate-sweep"},
            "width": {"levels": [256, 512]},
            "context": {"levels": [16, 32]},
            "activation": {"levels": ["relu", "gelu"]},
            "weight_decay": {"levels": [0.01, 0.1]},
            "log_every": {"levels": [10, 200]},
            "batch": {"levels": [32, 128]},
            "warmup": {"levels": [50]},
        },
        "locked": ["log_every"] if changes.pop("lock", False) else [],
        "frozen": ["prepare.py", "data/heldout.bin"],
        "launcher": {"command": "python train.py --params {params_file} --seed {seed}"},
        "backend": {"slots": 2},
        "budget": {"runs": 48, "duration": "5m"},
    }
    return Study.model_validate(document | changes)


@dataclass(frozen=True)
class FactorEffect:
    factor: str
    level: Scalar | None
    effect: Effect | None
    label: str
    importance: float | None = None
    confounded_with: tuple[str, ...] = ()
    interactions: tuple[str, ...] = ()


@dataclass(frozen=True)
class MainEffect:
    factor: str
    level: Scalar
    effect: Effect
    confounded_with: tuple[str, ...] = ()


@dataclass
class Night:
    """Records that grow as a ledger's would."""

    study: Study = field(default_factory=make_study)
    experiments: list[Experiment] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    observations: dict[str, Observation] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    factor_effects: list[FactorEffect] = field(default_factory=list)
    main_effects: list[MainEffect] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    slot_free_at: list[datetime] = field(default_factory=list)

    def experiment(self, changed: dict[str, Scalar], phase: Phase, variable: str, **more: Any) -> int:
        number = len(self.experiments)
        study = self.study
        values: dict[str, Any] = {
            "study": study.study,
            "number": number,
            "scenario": study.scenario,
            "method": study.method,
            "base_model": study.base_model,
            "variable": variable,
            "parameters": study.parameters | changed,
            "changed": changed,
            "phase": phase,
            "reason": "first look at the baseline" if number == 0 else f"{variable} is next in tier order",
            "state": ExperimentState.REVIEWED,
            "branch": f"experiment-{number:02d}-{study.scenario}-{study.method}-{variable}",
            "base_commit": "97c4bb3d0f3a5b1e1f0c8e5d7a2b4c6d8e0f1a2b",
            "commit": f"{number + 1:040x}",
        }
        self.experiments.append(Experiment(**(values | more)))
        return number

    def run(
        self,
        number: int,
        seed: int,
        phase: Phase,
        value: float | None,
        *,
        cause: str = "exit-status",
        detail: str = "",
        state: RunState | None = None,
        latency_ms: float = 31.0,
        seconds: float = 7.0,
    ) -> None:
        key = run_key(self.study.study, number, 1, seed)
        if not self.slot_free_at:
            self.slot_free_at = [START] * self.study.backend.slots
        slot = min(range(len(self.slot_free_at)), key=lambda s: self.slot_free_at[s])
        begun = self.slot_free_at[slot] + timedelta(seconds=0.1)
        ended = begun + timedelta(seconds=seconds * self.noise.uniform(0.85, 1.2))
        self.slot_free_at[slot] = ended
        final = state or (RunState.FAILED if value is None else RunState.REVIEWED)
        failed = final is RunState.FAILED
        self.runs.append(
            Run(
                key=key,
                study=self.study.study,
                number=number,
                seed=seed,
                phase=phase,
                reason="",
                state=final,
                cause=cause if failed else None,
                detail=detail,
                ended_at=ended,
            )
        )
        self.jobs.append(
            Job(
                key=key,
                backend="local",
                native_id=str(4000 + len(self.jobs)),
                slot=slot,
                directory="",
                worktree="",
                state=JobState.ENDED,
                intent_at=begun,
                started_at=begun,
                ended_at=ended,
                exit_code=1 if failed else 0,
                wall_seconds=(ended - begun).total_seconds(),
                cpu_seconds=(ended - begun).total_seconds() * 0.97,
                peak_memory_bytes=int(GIBIBYTE * self.noise.uniform(0.2, 0.4)),
            )
        )
        if value is not None:
            metrics = {self.study.objective.metric: value, "latency_ms": latency_ms}
            self.observations[key] = Observation(key=key, values=metrics)

    def judge(
        self,
        number: int,
        kind: VerdictKind,
        label: str,
        reason: str,
        effect: Effect | None,
        basis: Phase = Phase.SCREEN,
    ) -> None:
        self.verdicts[number] = Verdict(
            number=number, kind=kind, label=label, reason=reason, effect=effect, basis=basis
        )

    def worse_by(self, amount: float) -> float:
        """A value that much worse than the baseline, with the noise of a seed."""
        sign = -1 if self.study.maximize else 1
        return BASELINE + sign * amount + self.noise.gauss(0, 0.006)

    def effect(self, delta: float, half_width: float, runs: int = 1, **more: Any) -> Effect:
        return Effect(
            delta=delta,
            low=delta - half_width,
            high=delta + half_width,
            unit=self.study.objective.unit,
            runs=runs,
            baseline_runs=3,
            **more,
        )

    def report(self, **changes: Any) -> StudyReport:
        values: dict[str, Any] = {
            "factor_effects": self.factor_effects,
            "main_effects": self.main_effects,
            "started_at": START,
            "finished_at": max(self.slot_free_at, default=START),
            "versions": {"nightlab": "0.1.0", "python": "3.12.4"},
        }
        return build_report(
            self.study,
            self.experiments,
            self.runs,
            self.jobs,
            self.observations,
            self.verdicts,
            **(values | changes),
        )


SINGLES: Sequence[tuple[str, Scalar, float, str]] = (
    ("learning_rate", 0.003, 0.17, "promising"),
    ("learning_rate", 0.01, 0.24, "promising"),
    ("width", 256, 0.055, "promising"),
    ("width", 512, 0.09, "promising"),
    ("context", 16, -0.012, "too close to call"),
    ("context", 32, -0.085, "worse"),
    ("activation", "relu", 0.025, "promising"),
    ("activation", "gelu", 0.03, "promising"),
    ("weight_decay", 0.01, 0.002, "without effect"),
    ("weight_decay", 0.1, -0.001, "without effect"),
    ("log_every", 10, 0.0, "without effect"),
    ("log_every", 200, 0.001, "without effect"),
    ("batch", 32, -0.06, "worse"),
)
BASELINE = 2.872
BEST: dict[str, Scalar] = {"learning_rate": 0.01, "width": 256, "activation": "gelu"}
OVERALL = {
    "learning_rate": "promising",
    "width": "promising",
    "context": "unknown",
    "activation": "promising",
    "weight_decay": "without effect",
    "log_every": "without effect",
    "batch": "worse",
    "warmup": "not tried",
}


def baseline_only(night: Night | None = None) -> Night:
    night = night or Night()
    night.experiment({}, Phase.BASELINE, "baseline")
    for seed in range(3):
        night.run(0, seed, Phase.BASELINE, night.worse_by(0))
    return night


def screened(night: Night | None = None) -> Night:
    """Baseline and single changes, one of them failing and one breaking a guardrail; nothing confirmed."""
    night = baseline_only(night)
    for name, value, gain, label in SINGLES:
        slug = f"{name}-{value}".replace("_", "-").replace(".", "-")
        number = night.experiment({name: value}, Phase.SCREEN, slug, technique=f"{name.replace('_', '-')}-sweep")
        if (name, value) == ("width", 512):
            night.run(number, 0, Phase.SCREEN, night.worse_by(-gain), latency_ms=55.0, state=RunState.REJECTED)
            night.judge(number, VerdictKind.REJECTED, "rejected", "latency_ms 55 is above 40", None)
            continue
        night.run(number, 0, Phase.SCREEN, night.worse_by(-gain))
        effect = night.effect(gain, 0.004 if "without" in label else 0.018)
        seen = "unknown" if label == "too close to call" else label
        night.factor_effects.append(FactorEffect(name, value, effect, seen))
        kind = VerdictKind.DISCARD if label in ("worse", "without effect") else VerdictKind.INCONCLUSIVE
        night.judge(number, kind, label, f"{describe(effect)} from 1 run against 3 of the baseline: {label}", effect)
    night.factor_effects += [FactorEffect(name, None, None, label) for name, label in OVERALL.items()]
    night.factor_effects.append(FactorEffect("warmup", 50, None, "not tried"))
    number = night.experiment({"batch": 128}, Phase.SCREEN, "batch-128")
    night.run(number, 0, Phase.SCREEN, None, detail="Traceback (most recent call last):\n  …\nMemoryError: batch 128")
    night.judge(number, VerdictKind.FAILED, "failed", "its run failed: no value to compare", None)
    return night


def won(night: Night | None = None) -> Night:
    """A whole night: screened, combined in an array, the best confirmed on three fresh seeds."""
    night = screened(night)
    array: list[dict[str, Scalar]] = [
        {"learning_rate": 0.01},
        {"learning_rate": 0.01, "activation": "gelu"},
        {"width": 256, "activation": "gelu"},
        {"learning_rate": 0.01, "width": 256, "activation": "gelu"},
    ]
    gains = {"learning_rate": 0.24, "width": 0.055, "activation": 0.03}
    for index, changed in enumerate(array):
        number = night.experiment(changed, Phase.COMBINE, f"combine-{index + 1}")
        gain = sum(gains[name] for name in changed)
        night.run(number, 0, Phase.COMBINE, night.worse_by(-gain))
        night.judge(
            number,
            VerdictKind.INCONCLUSIVE,
            "promising",
            "found by one run, not confirmed",
            night.effect(gain, 0.018),
            Phase.COMBINE,
        )
    for name, level in BEST.items():
        mixed = ("width × activation",) if name == "learning_rate" else ()
        night.main_effects.append(MainEffect(name, level, night.effect(gains[name], 0.013, 4), mixed))
    confirm(night, len(night.experiments) - 1, 0.321)
    return night


def confirm(night: Night, number: int, gain: float, half_width: float = 0.03) -> None:
    values = []
    for seed in (101, 102, 103):
        if not any(run.number == 0 and run.seed == seed for run in night.runs):
            night.run(0, seed, Phase.CONFIRM, night.worse_by(0))
        values.append(night.worse_by(-gain))
        night.run(number, seed, Phase.CONFIRM, values[-1])
    night.judge(
        number,
        VerdictKind.KEEP,
        "confirmed",
        "the whole interval lies beyond the smallest effect worth having, on fresh seeds",
        night.effect(abs(BASELINE - fmean(values)), half_width, 3, paired=True),
        Phase.CONFIRM,
    )


def all_failed() -> Night:
    night = Night()
    night.experiment({}, Phase.BASELINE, "baseline")
    for seed in range(3):
        night.run(0, seed, Phase.BASELINE, None, detail="ModuleNotFoundError: No module named 'torch'")
    night.judge(0, VerdictKind.FAILED, "failed", "exit-status", None, Phase.BASELINE)
    return night


def long_night(experiments: int = 200) -> Night:
    night = baseline_only(Night(make_study(backend={"slots": 8}, budget={"duration": "9h"})))
    for index in range(experiments):
        number = night.experiment(
            {"learning_rate": round(0.001 + 0.0001 * index, 5)}, Phase.SCREEN, f"learning-rate-{index}"
        )
        gain = 0.3 * (1 - abs(index / experiments - 0.6)) - 0.2
        if index % 17 == 5:
            night.run(number, 0, Phase.SCREEN, None, cause="timeout", seconds=900)
            night.judge(number, VerdictKind.FAILED, "failed", "timeout", None)
            continue
        value = 9.4 if index % 41 == 7 else night.worse_by(-gain)
        night.run(number, 0, Phase.SCREEN, value, seconds=600)
        effect = night.effect(BASELINE - value, 0.018)
        label = "promising" if effect.delta > 0.018 else "worse" if effect.delta < -0.018 else "unknown"
        rate = night.experiments[-1].parameters["learning_rate"]
        night.factor_effects.append(FactorEffect("learning_rate", rate, effect, label))
        kind = VerdictKind.DISCARD if label == "worse" else VerdictKind.INCONCLUSIVE
        night.judge(number, kind, label, f"{describe(effect)} from 1 run: {label}", effect)
    confirm(night, int(experiments * 0.6), 0.1)
    return night
