"""One night: from a study file to a report. What `nightlab run` and `nightlab demo` share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nightlab.agents.context import Lab
from nightlab.agents.forecast import pace_faults, plan_line, time_note
from nightlab.agents.measures import preflight_measures
from nightlab.agents.model_setup import try_models
from nightlab.agents.preflight import DryRun, Site, dry_run, static_faults
from nightlab.configs.loading import LoadedStudy, load_study
from nightlab.configs.schema import write_schema
from nightlab.configs.study import Study
from nightlab.errors import ConfigError, DiskError, Fault
from nightlab.graph.notices import open_notices
from nightlab.graph.opening import Place, begin_study, locate, open_lab, resume_study
from nightlab.graph.process import hold_study
from nightlab.graph.recovery import refuse_gaps
from nightlab.graph.staying import run_and_stay
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyRow, StudyStatus
from nightlab.report.write import write_reports
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for
from nightlab.tools.redaction import carrying
from nightlab.worktrees.git import Git
from nightlab.worktrees.snapshot import base_ref, snapshot

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
        study,
        place.file,
        place.paths,
        Git(place.root),
        LocalBackend(study.backend),
        launcher_for(study, catalog),
        catalog,
    )


def check(loaded: LoadedStudy, place: Place, *, allow_dirty: bool, say: Say) -> None:
    """The whole preflight, for a study that has begun as well. Raises ConfigError with every fault seen at once.

    Nothing is left behind.
    """
    row = read_row(place)
    git = Git(place.root)
    with carrying(place.redactor), _interruptible(), _forgotten(git, place.paths.study, always=row is None):
        base = row.base_commit if row else _base(git, loaded, place, allow_dirty=allow_dirty)
        # What has begun runs from its own commit: the working tree may be in any state.
        site = _site(loaded, place)
        seen = _preflight(site, base, allow_dirty=allow_dirty or row is not None, say=say)
        if row is None:
            _check_time(site, seen, say)
        _try_models(loaded.study, say)


def _try_models(study: Study, say: Say) -> None:
    tried = try_models(study, os.environ)
    for one in tried:
        say(one.line(study))
    if tried and not any(one.reply for one in tried):
        say("note: no language model answers now; where none does, the rules decide")


def _preflight(site: Site, base: str, *, allow_dirty: bool, say: Say) -> DryRun:
    measured, notes = preflight_measures(site)
    if faults := [*static_faults(site, base, allow_dirty=allow_dirty), *measured]:
        raise ConfigError(faults)
    for note in notes:
        say(f"note: {note}")
    say("dry run: starting the training command once")
    seen = dry_run(site, base)
    values = ", ".join(f"{name} {reading.value:.6g}" for name, reading in seen.readings.items())
    say(f"dry run: ended well after {seen.wall_seconds:.1f} s, {values}")
    if seen.missing:
        say(f"note: the dry run gave no value of {', '.join(seen.missing)}; no verdict rests on it")
    return seen


def _check_time(site: Site, seen: DryRun, say: Say) -> None:
    if faults := pace_faults(site, seen.wall_seconds):
        raise ConfigError(faults)
    say(f"plan: {plan_line(site, seen.wall_seconds)}")
    if note := time_note(site, seen.wall_seconds):
        say(f"note: {note}")


def _base(git: Git, loaded: LoadedStudy, place: Place, *, allow_dirty: bool) -> str:
    """The commit a new study starts from."""
    if not allow_dirty:
        return git.head()
    _refuse_secrets_in_snapshot(git, loaded, place)
    return snapshot(place.paths, "nightlab: the tree as it was", loaded.study.inputs)


def _refuse_secrets_in_snapshot(git: Git, loaded: LoadedStudy, place: Place) -> None:
    """A study file that holds secrets and is not in git yet must not get there by the lab."""
    file = str(loaded.file.resolve().relative_to(place.root.resolve()))
    is_new = git.output("--literal-pathspecs", "status", "--porcelain", "--untracked-files=all", "--", file)
    if is_new and place.redactor.redact(loaded.text) != loaded.text:
        mend = "have them in variables and write `env:NAME`, or keep the file out of git in .git/info/exclude"
        raise ConfigError(Fault("holds secrets, which --snapshot would commit", file=loaded.file, mend=mend))


@contextmanager
def _forgotten(git: Git, study: str, *, always: bool) -> Iterator[None]:
    """Takes away the ref of a snapshot made inside when that comes to nothing, or in any case."""
    ref = base_ref(study)
    held = git.call("rev-parse", "--verify", "--quiet", ref)[0] == 0
    done = False
    try:
        yield
        done = not always
    finally:
        if not held and not done and git.call("rev-parse", "--verify", "--quiet", ref)[0] == 0:
            git.output("update-ref", "-d", ref)


def read_row(place: Place) -> StudyRow | None:
    """What the ledger says of the study, None when it has not begun; creates nothing."""
    if not Ledger.exists(place.paths.ledger):
        return None
    with Ledger.open(place.paths.ledger) as ledger:
        return ledger.study_row() if ledger.has_study() else None


def run_night(
    file: Path,
    *,
    allow_dirty: bool = False,
    say: Say,
    watch: Callable[[Lab], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> Outcome:
    """Run the study of `file` to its end, or go on with it. A finished study is left as it is.

    `say` gets lines for people, `watch` is called once with the open lab to set its callbacks, `on_stop` from a signal
    handler when a person asks the lab to stop.
    """
    loaded = load_study(file)
    place = locate(loaded)
    with carrying(place.redactor), DiskError.at(place.paths.folder):
        if (row := read_row(place)) is None:
            _begin(loaded, place, allow_dirty=allow_dirty, say=say)
        elif row.paused and row.status is not StudyStatus.FINISHED:
            say("note: the study is paused: no new job is started before `nightlab resume`")
        return _go_on(loaded, place, watch, on_stop)


def _go_on(
    loaded: LoadedStudy, place: Place, watch: Callable[[Lab], None] | None, on_stop: Callable[[], None] | None
) -> Outcome:
    with hold_study(place.paths), place.open_ledger() as ledger:
        refuse_gaps(ledger, place.paths)
        row = resume_study(ledger, ledger.study_row(), loaded.study, place.file)
        if row.status is StudyStatus.FINISHED:
            return Outcome(row.status, already_finished=True, place=place)
        with _stop_signals(on_stop) as stopping, open_lab(place, loaded.study, stop_requested=stopping) as lab:
            lab.write_reports = lambda: write_reports(lab)
            if watch:
                watch(lab)
            with open_notices(lab) as hears:
                status = run_and_stay(lab, hears=hears)
            if status is not StudyStatus.FINISHED:
                write_reports(lab)
            return Outcome(status, already_finished=False, place=place)


def _begin(loaded: LoadedStudy, place: Place, *, allow_dirty: bool, say: Say) -> None:
    """Preflight, then the study's first row in its ledger."""
    for warning in loaded.warnings:
        say(f"note: {warning}")
    git = Git(place.root)
    with _interruptible(), _forgotten(git, place.paths.study, always=False):
        base = _base(git, loaded, place, allow_dirty=allow_dirty)
        site = _site(loaded, place)
        _check_time(site, _preflight(site, base, allow_dirty=allow_dirty, say=say), say)
        with hold_study(place.paths), place.open_ledger() as ledger:
            # Another lab may have begun it during the dry run.
            if not ledger.has_study():
                git.exclude(f"/{place.paths.runtime.name}/")
                write_schema(place.paths.schema)
                begin_study(ledger, loaded.study, git, base)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends what is inside like Ctrl-C does, so that its job and its tree go too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _stop_signals(on_stop: Callable[[], None] | None) -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask the lab to stop at its next step; the second Ctrl-C interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)
        if on_stop:
            on_stop()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
