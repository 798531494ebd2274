"""Measures training and evaluation data: one pass over each file, then a closer look at a fixed sample.

The same files give the same figures. Memory is bounded by the samples, time by `LONGEST_READ` a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.data import DataSettings
from nightlab.errors import ConfigError, Fault
from nightlab.tools.datasets.example import Example
from nightlab.tools.datasets.figures import DataFigures, Lengths, Overlap, PairFigures, SideFigures
from nightlab.tools.datasets.languages import language_shares
from nightlab.tools.datasets.layouts import BrokenRowError, Layout, guess_layout, to_example
from nightlab.tools.datasets.marks import has_encoding_fault, has_thinking, template_tokens
from nightlab.tools.datasets.rows import is_whole, read_rows
from nightlab.tools.datasets.sampling import Sample, text_key
from nightlab.tools.datasets.shingles import ALIKE, NearCopies, shingles, similarity
from nightlab.tools.datasets.sources import Source, sources_of
from nightlab.tools.datasets.tokens import TokenCounter, token_counter

__all__ = ["measure_data"]

CLOSE = 5_000
"""Rows of a sample whose tokens, language and near copies are looked at."""
MOST_LABELS = 200
FEWEST_A_LABEL = 5
MOST_KEYS = 2_000_000
"""Evaluation rows that are compared exactly."""
TOLD = 3


@dataclass
class _Side:
    """One side while it is read."""

    names: tuple[str, ...]
    sample: Sample
    rows: int = 0
    is_whole: bool = True
    broken: Counter[str] = field(default_factory=Counter)
    first_broken: list[str] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)

    def read(self, sources: Sequence[Source]) -> Iterator[Example]:
        for source in sources:
            for file in source.files:
                self.is_whole = self.is_whole and is_whole(file)
                yield from self._read_file(file, source)

    def _read_file(self, file: Path, source: Source) -> Iterator[Example]:
        layout = source.layout
        for row in read_rows(file):
            self.rows += 1
            place = f"{file.name}, row {row.number}"
            if row.fault:
                self._break(place, row.fault)
                continue
            try:
                layout = layout or _layout_of(row.value, source, file)
                example = to_example(row.value, layout)
            except BrokenRowError as error:
                self._break(place, str(error))
            else:
                self._take(example)
                yield example

    def _take(self, example: Example) -> None:
        self.sample.add(example)
        label = example.label if example.label is not None else example.response
        if len(self.labels) <= MOST_LABELS or label in self.labels:
            self.labels[label[:80]] += 1

    def _break(self, place: str, reason: str) -> None:
        self.broken[reason] += 1
        if len(self.first_broken) < TOLD:
            self.first_broken.append(f"{place}: {reason}")


def _layout_of(value: object, source: Source, file: Path) -> Layout:
    """The layout by the first row that shows it. Raises ConfigError where an object's keys tell nothing."""
    if isinstance(value, str):
        return Layout("text")
    if not isinstance(value, dict):
        raise BrokenRowError("is no object of columns")
    layout = guess_layout(value, source.columns, source.format)
    if layout is None:
        keys = ", ".join(map(str, list(value)[:8]))
        mend = "say what they hold, e.g. data.columns: {prompt: question, response: answer}"
        raise ConfigError(Fault(f"the columns {keys} tell no format", file=file, key="data.columns", mend=mend))
    return layout


def measure_data(settings: DataSettings, root: Path, *, window: int | None = None, base_model: str = "") -> DataFigures:
    """Figures of the study's data; paths are below `root`. `window` is the longest row in tokens.

    Raises ConfigError for data that are not there, cannot be read or whose format cannot be told.
    """
    counter = token_counter(settings.tokenizer, base_model, root=root)
    train, evaluation = (
        _Side(tuple(names), Sample(settings.sample)) for names in (settings.train_names, settings.eval_names)
    )
    train_sources, eval_sources = (sources_of(settings, root, side) for side in ("train", "eval"))
    keys: list[tuple[int, int]] = []
    try:
        for example in evaluation.read(eval_sources):
            if len(keys) < MOST_KEYS:
                keys.append(_keys(example))
        common = _common_keys(train.read(train_sources), set(keys))
    except OSError as error:
        raise ConfigError(Fault(f"cannot be read: {error}", key="data")) from error
    return DataFigures(
        _figures(train, counter, window) if train.rows else None,
        _figures(evaluation, counter, window) if evaluation.rows else None,
        _overlap(train, evaluation, keys, common) if train.rows and evaluation.rows else None,
        window,
        counter.how,
        language_shares([])[1],
        tuple(name for side in (train, evaluation) if not side.rows for name in side.names),
    )


def _common_keys(examples: Iterable[Example], keys: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The keys that training examples share with `keys`: their prompt, or prompt and answer."""
    prompts, common = {prompt for prompt, _ in keys}, set()
    for example in examples:
        if keys and (key := _keys(example))[0] in prompts:
            common.add(key)
    return common


def _overlap(train: _Side, evaluation: _Side, keys: Sequence[tuple[int, int]], common: set[tuple[int, int]]) -> Overlap:
    prompts = {prompt for prompt, _ in common}
    near, near_of = _near_overlap(train.sample.closest(CLOSE), evaluation.sample.closest(CLOSE), prompts)
    return Overlap(
        exact=sum(key in common for key in keys),
        prompts=sum(prompt in prompts for prompt, _ in keys),
        near=near,
        of=len(keys),
        near_of=near_of,
    )


def _keys(example: Example) -> tuple[int, int]:
    """Hashes of the prompt (of the text itself where there is none) and of the answer."""
    return text_key(example.prompt or example.response), text_key(example.response)


def _whole(example: Example) -> str:
    return f"{example.prompt}\n{example.response}".strip()


def _near_overlap(train: Sequence[Example], evaluation: Sequence[Example], prompts: set[int]) -> tuple[int | None, int]:
    """Evaluation rows that are near copies, without those whose prompt is the same; and how many were looked at."""
    texts = [_whole(example) for example in train]
    copies = NearCopies(texts)
    if not copies.is_able:
        return None, 0
    for text in texts:
        copies.is_known(text, keep=True)
    rest = [example for example in evaluation if _keys(example)[0] not in prompts]
    return sum(copies.is_known(_whole(example), keep=False) for example in rest), len(evaluation)


def _figures(side: _Side, counter: TokenCounter, window: int | None) -> SideFigures:
    sample, close = side.sample.examples(), side.sample.closest(CLOSE)
    answers = [counter.of(example.response, example.response_length) for example in close]
    totals = [
        counter.of(example.prompt, example.prompt_length)
        + max(answer, counter.of(example.rejected or "", example.rejected_length))
        for example, answer in zip(close, answers, strict=True)
    ]
    copies, contradictions, distinct = _repeats(sample)
    marks: Counter[str] = Counter(token for example in sample for token in template_tokens(_whole(example)))
    return SideFigures(
        names=side.names,
        rows=side.rows,
        is_whole=side.is_whole,
        sampled=len(sample),
        close=len(close),
        broken=dict(side.broken.most_common()),
        first_broken=tuple(side.first_broken),
        copies=copies,
        near_copies=_near_copies(distinct),
        contradictions=contradictions,
        tokens=Lengths.of(totals),
        answer_tokens=Lengths.of(answers),
        truncated=sum(total > window for total in totals) / len(totals) if window and totals else None,
        empty_answers=sum(_is_empty(example) for example in sample),
        empty_prompts=sum(not example.prompt.strip() for example in sample),
        short_answers=sum(0 < len(example.response.strip()) <= 2 for example in sample),
        labels=_labels(side, sample),
        languages=language_shares(_whole(example) for example in close)[0],
        template_tokens=dict(marks.most_common()),
        thinking=sum(has_thinking(example.response) for example in sample),
        encoding_faults=sum(has_encoding_fault(_whole(example)) for example in sample),
        pairs=_pairs(sample),
    )


def _is_empty(example: Example) -> bool:
    return not example.response.strip() or (example.rejected is not None and not example.rejected.strip())


def _repeats(sample: Sequence[Example]) -> tuple[int, int, list[Example]]:
    """Rows that repeat an earlier one, prompts with different answers, and the rows that repeat none."""
    seen: dict[int, set[tuple[int, int]]] = {}
    distinct = []
    for example in sample:
        prompt, answer = _keys(example)
        answers = seen.setdefault(prompt, set())
        if (pair := (answer, text_key(example.rejected or ""))) not in answers:
            answers.add(pair)
            distinct.append(example)
    contradictions = sum(len({answer for answer, _ in answers}) > 1 for answers in seen.values())
    return len(sample) - len(distinct), contradictions, distinct


def _near_copies(distinct: Sequence[Example]) -> int | None:
    texts = [_whole(example) for example in distinct[:CLOSE]]
    copies = NearCopies(texts)
    return sum(copies.is_known(text, keep=True) for text in texts) if copies.is_able else None


def _labels(side: _Side, sample: Sequence[Example]) -> dict[str, int]:
    """Rows of each class: the declared one, or the answers where there are but a few different ones."""
    total, declared = side.labels.total(), any(example.label is not None for example in sample)
    is_few = 1 < len(side.labels) <= MOST_LABELS and total >= FEWEST_A_LABEL * len(side.labels)
    return dict(side.labels.most_common()) if (declared and len(side.labels) <= MOST_LABELS) or is_few else {}


def _pairs(sample: Sequence[Example]) -> PairFigures | None:
    pairs = [example for example in sample if example.rejected is not None]
    if not pairs:
        return None
    equal = [text_key(one.response) == text_key(one.rejected or "") for one in pairs]
    alike = [
        not same and similarity(shingles(one.response), shingles(one.rejected or "")) >= ALIKE
        for one, same in zip(pairs, equal, strict=True)
    ]
    lengths = [(one.response_length, one.rejected_length) for one in pairs]
    longer = [chosen > rejected for chosen, rejected in lengths if chosen != rejected]
    return PairFigures(
        equal=sum(equal) / len(pairs),
        alike=sum(alike) / len(pairs),
        chosen_longer=sum(longer) / len(longer) if longer else 0.5,
        chosen_median=Lengths.of([chosen for chosen, _ in lengths]).median,
        rejected_median=Lengths.of([rejected for _, rejected in lengths]).median,
    )
