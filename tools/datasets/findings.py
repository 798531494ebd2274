"""What the figures say: one finding a matter, in a sentence with its numbers and in the catalog's symptoms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nightlab.tools.datasets.figures import DataFigures, Overlap, PairFigures, SideFigures
from nightlab.tools.datasets.shingles import ALIKE, MISSING

__all__ = ["About", "Finding", "data_findings"]

About = Literal["data", "prompt", "training", "evaluation", "resources"]

SMALL = 2_000
"""Examples below which the catalog calls data small."""
TRUNCATED, MOST_TRUNCATED = 0.05, 0.5
COPIES, NEAR_COPIES = 0.01, 0.05
LEAK = 0.01
"""Share of the evaluation rows seen in training from which the metric is not to be believed."""
BROKEN, EMPTY, FAULTY = 0.01, 0.01, 0.005
PADDING = 0.25
BALANCE = 10.0
SHIFT = 0.2
LENGTH_SHIFT = 2.0
PAIR_NOISE = 0.05
LONGER, LONGER_BY, FEWEST_PAIRS = 0.75, 1.5, 50
FEWEST_EVALUATION = 200
MIXED = 0.02
TOLD = 4


@dataclass(frozen=True)
class Finding:
    """One thing that was found; `is_loud` ones are told before the study starts as well."""

    about: About
    text: str
    symptoms: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    """Places and names to look at."""
    is_loud: bool = False


def data_findings(
    figures: DataFigures, *, thinking: bool | None = None, is_packed: bool = False, is_pretraining: bool = False
) -> list[Finding]:
    """Findings about the data, the most important first within each side.

    `thinking`: what `enable_thinking` is set to, None where it is not; `is_packed`: short rows share a sequence, so
    that nothing is padded; `is_pretraining`: rows need no prompt.
    """
    found: list[Finding] = []
    if figures.overlap:
        found += _overlap(figures.overlap)
    for side, which in ((figures.train, "training"), (figures.eval, "evaluation")):
        if side:
            found += _side(side, which, figures, is_pretraining=is_pretraining)
    if figures.train:
        found += _of_training(figures.train, figures.window, is_packed=is_packed)
        found += _thinking(figures.train, thinking)
    if figures.eval:
        found += _of_evaluation(figures.eval)
    if figures.train and figures.eval:
        found += _shift(figures.train, figures.eval)
    if figures.without_rows:
        found.append(Finding("data", f"No row is in {', '.join(figures.without_rows)}.", is_loud=True))
    found.append(Finding("data", f"Tokens {figures.counted}; languages {figures.told}."))
    return sorted(found, key=lambda finding: not finding.is_loud)


def _share(part: float, whole: float) -> str:
    """`12 of 300 (4 %)`."""
    return f"{part:,.0f} of {whole:,.0f} ({_percent(part / whole)})"


def _percent(share: float) -> str:
    return "under 0.1 %" if 0 < share < 0.001 else f"{100 * share:.3g} %"


def _overlap(overlap: Overlap) -> Iterator[Finding]:
    seen = overlap.exact / overlap.of if overlap.of else 0.0
    if overlap.exact:
        text = f"Leakage: {_share(overlap.exact, overlap.of)} evaluation rows are training rows, prompt and answer."
        yield Finding("evaluation", text, ("data_dup",), is_loud=seen >= LEAK)
    if overlap.prompts > overlap.exact:
        more = overlap.prompts - overlap.exact
        text = f"{_share(more, overlap.of)} evaluation rows have a prompt of the training data with another answer."
        yield Finding("evaluation", text, ("data_dup",), is_loud=more / overlap.of >= LEAK)
    if overlap.near:
        share = overlap.near / overlap.near_of
        text = (
            f"{_share(overlap.near, overlap.near_of)} evaluation rows looked at are near copies of a training row"
            f" (similarity ≥ {ALIKE}): the metric may reward memory."
        )
        is_much = share >= NEAR_COPIES
        yield Finding("evaluation", text, ("data_dup",) if is_much else (), is_loud=is_much)
    if not (overlap.prompts or overlap.near):
        looked = "" if overlap.near is not None else f" ({MISSING})"
        yield Finding("evaluation", f"No evaluation row stands in the training data{looked}.")


def _side(side: SideFigures, which: str, figures: DataFigures, *, is_pretraining: bool) -> Iterator[Finding]:
    about: About = "data" if which == "training" else "evaluation"
    yield Finding(about, _summary(side, which))
    if side.broken:
        share = side.broken_rows / side.rows
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in list(side.broken.items())[:TOLD])
        text = f"{_share(side.broken_rows, side.rows)} rows of the {which} data are broken ({reasons})."
        symptoms = ("data_noise",) if share >= BROKEN else ()
        yield Finding(about, text, symptoms, side.first_broken, is_loud=share >= BROKEN)
    if not side.sampled:
        return
    if side.encoding_faults:
        share = side.encoding_faults / side.sampled
        text = f"{_share(side.encoding_faults, side.sampled)} {which} rows hold broken encoding."
        yield Finding(about, text, ("data_noise",) if share >= FAULTY else ())
    if side.empty_answers:
        share = side.empty_answers / side.sampled
        text = f"{_share(side.empty_answers, side.sampled)} {which} rows have an empty answer."
        yield Finding(about, text, ("data_noise",) if share >= EMPTY else (), is_loud=share >= PAIR_NOISE)
    if side.empty_prompts and side.empty_prompts < side.sampled and not is_pretraining:
        yield Finding("prompt", f"{_share(side.empty_prompts, side.sampled)} {which} rows have an empty prompt.")
    if side.template_tokens:
        tokens = ", ".join(f"`{token}` in {rows:,}" for token, rows in list(side.template_tokens.items())[:TOLD])
        most = max(side.template_tokens.values()) / side.sampled
        text = f"Texts of the {which} data hold tokens that a chat template adds itself: {tokens} rows."
        yield Finding("prompt", text, ("format_errors",), is_loud=most >= MOST_TRUNCATED)
    if side.truncated is not None:
        yield from _truncation(side, which, figures.window or 0, about)


def _summary(side: SideFigures, which: str) -> str:
    part = "" if side.sampled == side.good_rows else f", {side.sampled:,} of them looked at closely"
    rows = f"{side.rows:,} {which} rows" + ("" if side.is_whole else " read, the files are larger")
    languages = ", ".join(f"{name} {_percent(share)}" for name, share in list(side.languages.items())[:TOLD])
    text = f"{rows}{part}: {side.tokens}; answers {side.answer_tokens}."
    return text + (f" Languages: {languages}." if languages else "")


def _truncation(side: SideFigures, which: str, window: int, about: About) -> Iterator[Finding]:
    share = side.truncated or 0.0
    if share:
        text = f"{_percent(share)} of the {which} rows are longer than {window:,} tokens and are cut."
        symptoms = ("truncation_high",) if share > TRUNCATED else ()
        yield Finding(about, text, symptoms, is_loud=share >= MOST_TRUNCATED)


def _of_training(side: SideFigures, window: int | None, *, is_packed: bool) -> Iterator[Finding]:
    if not side.sampled:
        return
    if side.is_whole and side.good_rows < SMALL:
        yield Finding("data", f"{side.good_rows:,} usable training rows are few.", ("data_small",))
    if side.copies:
        share = side.copies / side.sampled
        text = f"{_share(side.copies, side.sampled)} training rows repeat an earlier one exactly."
        yield Finding("data", text, ("data_dup",) if share >= COPIES else ())
    looked_at = min(side.close, side.sampled - side.copies)
    if side.near_copies is None:
        yield Finding("data", f"{MISSING[:1].upper()}{MISSING[1:]}.")
    elif side.near_copies:
        share = side.near_copies / looked_at
        text = (
            f"{_share(side.near_copies, looked_at)} training rows nearly repeat an earlier one (similarity ≥ {ALIKE})."
        )
        yield Finding("data", text, ("data_dup",) if share >= NEAR_COPIES else ())
    if side.contradictions and not side.pairs:
        text = f"{side.contradictions:,} training prompts have several different answers."
        yield Finding("data", text, ("data_noise",) if side.contradictions / side.sampled >= COPIES else ())
    if side.short_answers and not side.labels:
        yield Finding("data", f"{_share(side.short_answers, side.sampled)} answers have one or two characters.")
    if window and side.tokens.mean < PADDING * window and not is_packed:
        share = side.tokens.mean / window
        text = (
            f"A training row fills {_percent(share)} of the window of {window:,} tokens on average; nothing is packed."
        )
        yield Finding("training", text, ("padding_waste",))
    yield from _labels(side.labels)
    if side.pairs:
        yield from _pairs(side.pairs, side.sampled)


def _labels(labels: Mapping[str, int]) -> Iterator[Finding]:
    if len(labels) < 2:
        return
    total, most, least = sum(labels.values()), max(labels.values()), min(labels.values())
    (first, _), (last, _) = next(iter(labels.items())), list(labels.items())[-1]
    text = (
        f"{len(labels)} classes: `{_short(first)}` in {_share(most, total)} rows, `{_short(last)}` in {least:,};"
        f" always saying the first is right in {_percent(most / total)}."
    )
    yield Finding("data", text, ("data_imbalance",) if most / least >= BALANCE else ())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 24 else f"{text[:23]}…"


def _pairs(pairs: PairFigures, rows: int) -> Iterator[Finding]:
    noise = pairs.equal + pairs.alike
    if noise:
        text = f"In {_percent(pairs.equal)} of the pairs both answers are the same, in {_percent(pairs.alike)} nearly."
        yield Finding("data", text, ("pref_noise",) if noise >= PAIR_NOISE else ())
    low, high = sorted((pairs.chosen_median, pairs.rejected_median))
    text = (
        f"The chosen answer is the longer one in {_percent(pairs.chosen_longer)} of the pairs (medians"
        f" {pairs.chosen_median:.0f} and {pairs.rejected_median:.0f} characters)"
    )
    is_biased = pairs.chosen_longer >= LONGER and high >= LONGER_BY * max(low, 1) and rows >= FEWEST_PAIRS
    yield Finding("data", f"{text}{': length alone tells them apart' if is_biased else ''}.", ("verbose",) * is_biased)


def _thinking(side: SideFigures, thinking: bool | None) -> Iterator[Finding]:
    share = side.thinking / side.sampled if side.sampled else 0.0
    switch = "" if thinking is None else f"; `enable_thinking` is {str(thinking).lower()}"
    if MIXED < share < 1 - MIXED:
        text = f"{_share(side.thinking, side.sampled)} training answers hold thinking tags, the others none{switch}."
        yield Finding("prompt", text, ("think_tags",))
    elif share >= 1 - MIXED and thinking is False:
        text = "All training answers think, but `enable_thinking` is false: what they thought is cut out."
        yield Finding("prompt", text, ("think_tags",), is_loud=True)
    elif share <= MIXED and thinking is True and side.sampled:
        text = (
            "No training answer thinks, but `enable_thinking` is true: at prediction the model may think all the same."
        )
        yield Finding("prompt", text, ("think_tags", "low_loss_low_metric"))
    elif share:
        yield Finding("prompt", f"{_share(side.thinking, side.sampled)} training answers hold thinking tags{switch}.")


def _of_evaluation(side: SideFigures) -> Iterator[Finding]:
    if 0 < side.good_rows < FEWEST_EVALUATION and side.is_whole:
        # Half the 95 % interval of a share of one half: the widest there is.
        margin = 0.98 / side.good_rows**0.5
        text = f"{side.good_rows:,} evaluation rows tell an accuracy to ±{100 * margin:.0f} points only."
        yield Finding("evaluation", text)


def _shift(train: SideFigures, evaluation: SideFigures) -> Iterator[Finding]:
    names = {*train.languages, *evaluation.languages}
    apart = sum(abs(train.languages.get(one, 0.0) - evaluation.languages.get(one, 0.0)) for one in names) / 2
    if apart >= SHIFT:
        one, other = (
            ", ".join(f"{n} {_percent(s)}" for n, s in list(side.languages.items())[:TOLD])
            for side in (train, evaluation)
        )
        text = f"Training and evaluation data are in different languages: {one} against {other}."
        yield Finding("evaluation", text, ("shift",))
    low, high = sorted((train.tokens.median, evaluation.tokens.median))
    if low and high / low >= LENGTH_SHIFT:
        text = (
            f"Rows differ in length: median {train.tokens.median:.0f} tokens in training,"
            f" {evaluation.tokens.median:.0f} in evaluation."
        )
        yield Finding("evaluation", text, ("shift",))
