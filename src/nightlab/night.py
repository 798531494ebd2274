"""One night: from a study file to a report. What `nightlab run` and `nightlab demo` share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nightlab.agents.context import Lab
from nightlab.agents.preflight import Site, dry_run, static_faults
from nightlab.configs.loading import LoadedStudy, load_study
from nightlab.configs.schema import write_schema
from nightlab.errors import ConfigError
from nightlab.graph.driver import run_lab
from nightlab.graph.opening import Place, begin_study, locate, open_lab, resume_study
from nightlab.graph.process import hold_study
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyRow, StudyStatus
from nightlab.report.write import write_reports
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for
from nightlab.worktrees.git import Git
from nightlab.worktrees.snapshot import snapshot

__all__ = ["Outcome", "check", "read_row", "run_night"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a call of `run` ended."""

    status: StudyStatus
    already_finished: bool
    place: Place


def _site(loaded: LoadedStudy, place: Place) -> Site:
    study = loaded.study
    catalog = load_catalog(place.root / study.catalog.file if study.catalog.file else None)
    return Site(
        study, place.file, place.paths, Git(place.root), LocalBackend(study.backend), launcher_for(study), catalog
    )


def check(loaded: LoadedStudy, place: Place, *, allow_dirty: bool, commit: str | None = None, say: Say) -> None:
    """The whole preflight. Raises ConfigError with every fault that can be seen at once."""
    site = _site(loaded, place)
    faults = static_faults(site, allow_dirty=allow_dirty)
    if faults:
        raise ConfigError(faults)
    say("dry run: starting the training command once")
    seen = dry_run(site, commit or site.git.head())
    values = ", ".join(f"{name} {reading.value:.6g}" for name, reading in seen.readings.items())
    say(f"dry run: ended well after {seen.wall_seconds:.1f} s, {values}")


def read_row(place: Place) -> StudyRow | None:
    """What the ledger says of the study, None when it has not begun; creates nothing."""
    if not place.paths.ledger.exists():
        return None
    with Ledger.open(place.paths.ledger) as ledger:
        return ledger.study_row() if ledger.has_study() else None


def run_night(
    file: Path, *, allow_dirty: bool = False, say: Say, watch: Callable[[Lab], None] | None = None
) -> Outcome:
    """Run the study of `file` to its end, or go on with it. A finished study is left as it is.

    `say` gets lines for people, `watch` is called once with the open lab to set its callbacks.
    """
    loaded = load_study(file)
    place = locate(loaded)
    row = read_row(place)
    if row is None:
        base = snapshot(place.paths, "nightlab: the tree as it was", loaded.study.inputs) if allow_dirty else None
        check(loaded, place, allow_dirty=allow_dirty, commit=base, say=say)
    with hold_study(place.paths), Ledger.open(place.paths.ledger) as ledger:
        if not ledger.has_study():
            git = Git(place.root)
            git.exclude(f"/{place.paths.runtime.name}/")
            write_schema(place.paths.schema)
            row = begin_study(ledger, loaded.study, git, base or git.head())
        else:
            row = resume_study(ledger, ledger.study_row(), loaded.study, place.file)
        if row.status is StudyStatus.FINISHED:
            return Outcome(row.status, already_finished=True, place=place)
        with _stop_signals() as stopping, open_lab(place, loaded.study, stop_requested=stopping) as lab:
            lab.write_reports = lambda: write_reports(lab)
            if watch:
                watch(lab)
            status = run_lab(lab)
            if status is not StudyStatus.FINISHED:
                write_reports(lab)
            return Outcome(status, already_finished=False, place=place)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask the lab to stop at its next step; the second Ctrl-C interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
