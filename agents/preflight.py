"""Before the first job: everything that would ruin the night is looked for, and all of it is reported at once.

The dry run really starts the training command, in a tree of its own that is taken away afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import humanize
import psutil

from nightlab.agents.code_space import code_faults
from nightlab.agents.failures import last_line
from nightlab.agents.model_setup import model_faults
from nightlab.agents.secrecy import clean_logs, redactor_of, secret_faults
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.configs.study import Study
from nightlab.configs.units import next_clock_time
from nightlab.errors import ConfigError, Fault, LauncherError, MetricError
from nightlab.knowledge.catalog import Catalog
from nightlab.knowledge.records import utc_now
from nightlab.tools.backends.base import Backend, JobSpec, JobStatus
from nightlab.tools.disk import free_bytes
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.launchers.faults import launcher_faults
from nightlab.tools.metrics import read_metrics
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.tools.notify import check_targets
from nightlab.tools.notify.ntfy import check_replies
from nightlab.worktrees.commits import inside
from nightlab.worktrees.git import Git
from nightlab.worktrees.inputs import check_inputs, init_submodules, link_inputs
from nightlab.worktrees.trees import SCRATCH, Worktrees

__all__ = ["DryRun", "Site", "dry_run", "fault_at", "fewest_runs", "static_faults"]

COMMAND_MISSING = (126, 127)
"""A shell's exit status for a command that is not there or may not be executed."""

JOB = "dry-run"
"""The dry run's job folder, in git's own folder for its tree."""


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
    faults = [*_frozen(site, commit), *_inputs(site), *_techniques(site), *_budget(site)]
    faults += code_faults(site.study, site.git, commit, site.file)
    notify = site.study.notify
    told = [*check_targets(notify.targets), *check_replies(notify.replies)]
    faults += [replace(fault, file=site.file) for fault in told]
    framework = launcher_faults(site.study, site.launcher, site.paths.root, site.paths.folder)
    faults += [replace(fault, file=site.file) for fault in framework]
    faults += [*_disk(site), *secret_faults(site.study, redactor_of(site.study), site.file)]
    faults += model_faults(site.study, site.file, os.environ)
    return faults if allow_dirty else [*_dirty(site), *faults]


def fault_at(site: Site, key: str, message: str, mend: str, value: object = None) -> Fault:
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
        fault_at(site, "frozen", f"{path} is not in the last commit", "correct the path, or commit the file", path)
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
                fault_at(site, key, error.faults[0].message, error.faults[0].mend or "see `nightlab catalog list`")
            )
    return faults


def fewest_runs(study: Study) -> int:
    """The smallest night: the baseline's replicates, one change, and one finalist confirmed beside the baseline, if any
    is to be."""
    search = study.search
    return search.baseline_replicates + 1 + (2 * search.confirm_seeds if search.confirm else 0)


def _budget(site: Site) -> list[Fault]:
    budget, search = site.study.budget, site.study.search
    faults, need = [], fewest_runs(site.study)
    if budget.runs is not None and budget.runs < need:
        message = (
            f"{budget.runs} runs cannot cover a plan; the least is {need}: {search.baseline_replicates} for the"
            f" baseline, 1 change{f', {2 * search.confirm_seeds} to confirm it' if search.confirm else ''}"
        )
        mend = f"raise it to {need} or more, or lower search.baseline_replicates or search.confirm_seeds"
        faults.append(fault_at(site, "budget.runs", message, mend, budget.runs))
    if budget.until is not None and next_clock_time(budget.until, utc_now().astimezone()) <= utc_now():
        mend = "give a moment to come, or a clock time such as 07:30"
        faults.append(fault_at(site, "budget.until", f"{budget.until} is past", mend, budget.until))
    return faults


def _disk(site: Site) -> list[Fault]:
    least_bytes, left_bytes = site.study.disk.min_free_bytes, free_bytes(site.paths.runtime)
    if left_bytes >= least_bytes:
        return []
    least, left = humanize.naturalsize(least_bytes), humanize.naturalsize(left_bytes)
    message = f"only {left} are free on the disk of {site.paths.root}; no job would be started below {least}"
    return [fault_at(site, "disk.min_free", message, "make room, or lower it")]


def dry_run(site: Site, commit: str, files: Mapping[str, str] = MappingProxyType({})) -> DryRun:
    """Start the command once in a tree of `commit` with the `launcher.dry_run` values and read every metric.

    `files` (path → text) stand in the place of the commit's own. Raises ConfigError naming the key to mend, GitError
    for a path that leaves the tree. Leaves nothing behind.
    """
    with _dry_tree(site, commit) as (tree, job):
        link_inputs(site.paths.root, tree, site.study.inputs)
        init_submodules(tree)
        for path, text in files.items():
            # As it stands there: a script may be executable.
            inside(tree, path).parent.mkdir(parents=True, exist_ok=True)
            inside(tree, path).write_bytes(text.encode())
        job.output.mkdir(parents=True)
        status = _run(site.backend, _spec(site, tree, job))
        # What is told of it is cut from them.
        clean_logs(job, redactor_of(site.study))
        _refuse_bad_end(site, status, job)
        written = RunFiles(stdout=job.stdout, stderr=job.stderr, worktree=tree, output=job.output)
        try:
            readings = read_metrics(site.study, written)
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
        key=_key(site),
        command=launch.command,
        cwd=launch.cwd,
        env=launch.env,
        directory=job.directory,
        timeout_seconds=site.study.launcher.dry_run_timeout_seconds,
    )


def _run(backend: Backend, spec: JobSpec) -> JobStatus:
    """Run one job to its end; an interrupted preflight takes its job along."""
    directories = {spec.key: spec.directory}
    try:
        backend.submit(spec)
        while not backend.wait(directories, 1.0):
            pass
    finally:
        backend.cancel(directories)
    return backend.poll(directories)[spec.key]


def _refuse_bad_end(site: Site, status: JobStatus, job: JobPaths) -> None:
    if status.timed_out:
        limit = site.study.launcher.dry_run_timeout_seconds
        raise ConfigError(
            fault_at(
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
    raise ConfigError(fault_at(site, "launcher.command", message, mend))


def _unreadable(site: Site, error: MetricError, job: JobPaths) -> Fault:
    metric = str(error).removeprefix("metric ").partition(":")[0]
    said = last_line(job.stdout) or last_line(job.stderr)
    seen = f"the last line of the output was {said!r}" if said else "the command printed nothing"
    mend = f"have it print `{metric}: <number>`, or say under `metrics` where the number is"
    return fault_at(site, f"metrics.{metric}", f"the dry run gave no value: {error}; {seen}", mend)


@contextmanager
def _dry_tree(site: Site, commit: str) -> Iterator[tuple[Path, JobPaths]]:
    """A throw-away tree of `commit` and a throw-away job folder."""
    exclude = site.git.common_dir / "info" / "exclude"
    before = exclude.read_bytes() if exclude.exists() else None
    fresh = not site.paths.runtime.exists()
    trees = Worktrees(site.paths)
    _clear_killed(site, trees)
    # Two processes may look at the same study at once.
    replica = f"{SCRATCH}{os.getpid()}"
    try:
        tree = trees.ensure_replica_tree(0, commit, replica)
        yield tree, _job_of(tree)
    finally:
        trees.remove(site.paths.worktree(0, replica=replica))
        if fresh and _clear_runtime(site.paths):
            exclude.unlink() if before is None else exclude.write_bytes(before)
            _remove_empty(site.git.common_dir / "worktrees")


def _job_of(tree: Path) -> JobPaths:
    """The dry run's job, in git's own folder for the tree, so that it goes with it."""
    return JobPaths(Git(tree).git_dir() / JOB)


def _clear_killed(site: Site, trees: Worktrees) -> None:
    """End the dry runs of processes that were killed, and take their trees away."""
    for tree in site.paths.worktrees.glob(site.paths.worktree(0, replica=f"{SCRATCH}*").name):
        pid = int(tree.name.removeprefix(site.paths.worktree(0, replica=SCRATCH).name))
        if pid == os.getpid() or not psutil.pid_exists(pid):
            # Without a record it was killed before it started its job, or after it had ended it; the link from the
            # tree to the record may be gone all the same.
            if record := trees.record_of(tree):
                site.backend.cancel({_key(site): JobPaths(record / JOB).directory})
            trees.remove(tree)


def _key(site: Site) -> str:
    return f"{site.study.study}/dry-run"


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
