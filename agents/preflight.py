"""Before the first job: everything that would ruin the night is looked for, and all of it is reported at once.

The dry run really starts the training command, in a tree of its own that is taken away afterwards.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nightlab.agents.evaluation import last_line
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.configs.study import Study
from nightlab.configs.units import next_clock_time
from nightlab.errors import ConfigError, Fault, LauncherError, MetricError
from nightlab.knowledge.catalog import Catalog
from nightlab.knowledge.records import utc_now
from nightlab.tools.backends.base import Backend, JobSpec, JobStatus
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.metrics import read_metrics
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.worktrees.git import Git
from nightlab.worktrees.inputs import check_inputs, init_submodules, link_inputs
from nightlab.worktrees.names import BRANCH_PREFIX, slug
from nightlab.worktrees.trees import Worktrees

__all__ = ["DryRun", "Site", "dry_run", "fewest_runs", "static_faults", "time_faults", "time_note"]

COMMAND_MISSING = (126, 127)
"""A shell's exit status for a command that is not there or may not be executed."""


@dataclass(frozen=True)
class Site:
    """What the preflight looks at: the study, where it stands, and what would run it."""

    study: Study
    file: Path
    paths: StudyPaths
    git: Git
    backend: Backend
    launcher: Launcher
    catalog: Catalog


@dataclass(frozen=True)
class DryRun:
    """What the dry run showed."""

    wall_seconds: float
    readings: dict[str, Reading]
    missing: tuple[str, ...] = ()
    """Declared metrics that were not there; no verdict rests on them."""


def static_faults(site: Site, commit: str, *, allow_dirty: bool) -> list[Fault]:
    """Everything wrong that can be seen without starting anything, for a study that starts from `commit`."""
    faults = [*_frozen(site, commit), *_inputs(site), *_techniques(site), *_budget(site), *_branches(site, commit)]
    return faults if allow_dirty else [*_dirty(site), *faults]


def _fault(site: Site, key: str, message: str, mend: str, value: object = None) -> Fault:
    return Fault(message, file=site.file, key=key, value=value, mend=mend)


def _dirty(site: Site) -> list[Fault]:
    # The study file may lie there uncommitted: `nightlab init` has just written it and no run needs it.
    changes = site.git.changes(leave_out=[_relative(site.file, site.paths.root)])
    if not changes:
        return []
    shown = ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
    mend = "commit or stash them, or add --snapshot to start from the tree as it is"
    return [Fault(f"the working tree has uncommitted changes: {shown}", file=site.paths.root, mend=mend)]


def _relative(file: Path, root: Path) -> str:
    file = file.resolve()
    return str(file.relative_to(root.resolve())) if file.is_relative_to(root.resolve()) else str(file)


def _frozen(site: Site, commit: str) -> list[Fault]:
    held = site.git.hash_paths(commit, site.study.frozen) if site.study.frozen else {}
    return [
        _fault(site, "frozen", f"{path} is not in the last commit", "correct the path, or commit the file", path)
        for path in site.study.frozen
        if path not in held
    ]


def _inputs(site: Site) -> list[Fault]:
    return [replace(fault, file=site.file) for fault in check_inputs(site.paths.root, site.study.inputs)]


def _techniques(site: Site) -> list[Fault]:
    named = {f"space.{name}.technique": f.technique for name, f in site.study.space.items() if f.technique}
    selection = site.study.catalog
    named |= {f"catalog.include.{i}": name for i, name in enumerate(selection.include)}
    named |= {f"catalog.exclude.{i}": name for i, name in enumerate(selection.exclude)}
    faults = []
    for key, technique in named.items():
        try:
            site.catalog.get(technique)
        except ConfigError as error:
            faults.append(
                _fault(site, key, error.faults[0].message, error.faults[0].mend or "see `nightlab catalog list`")
            )
    return faults


def fewest_runs(study: Study) -> int:
    """The smallest night: the baseline's replicates, one change, and one finalist confirmed beside the baseline."""
    return study.search.baseline_replicates + 1 + 2 * study.search.confirm_seeds


def _budget(site: Site) -> list[Fault]:
    budget, search = site.study.budget, site.study.search
    faults, need = [], fewest_runs(site.study)
    if budget.runs is not None and budget.runs < need:
        message = (
            f"{budget.runs} runs cannot cover a plan; the least is {need}: {search.baseline_replicates} for the"
            f" baseline, 1 change, {2 * search.confirm_seeds} to confirm it"
        )
        mend = f"raise it to {need} or more, or lower search.baseline_replicates or search.confirm_seeds"
        faults.append(_fault(site, "budget.runs", message, mend, budget.runs))
    if budget.until is not None and next_clock_time(budget.until, utc_now().astimezone()) <= utc_now():
        mend = "give a moment to come, or a clock time such as 07:30"
        faults.append(_fault(site, "budget.until", f"{budget.until} is past", mend, budget.until))
    return faults


def _seconds(study: Study) -> float:
    """What the budget's wall clock leaves from now on."""
    now = utc_now()
    limits = [] if study.budget.duration_seconds is None else [study.budget.duration_seconds]
    if study.budget.until is not None:
        limits.append((next_clock_time(study.budget.until, now.astimezone()) - now).total_seconds())
    return min(limits, default=math.inf)


def time_faults(site: Site, run_seconds: float) -> list[Fault]:
    """A wall clock that would not even let the baseline end, if a run takes as long as the dry run did."""
    study, slots = site.study, site.study.backend.slots
    rounds = math.ceil(study.search.baseline_replicates / slots)
    if rounds * run_seconds <= _seconds(study):
        return []
    key = "budget.until" if study.budget.duration_seconds is None else "budget.duration"
    runs = f"{study.search.baseline_replicates} runs of the baseline on {slots} slot{'s' * (slots > 1)}"
    message = f"leaves no time for {runs}: the dry run alone took {run_seconds:.1f} s"
    return [_fault(site, key, message, "allow more time, or make the runs shorter")]


def time_note(site: Site, run_seconds: float) -> str:
    """A word where the time is short for a whole night; empty where it is not."""
    runs = _seconds(site.study) / max(run_seconds, 1e-3) * site.study.backend.slots
    need = fewest_runs(site.study)
    if runs >= need:
        return ""
    return (
        f"the budget's time covers about {int(runs)} runs as long as the dry run; a confirmed win takes {need} or more"
    )


def _branches(site: Site, commit: str) -> list[Fault]:
    """Branches of another study under names that this one would use."""
    study, trees = site.study, Worktrees(site.paths)
    stem = f"{study.scenario}-{study.method}"
    known = "|".join(re.escape(slug(name)) for name in (*study.parameters, *study.space))
    ours = re.compile(rf"{BRANCH_PREFIX}\d+-{re.escape(stem)}-(baseline$|combine-|({known})-)")
    taken = [name for name in sorted(site.git.branches(BRANCH_PREFIX)) if ours.match(name)]
    first = next((name for name in taken if not trees.is_free(name, commit)), None)
    if first is None:
        return []
    owner = trees.owner(first)
    holder = (
        f"the study {owner}" if owner and owner != study.study else "an earlier start" if owner else "somebody else"
    )
    mend = f"write another scenario, e.g. {study.scenario[:38]}-2, or delete or rename the old branches"
    return [_fault(site, "scenario", f"branch {first} holds the work of {holder}", mend, study.scenario)]


def dry_run(site: Site, commit: str) -> DryRun:
    """Start the command once in a tree of `commit` with the `launcher.dry_run` values and read every metric.

    Raises ConfigError naming the key to mend. Leaves nothing behind.
    """
    with _dry_tree(site, commit) as (tree, job):
        link_inputs(site.paths.root, tree, site.study.inputs)
        init_submodules(tree)
        job.output.mkdir(parents=True)
        status = _run(site.backend, _spec(site, tree, job))
        _refuse_bad_end(site, status, job)
        files = RunFiles(stdout=job.stdout, stderr=job.stderr, worktree=tree, output=job.output)
        try:
            readings = read_metrics(site.study, files)
        except MetricError as error:
            raise ConfigError(_unreadable(site, error, job)) from error
    missing = tuple(name for name in site.study.metric_names if name not in readings)
    return DryRun(status.wall_seconds or 0.0, readings, missing)


def _spec(site: Site, tree: Path, job: JobPaths) -> JobSpec:
    """The dry run's job, its configuration written into `tree`."""
    parameters = {**site.study.parameters, **site.study.launcher.dry_run}
    try:
        files = site.launcher.files(parameters, tree)
        launch = site.launcher.launch(parameters, seed=0, tree=tree, output=job.output)
    except LauncherError as error:
        raise ConfigError(Fault(str(error), file=site.file)) from error
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text, encoding="utf-8")
    return JobSpec(
        key=f"{site.study.study}/dry-run",
        command=launch.command,
        cwd=launch.cwd,
        env=launch.env,
        directory=job.directory,
        timeout_seconds=site.study.launcher.dry_run_timeout_seconds,
    )


def _run(backend: Backend, spec: JobSpec) -> JobStatus:
    """Run one job to its end; an interrupted preflight takes its job along."""
    directories = {spec.key: spec.directory}
    backend.submit(spec)
    try:
        while not backend.wait(directories, 1.0):
            pass
    finally:
        backend.cancel(directories)
    return backend.poll(directories)[spec.key]


def _refuse_bad_end(site: Site, status: JobStatus, job: JobPaths) -> None:
    if status.timed_out:
        limit = site.study.launcher.dry_run_timeout_seconds
        raise ConfigError(
            _fault(
                site,
                "launcher.dry_run",
                f"the dry run was still going after {limit:g} s",
                "give values that make it short, e.g. few steps, or raise launcher.dry_run_timeout",
            )
        )
    if status.exit_code == 0:
        return
    said = (last_line(job.stderr) or last_line(job.stdout) or "nothing on stderr or stdout").removeprefix("nightlab: ")
    message = f"the dry run ended with exit status {status.exit_code}: {said}"
    mend = "run the command by hand in a fresh clone; what git does not hold belongs under `inputs`"
    if status.exit_code in COMMAND_MISSING:
        message = f"the dry run did not start: {said}"
        mend = "correct the command or its path; what git does not hold belongs under `inputs`"
    raise ConfigError(_fault(site, "launcher.command", message, mend))


def _unreadable(site: Site, error: MetricError, job: JobPaths) -> Fault:
    metric = str(error).removeprefix("metric ").partition(":")[0]
    said = last_line(job.stdout) or last_line(job.stderr)
    seen = f"the last line of the output was {said!r}" if said else "the command printed nothing"
    mend = f"have it print `{metric}: <number>`, or say under `metrics` where the number is"
    return _fault(site, f"metrics.{metric}", f"the dry run gave no value: {error}; {seen}", mend)


@contextmanager
def _dry_tree(site: Site, commit: str) -> Iterator[tuple[Path, JobPaths]]:
    """A throw-away tree of `commit` and a throw-away job folder."""
    exclude = site.git.common_dir / "info" / "exclude"
    before = exclude.read_bytes() if exclude.exists() else None
    fresh = not site.paths.runtime.exists()
    trees = Worktrees(site.paths)
    # Two processes may look at the same study at once.
    replica = f"dry-run-{os.getpid()}"
    try:
        tree = trees.ensure_replica_tree(0, commit, replica)
        # Among the trees: what a killed preflight leaves is cleared away with theirs.
        with tempfile.TemporaryDirectory(prefix="dry-run-", dir=site.paths.worktrees) as scratch:
            yield tree, JobPaths(Path(scratch, "job"))
    finally:
        trees.remove(site.paths.worktree(0, replica=replica))
        if fresh and _clear_runtime(site.paths):
            exclude.unlink() if before is None else exclude.write_bytes(before)
            _remove_empty(site.git.common_dir / "worktrees")


def _clear_runtime(paths: StudyPaths) -> bool:
    """Remove a `.nightlab/` that holds nothing but what a dry run made; another study may have begun in it since."""
    _remove_empty(paths.worktrees)
    _remove_empty(paths.worktrees.parent)
    locks = {paths.git_lock, paths.git_children_lock}
    if not set(paths.runtime.iterdir()) <= locks:
        return False
    for lock in locks:
        lock.unlink(missing_ok=True)
    paths.runtime.rmdir()
    return True


def _remove_empty(folder: Path) -> None:
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
