"""What every agent holds in its hands: the study and the rooms' open objects. Never checkpointed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nightlab.agents.aside import Aside
from nightlab.agents.brain import Brain, RulesBrain
from nightlab.agents.pruning import Pruner
from nightlab.agents.watchdog import Watch
from nightlab.configs.files import write_atomically
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.knowledge.catalog import Catalog
from nightlab.knowledge.ledger import Configuration, Ledger
from nightlab.knowledge.records import Question, utc_now
from nightlab.knowledge.signatures import Signatures, load_signatures
from nightlab.tools.backends.base import Backend
from nightlab.tools.disk import free_bytes
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.notify.messages import Notice, Ways
from nightlab.tools.redaction import Redactor
from nightlab.worktrees.git import Git
from nightlab.worktrees.trees import Worktrees

if TYPE_CHECKING:
    from nightlab.agents.ideas import Ideas
    from nightlab.agents.llm import Models
    from nightlab.agents.repair import Fix

__all__ = ["Lab"]


def _never() -> bool:
    return False


def _silent() -> None:
    return None


def _untold(_notice: Notice) -> None:
    return None


def _by_hand(_question: Question) -> Ways:
    return Ways()


@dataclass
class Lab:
    """One study, opened by one process."""

    study: Study
    study_file: Path
    paths: StudyPaths
    git: Git
    worktrees: Worktrees
    ledger: Ledger
    backend: Backend
    launcher: Launcher
    catalog: Catalog
    base_commit: str
    redactor: Redactor = field(default_factory=Redactor.of)
    """Knows the study's secrets; everything the lab writes passes through it."""
    signatures: Signatures = field(default_factory=load_signatures)
    """How failures are told apart."""
    deadline: datetime | None = None
    """When the budget's wall clock runs out; it changes only while no lab runs."""
    brain: Brain = field(default_factory=RulesBrain)
    models: Models | None = None
    """The language models that may be asked; None: the rules decide alone."""
    ideas: Ideas | None = None
    """Who asks for changes to the code; None: nobody does."""
    aside: Aside = field(default_factory=Aside)
    """Where reviews and repairs wait for a model."""
    fixes: dict[str, Fix] = field(default_factory=dict)
    """Key of a failed run → the fix that was proposed for it, until the supervisor carries it out."""
    now: Callable[[], datetime] = utc_now
    stop_requested: Callable[[], bool] = _never
    """True once a person asked the lab to stop: no new job is started, running ones are left alone."""
    on_change: Callable[[], None] = _silent
    """Called after every step that changed the ledger, for live displays."""
    write_reports: Callable[[], None] = _silent
    """Writes the table and the report; the face provides it, the supervisor says when."""
    prune_checkpoints: Callable[[], None] = _silent
    back_up: Callable[[], None] = _silent
    """Copies the ledger where a copy is due."""
    notify: Callable[[Notice], None] = _untold
    """Tells people away from the terminal; the same notice may be given again, it is told once."""
    ways_to_answer: Callable[[Question], Ways] = _by_hand
    """How a question is answered from where it is told."""
    configurations: dict[int, Configuration] = field(default_factory=dict)
    """What each experiment sets, as far as it was read from the ledger."""
    heard: object = None
    """What persons and deadlines had decided when this turn of the loop began."""
    prepared: dict[str, Path] = field(default_factory=dict)
    """Key of a run → its tree, where this process has made it ready."""

    watch: Watch = field(init=False)
    """What the watchdog has seen of the running jobs."""
    pruner: Pruner = field(default_factory=Pruner)
    """What has been read of the curves of running and ended jobs."""

    def __post_init__(self) -> None:
        self.watch = Watch(self.study.watchdog)

    def write_document(self, path: Path, text: str) -> None:
        """Replace a document of the study folder, without secrets. Raises DiskError when the disk takes no more."""
        write_atomically(path, self.redactor.redact(text))

    @property
    def is_overdue(self) -> bool:
        """Whether the budget's wall clock has run out."""
        return self.deadline is not None and self.now() >= self.deadline

    @property
    def is_paused(self) -> bool:
        """Whether a person asked that no new job be started."""
        return self.ledger.is_paused()

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for another job."""
        return free_bytes(self.paths.runtime) >= self.study.disk.min_free_bytes

    @property
    def lessons_path(self) -> Path:
        return self.paths.root / self.study.lessons if self.study.lessons else self.paths.lessons
