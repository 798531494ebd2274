"""What the night came to, how sure that is, and why, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.report.model import ExperimentRow, FailureGroup, Headline, Status
from nightlab.report.numbers import count, fixed, listing
from nightlab.report.wording import Wording
from nightlab.search.simplicity import Standing, simplest_first
from nightlab.search.stress import BROKEN

__all__ = ["certainty_of", "choose_candidate", "choose_winners", "headline_of"]


def choose_winners(rows: Sequence[ExperimentRow], min_effect: float) -> list[ExperimentRow]:
    """Kept experiments, the largest effect first; of equal ones the one with the least code."""
    kept = {row.number: row for row in rows if row.verdict is VerdictKind.KEEP and not row.is_baseline and row.effect}
    standings = [Standing(row.number, row.effect.delta, row.lines) for row in kept.values() if row.effect]
    return [kept[one.number] for one in simplest_first(standings, min_effect)]


def choose_candidate(rows: Sequence[ExperimentRow]) -> ExperimentRow | None:
    """The best that looks better than the baseline, respects the guardrails and is not refuted."""
    open_kinds = (VerdictKind.INCONCLUSIVE, None)
    found = [
        row
        for row in rows
        if not row.is_baseline and row.verdict in open_kinds and row.effect and row.effect.delta > 0
        if not row.breaches
    ]
    return max(found, key=lambda row: row.effect.delta if row.effect else 0.0, default=None)


def headline_of(
    rows: Sequence[ExperimentRow],
    winner: ExperimentRow | None,
    candidate: ExperimentRow | None,
    failures: Sequence[FailureGroup],
    status: Status,
    stop_reason: str,
    wording: Wording,
) -> Headline:
    """The night in one sentence."""
    state = _status_words(status, stop_reason)
    metric = wording.metric
    if winner and winner.effect:
        relative = wording.relative(winner.effect)
        return Headline(
            tone="won",
            status=state,
            title=f"Won: {metric.name} {wording.before_and_after(winner)}",
            detail=f"{wording.change(winner.effect)}{f' ({relative})' if relative else ''}, "
            f"{wording.sure(winner.effect)}, {_seeds(winner)}; {metric.better}.",
        )
    tried = [row for row in rows if not row.is_baseline]
    if candidate and candidate.effect:
        return Headline(
            tone="running" if status == "running" else "open",
            status=state,
            title="No confirmed improvement yet" if status == "running" else "No confirmed improvement",
            detail=f"Best candidate: experiment {candidate.number:02d} ({candidate.title}), "
            f"{wording.both(candidate.effect)}: {candidate.label}.",
        )
    if not rows or not any(row.runs for row in rows):
        return Headline("running" if status == "running" else "none", state, "Nothing has been run yet", "")
    if not any(row.points for row in rows):
        causes = listing(f"{group.runs} × {group.cause}" for group in failures)
        cut = "The time ran out before the first run had ended." if status == "finished" else ""
        return Headline("none", state, "No run was measured", f"Every run so far failed: {causes}." if causes else cut)
    if not tried:
        detail = f"Only the baseline has been measured: {metric.name} {_noise_words(wording)}."
        return Headline(
            "running" if status == "running" else "none", state, "No experiment beyond the baseline", detail
        )
    if broken := [row for row in tried if row.label == BROKEN and row.effect]:
        best = max(broken, key=lambda row: row.effect.delta if row.effect else 0.0)
        return Headline(
            "running" if status == "running" else "none",
            state,
            "No improvement to keep so far" if status == "running" else "No improvement to keep",
            f"Experiment {best.number:02d} ({best.title}) beat the baseline, but not under stress: {best.reason}.",
        )
    return Headline(
        "running" if status == "running" else "none",
        state,
        "No improvement so far" if status == "running" else "No confirmed improvement",
        f"None of {count(len(tried), 'experiment')} beat the baseline, {metric.name} {_noise_words(wording)}.",
    )


def certainty_of(
    rows: Sequence[ExperimentRow],
    winner: ExperimentRow | None,
    candidate: ExperimentRow | None,
    study_confidence: float,
    wording: Wording,
) -> tuple[str, ...]:
    """How sure the headline is, one reason a sentence, the strongest first."""
    lines = _sure_of_winner(winner, study_confidence, wording) if winner else _sure_of_none(rows, candidate, wording)
    noise = wording.noise
    if noise and noise.deviation is not None:
        lines.append(
            f"A change of seed alone moves {wording.metric.name} by about "
            f"{fixed(noise.deviation, wording.value_decimals, unit=wording.metric.change_unit)} "
            f"(standard deviation of {count(noise.runs, 'baseline run')})."
        )
    elif noise:
        lines.append("The baseline has one run only, so how much a change of seed does is not known.")
    return tuple(lines)


def _sure_of_winner(winner: ExperimentRow, study_confidence: float, wording: Wording) -> list[str]:
    effect = winner.effect
    if effect is None:
        return [winner.reason]
    lines = [f"Experiment {winner.number:02d} was kept: {_as_sentence(winner.reason)}."]
    if effect.low is not None and wording.metric.min_effect > 0:
        lines.append(
            "The least the interval allows is an improvement of "
            f"{fixed(effect.low, wording.effect_decimals(effect) + 1, unit=wording.metric.change_unit)}; "
            f"the smallest worth having is {wording.least()}."
        )
    if winner.basis is Phase.CONFIRM:
        seeds = listing(str(p.seed) for p in winner.points if p.phase is Phase.CONFIRM and p.believed)
        paired = ", each beside the baseline on the same seed" if effect.paired else ""
        lines.append(f"It was measured again on seeds that had no part in finding it ({seeds}){paired}.")
    found = [p.value for p in winner.points if p.believed and p.phase is not winner.basis]
    if found and winner.mean is not None:
        lines.append(
            f"When it was found it showed {wording.value(fmean(found))}; "
            f"on the fresh seeds {wording.value(winner.mean)}."
        )
    if effect.confidence > study_confidence + 1e-9:
        lines.append(
            f"The interval was widened from {study_confidence * 100:.3g} % to {wording.confidence(effect)} "
            "for the number of finalists compared and of looks at them."
        )
    if winner.breaches:
        lines.append(f"Guardrails that do not hold: {listing(winner.breaches)}.")
    return lines


def _sure_of_none(rows: Sequence[ExperimentRow], candidate: ExperimentRow | None, wording: Wording) -> list[str]:
    lines = []
    if candidate:
        lines.append(f"Experiment {candidate.number:02d} is not believed yet: {_plain_end(candidate.reason)}.")
    kinds = Counter(row.label for row in rows if row.verdict is not None and not row.is_baseline)
    if kinds:
        lines.append(f"Verdicts: {listing(f'{number} {label}' for label, number in kinds.most_common())}.")
        lines.append(f"A win needs a whole interval beyond {wording.least()} on fresh seeds.")
    return lines


def _as_sentence(reason: str) -> str:
    """`its gain on 3 fresh seeds is beyond …`, of a reason whose effect is told elsewhere."""
    where, colon, beyond = _plain_end(reason).partition(": beyond ")
    if not colon or not where.startswith("on "):
        return _plain_end(reason)
    return f"its gain {where}{',' if ',' in where else ''} is beyond {beyond}"


def _plain_end(text: str) -> str:
    return text.rstrip(" .")


def _status_words(status: Status, stop_reason: str) -> str:
    words = {"running": "Still running", "finished": "Finished", "stopped": "Stopped early"}[status]
    return f"{words}: {stop_reason}" if stop_reason else words


def _seeds(row: ExperimentRow) -> str:
    runs = row.effect.runs if row.effect else row.runs
    return count(runs, "fresh seed") if row.basis is Phase.CONFIRM else count(runs, "run")


def _noise_words(wording: Wording) -> str:
    noise = wording.noise
    if noise is None:
        return "not measured"
    spread = f" ± {fixed(noise.deviation, wording.value_decimals)}" if noise.deviation is not None else ""
    return f"{wording.value(noise.mean, unit=False)}{spread} {wording.metric.unit}".rstrip()
