"""The newest sound copy of a ledger, as a recovery starts from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nightlab.configs.paths import StudyPaths
from nightlab.errors import LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Event, Experiment, Question, Run, RunState, StudyRow, Verdict, configuration_key

__all__ = ["Base", "newest_copy"]


@dataclass(frozen=True)
class Base:
    """One copy of the ledger, read from end to end."""

    origin: Path
    made_at: datetime
    file: Path
    """A copy of the copy, which may be written."""
    row: StudyRow
    experiments: dict[int, Experiment]
    runs: dict[str, Run]
    verdicts: dict[int, Verdict]
    """The latest of each experiment."""
    questions: dict[str, Question]
    events: list[Event]

    def has(self, key: str, *, beyond: RunState) -> bool:
        """Whether it knows more of a run than that it is in the state `beyond`."""
        return key in self.runs and self.runs[key].state is not beyond

    def fits(self, experiments: Iterable[Experiment]) -> bool:
        """Whether numbers and configurations are those of `experiments`, which were found elsewhere."""
        numbers = {configuration_key(one.parameters): one.number for one in self.experiments.values()}
        configurations = {number: configuration for configuration, number in numbers.items()}
        return all(
            numbers.get(own := configuration_key(one.parameters), one.number) == one.number
            and configurations.get(one.number, own) == own
            and one.base_commit == self.row.base_commit
            for one in experiments
        )


def newest_copy(paths: StudyPaths, folder: Path) -> Base | None:
    """The newest copy that can be read as a whole; nothing is written but into `folder`."""
    for origin in paths.backups:
        if origin.exists() and origin.stat().st_size:
            file = folder / f"copy-{origin.name}"
            shutil.copyfile(origin, file)
            try:
                return _read(origin, file)
            except LedgerError:
                continue
    return None


def _read(origin: Path, file: Path) -> Base:
    with Ledger.open(file) as ledger:
        # What is not asked for here must be readable all the same.
        ledger.jobs(), ledger.observations(), ledger.spend_totals()
        return Base(
            origin=origin,
            made_at=datetime.fromtimestamp(origin.stat().st_mtime, UTC),
            file=file,
            row=ledger.study_row(),
            experiments={experiment.number: experiment for experiment in ledger.experiments()},
            runs={run.key: run for run in ledger.runs()},
            verdicts=ledger.verdicts(),
            questions={question.id: question for question in ledger.questions()},
            events=ledger.events(),
        )
