"""Opening a study: the repository, the ledger and the rooms' objects, new or as a stopped or killed lab left them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.agents.code_space import accepted, with_ideas
from nightlab.agents.context import Lab
from nightlab.agents.ideas import Ideas
from nightlab.agents.llm_brain import LlmBrain
from nightlab.agents.model_setup import open_models
from nightlab.agents.secrecy import redactor_of
from nightlab.configs.loading import LoadedStudy
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.errors import ConfigError, Fault
from nightlab.graph.budget import deadline_of
from nightlab.graph.state import GRAPH_VERSION
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyRow, StudyStatus, utc_now
from nightlab.knowledge.signatures import load_signatures
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for
from nightlab.tools.redaction import Redactor
from nightlab.worktrees.git import Git, find_root
from nightlab.worktrees.trees import Worktrees

__all__ = ["Place", "begin_study", "locate", "open_lab", "resume_study"]

# What may be changed while a study goes on; everything else would make its results incomparable.
CHANGEABLE = frozenset(
    {
        "goal",
        "author",
        "budget",
        "prices",
        "brain",
        "code",
        "backend",
        "approvals",
        "notify",
        "report",
        "secrets",
        "watchdog",
        "failures",
        "disk",
        "checkpoints",
        "lessons",
    }
)


@dataclass(frozen=True)
class Place:
    """Where a study stands."""

    root: Path
    paths: StudyPaths
    file: Path
    redactor: Redactor = field(default_factory=Redactor.of)
    """Knows the study's secrets."""

    def open_ledger(self) -> Ledger:
        """The ledger, which keeps secrets out; made when there is none. Raises what `Ledger.open` raises."""
        return Ledger.open(self.paths.ledger, redact=self.redactor.redact_data)

    def read_ledger(self) -> Ledger:
        """The ledger, for reading alone: nothing is written. Raises what `Ledger.open_to_read` raises."""
        return Ledger.open_to_read(self.paths.ledger, redact=self.redactor.redact_data)


def locate(loaded: LoadedStudy) -> Place:
    """The training repository around the study file. Raises GitError when there is none."""
    root = find_root(loaded.file.parent)
    return Place(root, StudyPaths(root, loaded.study.study), loaded.file, redactor_of(loaded.study))


def begin_study(ledger: Ledger, study: Study, git: Git, base_commit: str) -> StudyRow:
    """Write a new study into its ledger, the clock of its budget starting now."""
    now = utc_now()
    frozen = git.hash_paths(base_commit, study.frozen)
    with ledger.transaction():
        ledger.save_study(
            study,
            base_commit=base_commit,
            graph_version=str(GRAPH_VERSION),
            deadline=deadline_of(study.budget, now, now),
            frozen_hashes=frozen,
        )
        row = ledger.update_study(started_at=now, phase="understand")
        ledger.add_event("started", f"from commit {base_commit[:12]}")
    return row


def resume_study(ledger: Ledger, row: StudyRow, study: Study, file: Path) -> StudyRow:
    """Take over what may change in a study that has begun. Raises ConfigError naming every key that may not."""
    if row.graph_version != str(GRAPH_VERSION):
        raise ConfigError(
            Fault(
                f"the study {study.study} was begun by another version of nightlab (graph {row.graph_version}, "
                f"now {GRAPH_VERSION})",
                file=file,
                key="study",
                mend="finish it with the version that began it, or give the study a new name",
            )
        )
    # The ledger holds it without secrets, as they were known then.
    study, held = ledger.safe_study(study), ledger.safe_study(row.study)
    changed = [key for key in Study.model_fields if getattr(study, key) != getattr(held, key)]
    faults = [_not_comparable(key, row, file) for key in changed if key not in CHANGEABLE]
    if faults:
        raise ConfigError(faults)
    if not changed:
        return row
    changes: dict[str, object] = {"study": study}
    if "budget" in changed:
        now = utc_now()
        changes["deadline"] = deadline_of(study.budget, row.started_at or now, now)
        if row.status is StudyStatus.FINISHED:
            changes |= {"status": StudyStatus.STOPPED, "finished_at": None}
    with ledger.transaction():
        ledger.add_event("changed", f"in the study file: {', '.join(changed)}")
        return ledger.update_study(**changes)


def _not_comparable(key: str, row: StudyRow, file: Path) -> Fault:
    return Fault(
        f"was changed after the study began; its results could not be compared (the study ran with it from commit "
        f"{row.base_commit[:12]})",
        file=file,
        key=key,
        mend="change it back, or give the study a new name",
    )


@contextmanager
def open_lab(place: Place, study: Study, *, stop_requested: Callable[[], bool] | None = None) -> Iterator[Lab]:
    """The lab of a study whose ledger has begun."""
    catalog = load_catalog(place.root / study.catalog.file if study.catalog.file else None)
    with place.open_ledger() as ledger:
        row = ledger.study_row()
        lab = Lab(
            study=with_ideas(study, accepted(ledger)),
            study_file=place.file,
            paths=place.paths,
            git=Git(place.root),
            worktrees=Worktrees(place.paths, place.redactor.redact),
            ledger=ledger,
            backend=LocalBackend(study.backend),
            launcher=launcher_for(study, catalog),
            catalog=catalog,
            base_commit=row.base_commit,
            redactor=place.redactor,
            deadline=row.deadline,
            signatures=load_signatures(place.root / study.failures.file if study.failures.file else None),
            models=open_models(study, ledger, place.file, os.environ),
        )
        if lab.models is not None:
            lab.brain = LlmBrain(lab, lab.models.proposer)
        lab.ideas = Ideas()
        if stop_requested is not None:
            lab.stop_requested = stop_requested
        try:
            yield lab
        finally:
            lab.ideas.close()
            lab.aside.close()
        # The lab may have ended before it looked at what its threads could not bear.
        if lab.ideas.has_news:
            lab.ideas.take(lab)
        lab.aside.take()
