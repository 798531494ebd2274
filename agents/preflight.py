"""Before the first job: everything that would ruin the night is looked for, and all of it is reported at once.

The dry run really starts the training command, in a tree of its own that is taken away afterwards.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nightlab.agents.evaluation import last_line
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.configs.study import Study
from nightlab.errors import ConfigError, Fault, MetricError
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.backends.base import Backend, JobSpec, JobStatus
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.metrics import read_metrics
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.worktrees.git import Git
from nightlab.worktrees.inputs import init_submodules, link_inputs
from nightlab.worktrees.trees import Worktrees

__all__ = ["DryRun", "Site", "dry_run", "fewest_runs", "static_faults"]


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


def static_faults(site: Site, *, allow_dirty: bool) -> list[Fault]:
    """Everything wrong that can be seen without starting anything."""
    faults = [*_frozen(site), *_inputs(site), *_techniques(site), *_budget(site)]
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


def _frozen(site: Site) -> list[Fault]:
    held = site.git.hash_paths(site.git.head(), site.study.frozen) if site.study.frozen else {}
    return [
        _fault(site, "frozen", f"{path} is not in the last commit", "correct the path, or commit the file", path)
        for path in site.study.frozen
        if path not in held
    ]


def _inputs(site: Site) -> list[Fault]:
    return [
        _fault(site, "inputs", f"{path} does not exist", "correct the path, relative to the repository", path)
        for path in site.study.inputs
        if not (site.paths.root / path).exists()
    ]


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
    runs, need = site.study.budget.runs, fewest_runs(site.study)
    if runs is None or runs >= need:
        return []
    search = site.study.search
    return [
        _fault(
            site,
            "budget.runs",
            f"{runs} runs cannot cover a plan; the least is {need}: {search.baseline_replicates} for the baseline,"
            f" 1 change, {2 * search.confirm_seeds} to confirm it",
            f"raise it to {need} or more, or lower search.baseline_replicates or search.confirm_seeds",
            runs,
        )
    ]


def dry_run(site: Site, commit: str) -> DryRun:
    """Start the command once in a tree of `commit` with the `launcher.dry_run` values and read every metric.

    Raises ConfigError naming the key to mend. Leaves nothing behind.
    """
    with _dry_tree(site, commit) as (tree, job):
        parameters = {**site.study.parameters, **site.study.launcher.dry_run}
        for path, text in site.launcher.files(parameters, tree).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, encoding="utf-8")
        link_inputs(site.paths.root, tree, site.study.inputs)
        init_submodules(tree)
        job.output.mkdir(parents=True)
        launch = site.launcher.launch(parameters, seed=0, tree=tree, output=job.output)
        key = f"{site.study.study}/dry-run"
        spec = JobSpec(
            key=key,
            command=launch.command,
            cwd=launch.cwd,
            env=launch.env,
            directory=job.directory,
            timeout_seconds=site.study.launcher.dry_run_timeout_seconds,
        )
        status = _run(site.backend, spec)
        _refuse_bad_end(site, status, job)
        files = RunFiles(stdout=job.stdout, stderr=job.stderr, worktree=tree, output=job.output)
        try:
            readings = read_metrics(site.study, files)
        except MetricError as error:
            tail = last_line(job.stdout)
            raise ConfigError(
                _fault(
                    site,
                    f"metrics.{site.study.objective.metric}",
                    f"the dry run ended well, but {error}; its last line was: {tail!r}",
                    "say under `metrics` where the metric is read from",
                )
            ) from error
    return DryRun(status.wall_seconds or 0.0, readings)


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
    if status.exit_code != 0:
        said = last_line(job.stderr) or last_line(job.stdout) or "nothing on stderr or stdout"
        raise ConfigError(
            _fault(
                site,
                "launcher.command",
                f"the dry run ended with exit status {status.exit_code}: {said}",
                "run the command by hand in a fresh clone; what git does not hold belongs under `inputs`",
            )
        )


@contextmanager
def _dry_tree(site: Site, commit: str) -> Iterator[tuple[Path, JobPaths]]:
    """A throw-away tree of `commit` and a throw-away job folder."""
    fresh = not site.paths.runtime.exists()
    trees = Worktrees(site.paths)
    scratch = Path(tempfile.mkdtemp(prefix="nightlab-dry-run-"))
    try:
        tree = trees.ensure_replica_tree(0, commit, "dry-run")
        yield tree, JobPaths(scratch / "job")
        trees.remove(tree)
    finally:
        shutil.rmtree(scratch)
        if fresh:
            trees.remove_all()
            shutil.rmtree(site.paths.runtime, ignore_errors=True)
