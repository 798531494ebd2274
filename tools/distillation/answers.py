"""A teacher's answers as training data: asked once, filtered as often as one likes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.files import write_atomically
from nightlab.errors import ConfigError, Fault
from nightlab.tools.chat_pace import Pace
from nightlab.tools.distillation.asking import Asked, Question, ask_all
from nightlab.tools.distillation.filters import Filters, Kept, filtered
from nightlab.tools.distillation.journal import Journal
from nightlab.tools.distillation.prompts import OutputFormat, Prompt, Prompts, read_prompts, row_of
from nightlab.tools.distillation.teacher import Connection, Said, Teacher

__all__ = ["AnswerReport", "distill_answers", "journal_of"]


@dataclass(frozen=True)
class AnswerReport:
    """What a distillation of answers gave."""

    prompts: int
    copies: int
    """Rows whose prompt stood there before; asked once."""
    broken: list[str]
    """Rows that are no prompt."""
    samples: int
    answers: int
    """Of these prompts and this teacher, those of earlier calls among them."""
    asked: Asked
    refused_by_server: Counter[str]
    dropped: Counter[str]
    rows: int
    spent_tokens: int
    """Of all questions in the journal."""
    broken_lines: int = 0
    """Of the journal; the questions behind them are asked again."""
    looked_for_near_copies: bool = True
    """Between prompts; needs `nightlab[data]`."""

    @property
    def missing(self) -> int:
        """Samples that are not there yet."""
        return self.prompts * self.samples - self.answers - self.refused_by_server.total()


def journal_of(out: Path) -> Path:
    """The file beside `out` that remembers what was asked."""
    return out.with_name(f"{out.name}.journal")


def distill_answers(
    prompts: Path,
    out: Path,
    teacher: Teacher,
    *,
    samples: int = 1,
    filters: Filters | None = None,
    form: OutputFormat = "alpaca",
    budget_tokens: int | None = None,
    workers: int = 4,
    pace: Pace | None = None,
) -> AnswerReport:
    """Ask `teacher` every prompt `samples` times, and write what passes the filters to `out` as JSONL.

    May be killed at any moment and called again: what the journal beside `out` holds is not asked twice, so that other
    filters cost nothing. Where it stops early, `out` holds what is there. Raises ConfigError, DiskError.
    """
    if out.resolve() == prompts.resolve():
        raise ConfigError(Fault("is the file of the prompts as well", out, mend="name another file"))
    read = read_prompts(prompts)
    with Journal(journal_of(out)) as journal:
        with Connection(teacher) as connection:
            questions = _questions(read, teacher, samples)
            asked = ask_all(questions, connection, journal, workers=workers, budget_tokens=budget_tokens, pace=pace)
        kept = filtered(_answers(read, teacher, samples, journal), filters or Filters(), samples=samples)
        report = _report(read, teacher, samples, journal, asked, kept)
    lines = (json.dumps(row_of(prompt, answer, form), ensure_ascii=False) for prompt, answer in kept.rows)
    write_atomically(out, "".join(f"{line}\n" for line in lines))
    return report


def _questions(read: Prompts, teacher: Teacher, samples: int) -> Iterator[Question]:
    for prompt in read.prompts:
        for sample in range(samples):
            yield Question(teacher.key_of(prompt, sample), prompt, sample)


def _answers(read: Prompts, teacher: Teacher, samples: int, journal: Journal) -> Iterator[tuple[Prompt, list[Said]]]:
    for prompt in read.prompts:
        keys = [teacher.key_of(prompt, sample) for sample in range(samples)]
        yield prompt, [journal.answers[key] for key in keys if key in journal.answers]


def _report(read: Prompts, teacher: Teacher, samples: int, journal: Journal, asked: Asked, kept: Kept) -> AnswerReport:
    keys = {question.key for question in _questions(read, teacher, samples)}
    return AnswerReport(
        prompts=len(read.prompts),
        copies=read.copies,
        broken=read.broken,
        samples=samples,
        answers=len(keys & journal.answers.keys()),
        asked=asked,
        refused_by_server=Counter(journal.refused[key] for key in sorted(keys & journal.refused.keys())),
        dropped=+kept.dropped,
        rows=len(kept.rows),
        spent_tokens=journal.spent_tokens,
        broken_lines=journal.broken_lines,
        looked_for_near_copies=kept.looked_for_near_copies,
    )
