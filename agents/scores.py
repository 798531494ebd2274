"""What the lab scored itself, kept beside a run's logs: for the audit, the result card and people."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from nightlab.agents.context import Lab
from nightlab.agents.prompts import quoted
from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths
from nightlab.knowledge.records import Experiment, Run
from nightlab.search.low_runs import is_low
from nightlab.tools.metrics.base import Reading
from nightlab.tools.redaction import Redactor

if TYPE_CHECKING:
    from nightlab.tools.scoring.score import Score

__all__ = ["check_examples", "keep_scores", "kept_bad_cases", "kept_scores", "shown_cases", "summary_of"]


def keep_scores(paths: JobPaths, readings: dict[str, Reading], redactor: Redactor) -> None:
    """Write the scores among `readings` and their bad cases, without secrets; nothing where there are none.

    Raises DiskError when the disk takes no more.
    """
    scores = {name: reading.score for name, reading in readings.items() if reading.score is not None}
    if not scores:
        return
    told = redactor.redact_data({name: summary_of(score) for name, score in scores.items()})
    write_atomically(paths.scores, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    cases = [{"metric": name, **asdict(case)} for name, score in scores.items() for case in score.bad_cases]
    lines = [json.dumps(redactor.redact_data(case), ensure_ascii=False) + "\n" for case in cases]
    write_atomically(paths.bad_cases, "".join(lines))


def summary_of(score: Score) -> dict[str, Any]:
    """A score as JSON: everything but the texts."""
    return {
        "score": score.settings.kind,
        "value": score.value,
        "examples": score.examples,
        "broken_rows": score.rows.broken,
        "interval_over_examples": asdict(score.interval) if score.interval else None,
        "slices": [
            {**asdict(part), "value": part.value if math.isfinite(part.value) else None} for part in score.slices
        ],
    }


def kept_scores(paths: JobPaths) -> dict[str, dict[str, Any]]:
    """Metric → its summary, as `keep_scores` wrote it; empty where the run was not scored by the lab."""
    try:
        scores = json.loads(paths.scores.read_bytes())
    except (OSError, ValueError):
        return {}
    return scores if isinstance(scores, dict) else {}


def kept_bad_cases(paths: JobPaths, metric: str) -> list[dict[str, Any]]:
    """The worst examples by one metric, the worst first, as `keep_scores` wrote them; none where there are none."""
    try:
        rows = [json.loads(line) for line in paths.bad_cases.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict) and row.get("metric") == metric]


def shown_cases(lab: Lab, run: Run, *, most: int, longest: int) -> list[str]:
    """The worst answers of a run by the lab's own scores, for a model to see; each about `longest` characters.

    Texts are quoted as data; the scores take turns, the objective's first.
    """
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    scored = [name for name in lab.study.metric_names if lab.study.source_of(name).score]
    by_metric = [[_shown(case, longest) for case in kept_bad_cases(paths, name)[:most]] for name in scored]
    turns = (case for turn in zip_longest(*by_metric) for case in turn if case is not None)
    return list(dict.fromkeys(turns))[:most]


def _shown(case: dict[str, Any], longest: int) -> str:
    # A prompt says most, and of it the end.
    prompt, label, answer = (str(case.get(name) or "") for name in ("prompt", "label", "prediction"))
    share = longest // 4
    asked = f"asked {quoted(prompt, 2 * share)}, " if prompt else ""
    return f"{asked}expected {quoted(label, share)}, answered {quoted(answer, share)}"


def check_examples(lab: Lab, experiment: Experiment, paths: JobPaths) -> list[str]:
    """Why each of the lab's own scores is no fair comparison: another number of examples than any baseline run had.

    A run at low fidelity may have fewer: of LLaMA-Factory's `max_samples` the evaluation gets no more either.
    """
    scored = [name for name, source in lab.study.metrics.items() if source.score]
    if not scored or experiment.number == 0 or is_low(lab.study, experiment.changed):
        return []
    baseline = [kept_scores(lab.paths.job(0, run.seed, run.attempt)) for run in lab.ledger.runs(0)]
    ours = kept_scores(paths)
    reasons = []
    for name in scored:
        counts = {held[name]["examples"] for held in baseline if name in held}
        if counts and name in ours and ours[name]["examples"] not in counts:
            theirs = " or ".join(map(str, sorted(counts)))
            reasons.append(f"{name} was scored on {ours[name]['examples']} examples, the baseline's on {theirs}")
    return reasons
