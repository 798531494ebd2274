"""A lost ledger, rebuilt: from its newest sound copy, and what is newer from branches and job folders.

Without a copy experiments and verdicts come from the branches, what had no card yet from the job folders; what was
planned but never started is then left out: planning again gives the same.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from nightlab.agents.cards import Entry
from nightlab.agents.recovery import (
    ENDED,
    Branch,
    Submission,
    ended_on_card,
    read_branches,
    read_study,
    read_submissions,
    without_branch,
)
from nightlab.agents.review import STATE_OF
from nightlab.configs.files import set_aside
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.errors import BackendError, ConfigError, Fault, LedgerError
from nightlab.graph.budget import deadline_of
from nightlab.graph.copies import Base, newest_copy
from nightlab.graph.opening import Place
from nightlab.graph.process import hold_study
from nightlab.graph.retelling import missing_events
from nightlab.graph.state import GRAPH_VERSION
from nightlab.knowledge.backup import back_up, story_of
from nightlab.knowledge.database import damaged
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import (
    Event,
    Experiment,
    ExperimentState,
    Idea,
    Job,
    JobState,
    Question,
    Run,
    RunState,
    Spend,
    StudyRow,
    StudyStatus,
    Verdict,
    configuration_key,
    utc_now,
)
from nightlab.knowledge.restoring import Records, Remains, restore, salvage
from nightlab.search.spending import run_amounts
from nightlab.tools.backends.base import Backend
from nightlab.tools.backends.local import LocalBackend
from nightlab.worktrees.git import Git
from nightlab.worktrees.names import BRANCH_PREFIX

__all__ = ["Recovery", "recover", "refuse_gaps"]


@dataclass
class Recovery:
    """What a recovery has restored, and what it could not."""

    kept: Path | None
    """The damaged ledger's copy; None where nothing was left of it."""
    experiments: int = 0
    ended: int = 0
    """Runs with their end, from result cards."""
    started: int = 0
    """Runs that have not come to their end, to be read again or still running."""
    verdicts: int = 0
    questions: int = 0
    copy: Path | None = None
    """The copy it started from."""
    copied_at: datetime | None = None
    from_cards: int = 0
    """Ended runs that were newer than the copy, from result cards."""
    from_folders: int = 0
    """Started runs that were newer than the copy, from job folders."""
    retold: int = 0
    """Events written anew, from what runs and verdicts tell."""
    not_restored: list[str] = field(default_factory=list)


def recover(place: Place, study: Study) -> Recovery | None:
    """Rebuild the study's ledger where it is damaged, lost or incomplete; None where it is whole.

    Raises StudyBusyError while a lab runs the study, ConfigError where nothing of it is found, LedgerError for a
    ledger that another version wrote.
    """
    with hold_study(place.paths):
        if _is_whole(place.paths):
            return None
        return _Rebuilding(place, study).run()


def refuse_gaps(ledger: Ledger, paths: StudyPaths) -> None:
    """Raise LedgerError where jobs or result cards are there that the ledger does not know: part of it was lost.

    An SQLite file whose journal (`-wal`) was deleted is such a case: it looks whole, and is older than it was. So is
    one whose story ends before that of its own copy.
    """
    _refuse_going_back(ledger, paths)
    runs = {run.key: run for run in ledger.runs()}
    known = {paths.job(run.number, run.seed, run.attempt).directory for run in runs.values()}
    for job in paths.jobs:
        if job.directory not in known and job.run.exists():
            raise damaged(paths.ledger, f"lacks the run of {job.directory}, which was submitted")
    git = Git(paths.root)
    tips = git.branches(BRANCH_PREFIX)
    for experiment in ledger.experiments():
        tip = tips.get(experiment.branch)
        if tip is None or tip in (experiment.commit, experiment.card_commit, experiment.base_commit):
            continue
        for key in sorted(ended_on_card(git, tip)):
            if key not in runs or runs[key].state not in ENDED:
                raise damaged(paths.ledger, f"lacks the end of {key}, which is on {experiment.branch}")


def _refuse_going_back(ledger: Ledger, paths: StudyPaths) -> None:
    copied = story_of(paths.backups[0])
    if copied is None:
        return
    began, last = copied
    if ledger.events(after=last - 1):
        return
    first = ledger.events()[:1]
    if first and first[0].time == began:
        raise damaged(paths.ledger, f"ends before its copy {paths.backups[0].relative_to(paths.folder)}")


def _is_whole(paths: StudyPaths) -> bool:
    """Whether the ledger can be read from end to end and lacks nothing. Raises LedgerError for another version's."""
    try:
        if not Ledger.exists(paths.ledger):
            return False
        with Ledger.open(paths.ledger) as ledger:
            if not ledger.has_study():
                return False
            return _reads(ledger) and _complete(ledger, paths)
    except LedgerError as error:
        if error.damaged:
            return False
        raise


def _reads(ledger: Ledger) -> bool:
    try:
        ledger.study_row()
        for read in (ledger.experiments, ledger.runs, ledger.jobs, ledger.observations, ledger.verdicts):
            read()
        ledger.questions(), ledger.events(), ledger.spend_totals()
    except LedgerError:
        return False
    return True


def _complete(ledger: Ledger, paths: StudyPaths) -> bool:
    try:
        refuse_gaps(ledger, paths)
    except LedgerError:
        return False
    return True


@dataclass
class _Found:
    """One experiment with all that was found of it."""

    branch: Branch
    entries: dict[str, Entry] = field(default_factory=dict)
    """Key → run with its end, from the result card."""
    open: dict[str, Submission] = field(default_factory=dict)
    """Key → run whose end no card tells."""

    @property
    def number(self) -> int:
        return self.branch.experiment.number


class _Rebuilding:
    def __init__(self, place: Place, study: Study) -> None:
        self.place = place
        self.paths = place.paths
        self.study = study
        self.git = Git(place.root)
        self.result = Recovery(kept=None)

    def run(self) -> Recovery:
        remains = self._remains()
        base = newest_copy(self.paths, self.paths.recovered.parent)
        held = self._held(base, remains)
        found = self._found(held.base_commit if held else None)
        if base is not None and not base.fits(one.branch.experiment for one in found):
            self.result.not_restored.append(f"{base.origin}: it does not belong to these branches, and was not used")
            base, held = None, self._held(None, remains)
        records = self._records(self._row(held, found, base), found, remains, base)
        fresh = self.paths.recovered
        if base is not None:
            base.file.replace(fresh)
            self.result.copy, self.result.copied_at = base.origin, base.made_at
        restore(fresh, records, redact=self.place.redactor.redact_data)
        if self.paths.ledger.exists():
            self.result.kept = set_aside(self.paths.ledger)
        for side in ("-wal", "-shm"):
            self.paths.ledger.with_name(self.paths.ledger.name + side).unlink(missing_ok=True)
        fresh.replace(self.paths.ledger)
        shutil.rmtree(fresh.parent)
        # From here on this is the story; the copies of another would contradict it.
        back_up(self.paths.ledger, *self.paths.backups)
        return self.result

    def _held(self, base: Base | None, remains: Remains) -> StudyRow | None:
        """The study's row as it was kept last."""
        card = read_study(self.paths)
        if base is None:
            return card or remains.study
        if card is None or card.base_commit != base.row.base_commit or self.paths.card.stat().st_mtime <= _age(base):
            return base.row
        # Whoever paused the study wrote that into the ledger alone.
        return card.model_copy(update={"paused": base.row.paused})

    def _remains(self) -> Remains:
        """What the damaged ledger still gives, read from a copy: reading may change a database in trouble."""
        shutil.rmtree(self.paths.recovered.parent, ignore_errors=True)
        self.paths.recovered.parent.mkdir(parents=True)
        copy = self.paths.recovered.with_name("damaged.sqlite")
        for side in ("", "-wal"):
            original = self.paths.ledger.with_name(self.paths.ledger.name + side)
            if original.exists():
                shutil.copyfile(original, copy.with_name(copy.name + side))
        return salvage(copy)

    def _found(self, base_commit: str | None) -> list[_Found]:
        """What branches and folders tell, of a study that began at `base_commit` where that is known."""
        found: dict[int, _Found] = {}
        for name, branch in read_branches(self.git, self.paths.study):
            if branch is None:
                self.result.not_restored.append(f"branch {name}: its card cannot be read")
            elif base_commit in (None, branch.experiment.base_commit):
                self._add(found, branch)
        runs = [entry[0] for one in found.values() for entry in one.entries.values()]
        on_cards = {self.paths.job(run.number, run.seed, run.attempt) for run in runs}
        for folder, submission in read_submissions(self.paths):
            if folder in on_cards:
                continue
            if submission is not None and base_commit not in (None, submission.experiment.base_commit):
                self._give_up(folder.directory, "it belongs to an earlier start of the study")
            elif submission is not None:
                self._add_submission(found, submission)
            elif folder.run.exists() or folder.spec.exists():
                self._give_up(folder.directory, f"its {folder.run.name} cannot be read")
        return [found[number] for number in sorted(found)]

    def _add(self, found: dict[int, _Found], branch: Branch) -> None:
        number = branch.experiment.number
        if number in found:
            other = found[number].branch.experiment.branch
            self.result.not_restored.append(f"branch {branch.experiment.branch}: {other} has its number")
            return
        ended = {entry[0].key: entry for entry in branch.entries if entry[0].state in ENDED}
        found[number] = _Found(branch, ended)

    def _add_submission(self, found: dict[int, _Found], submission: Submission) -> None:
        experiment = submission.experiment
        if experiment.number not in found:
            self._add(found, without_branch(self.paths, experiment))
        here = found[experiment.number]
        if configuration_key(here.branch.experiment.parameters) != configuration_key(experiment.parameters):
            self._give_up(Path(submission.job.directory), "its number belongs to another configuration")
        elif submission.run.key not in here.entries:
            here.open[submission.run.key] = submission

    def _give_up(self, folder: Path, why: str) -> None:
        """Keep a job's folder under another name: the next run of its number must not take its result for its own."""
        if folder.exists():
            folder = set_aside(folder, sides=())
        self.result.not_restored.append(f"{folder}: {why}")

    def _row(self, row: StudyRow | None, found: list[_Found], base: Base | None) -> StudyRow:
        """The study as it was kept last, or else as the damaged ledger has it; without both, from the study file."""
        known = {run.key: run.state for run in base.runs.values()} if base else {}
        for one in found:
            known = dict.fromkeys(one.open, RunState.SUBMITTED) | known | dict.fromkeys(one.entries, RunState.REVIEWED)
        is_open = not ENDED.issuperset(known.values())
        if row is None and not found:
            mend = "the study has not begun: remove the file and start it with `nightlab run`"
            raise ConfigError(
                Fault("damaged, and neither branches nor logs tell of its study", self.paths.ledger, mend=mend)
            )
        if row is None:
            self.result.not_restored.append("the plan and the study's times: they begin anew")
            row = self._new_row(found[0].branch.experiment)
        if row.status is StudyStatus.FINISHED and not is_open:
            return row
        # With a copy that tells of the end, the end is not told again.
        is_over = base is not None and not is_open
        return row.model_copy(
            update={"status": StudyStatus.STOPPED, "finished_at": row.finished_at if is_over else None}
        )

    def _new_row(self, first: Experiment) -> StudyRow:
        return StudyRow(
            name=self.study.study,
            study=self.study,
            base_commit=first.base_commit,
            deadline=deadline_of(self.study.budget, first.created_at, utc_now()),
            started_at=first.created_at,
            graph_version=str(GRAPH_VERSION),
            frozen_hashes=self.git.hash_paths(first.base_commit, self.study.frozen),
        )

    def _records(self, row: StudyRow, found: list[_Found], remains: Remains, base: Base | None) -> Records:
        """What the new ledger is to hold beyond its base: all there is, where it has none."""
        entries = self._newer(row, found, base)
        pace_seconds = _pace(entries)
        runs = (base.runs if base else {}) | {run.key: run for run, *_ in entries}
        changed = {run.number for run, *_ in entries}
        verdicts = [verdict for one in found if (verdict := _newer_verdict(one, base))]
        judged = {verdict.number for verdict in verdicts}
        experiments = [
            _experiment(one, [run for run in runs.values() if run.number == one.number])
            for one in found
            if one.number in changed | judged or base is None or one.number not in base.experiments
        ]
        numbers = (base.experiments if base else {}) | {one.number: one for one in experiments}
        questions = _questions(remains, base)
        self.result.experiments = len(numbers)
        self.result.verdicts = len(judged | (base.verdicts.keys() if base else set()))
        self.result.ended = sum(run.state in ENDED for run in runs.values())
        self.result.started = sum(run.state not in ENDED | {RunState.PLANNED} for run in runs.values())
        self.result.questions = len(questions)
        return Records(
            study=row,
            experiments=experiments,
            runs=[run for run, *_ in entries],
            jobs=[job for _, job, _ in entries if job],
            observations=[observation for *_, observation in entries if observation],
            verdicts=verdicts,
            spend=[_spend(row.study, run, job, pace_seconds) for run, job, _ in entries],
            questions=questions,
            events=self._events(replace(remains, questions=questions), base, row, numbers, entries, verdicts),
            told=remains.told,
            calls=remains.calls,
            ideas=_ideas(remains, found),
            reviews=remains.reviews,
            stresses=remains.stresses,
        )

    def _newer(self, row: StudyRow, found: list[_Found], base: Base | None) -> list[Entry]:
        """The runs of which cards or folders tell more than the base, in the order they were planned."""
        backend = LocalBackend(row.study.backend)
        cards = [
            self._placed(one, entry)
            for one in found
            for key, entry in one.entries.items()
            if base is None or key not in base.runs or base.runs[key].state not in ENDED
        ]
        folders = [
            _reopened(backend, submission)
            for one in found
            for key, submission in one.open.items()
            if base is None or not base.has(key, beyond=RunState.PLANNED)
        ]
        self.result.from_cards, self.result.from_folders = len(cards), len(folders)
        return sorted([*cards, *folders], key=lambda entry: (entry[0].created_at, entry[0].number, entry[0].seed))

    def _placed(self, one: _Found, entry: Entry) -> Entry:
        """The entry of a result card with its job's folder and tree, which the card leaves out."""
        run, job, observation = entry
        if job is None:
            return entry
        first = next(iter(one.entries)) == run.key
        replica = None if first else f"seed-{run.seed}-attempt-{run.attempt}"
        places = {
            "directory": str(self.paths.job(run.number, run.seed, run.attempt).directory),
            "worktree": str(self.paths.worktree(run.number, replica=replica)),
        }
        return run, job.model_copy(update=places), observation

    def _events(
        self,
        remains: Remains,
        base: Base | None,
        row: StudyRow,
        experiments: Mapping[int, Experiment],
        entries: Sequence[Entry],
        verdicts: Sequence[Verdict],
    ) -> list[Event]:
        """The events to be added: those of the damaged ledger that the base lacks, and those that can be told anew."""
        held = base.events if base else []
        last = max((event.id for event in held), default=0)
        saved = [event for event in remains.events if event.id > last and (not held or event.time >= held[-1].time)]
        # What was planned and is not there will be planned, and told, again.
        saved = [event for event in saved if event.number in experiments or event.kind != "planned"]
        saved = [e if e.number in experiments else e.model_copy(update={"number": None}) for e in saved]
        missing = missing_events([*held, *saved], row, experiments, entries, verdicts, remains)
        self.result.retold = len(missing)
        text = (
            f"the ledger was rebuilt: {self.result.experiments} experiments, {self.result.ended} ended runs, "
            f"{self.result.started} to be read again"
        )
        last = max((event.id for event in (*held, *saved, *missing)), default=0)
        done = Event(id=last + 1, time=utc_now(), kind="recovered", number=None, text=text)
        return [*saved, *missing, done]


def _age(base: Base) -> float:
    return base.origin.stat().st_mtime


def _questions(remains: Remains, base: Base | None) -> list[Question]:
    """Every question once; one that was answered in either ledger is answered."""
    questions = {question.id: question for question in remains.questions}
    for question in base.questions.values() if base else ():
        if question.id not in questions or questions[question.id].answer is None:
            questions[question.id] = question
    return sorted(questions.values(), key=lambda question: (question.asked_at, question.id))


def _ideas(remains: Remains, found: Sequence[_Found]) -> list[Idea]:
    """The code ideas: those that experiments applied stand on their branches, too."""
    ideas = {idea.number: idea for one in found for idea in one.branch.ideas}
    return list((ideas | {idea.number: idea for idea in remains.ideas}).values())


def _newer_verdict(one: _Found, base: Base | None) -> Verdict | None:
    """The verdict of the result card, unless the base holds it or a later one."""
    verdict, held = one.branch.verdict, base.verdicts.get(one.number) if base else None
    return verdict if verdict and (held is None or verdict.decided_at > held.decided_at) else None


def _reopened(backend: Backend, submission: Submission) -> Entry:
    """A run from its job folder: submitted where its job was started, else planned with its intent.

    Its end, if it has come, is read and audited like any other.
    """
    run, job = submission.run, submission.job
    try:
        native_id = backend.find(job.key, Path(job.directory))
    except BackendError as error:
        lost = {"state": RunState.FAILED, "cause": "lost", "detail": str(error), "ended_at": utc_now()}
        return run.model_copy(update=lost), job.model_copy(update={"state": JobState.LOST}), None
    if native_id is None:
        planned, intended = {"state": RunState.PLANNED}, {"state": JobState.INTENDED, "native_id": None}
        return run.model_copy(update=planned), job.model_copy(update=intended), None
    submitted, running = {"state": RunState.SUBMITTED}, {"state": JobState.RUNNING, "native_id": native_id}
    return run.model_copy(update=submitted), job.model_copy(update=running), None


def _experiment(one: _Found, runs: Sequence[Run]) -> Experiment:
    return one.branch.experiment.model_copy(update={"state": _state(one.branch, runs)})


def _state(branch: Branch, runs: Sequence[Run]) -> ExperimentState:
    states = {run.state for run in runs}
    if not states <= ENDED:
        return ExperimentState.RUNNING if RunState.SUBMITTED in states else ExperimentState.PREPARED
    if branch.verdict:
        return STATE_OF[branch.verdict.kind]
    if branch.experiment.card_commit:
        return ExperimentState.REVIEWED
    return ExperimentState.RUNNING if runs else ExperimentState.PREPARED


def _pace(entries: Sequence[Entry]) -> float:
    """Median wall-clock seconds of the runs that have ended; 0 without one."""
    return statistics.median([job.wall_seconds for _, job, _ in entries if job and job.wall_seconds] or [0.0])


def _spend(study: Study, run: Run, job: Job | None, pace_seconds: float) -> Spend:
    """What the run used; one that goes on, or vanished, counts as much as the others took."""
    if run.state not in ENDED:
        gpu_hours, cost_usd = run_amounts(study, pace_seconds)
        return Spend(key=run.key, reserved_gpu_hours=gpu_hours, reserved_cost_usd=cost_usd)
    started = job is not None and job.started_at is not None
    known_seconds = job.wall_seconds if job else None
    gpu_hours, cost_usd = run_amounts(study, known_seconds or (pace_seconds if started else 0.0))
    return Spend(
        key=run.key,
        reserved_runs=1 if started or run.state is not RunState.CANCELLED else 0,
        settled=True,
        wall_seconds=known_seconds or 0.0,
        gpu_hours=gpu_hours,
        cost_usd=cost_usd,
    )
