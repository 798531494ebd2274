"""Accepted code ideas as the search, the training agent and the reviewer know them: parameters, factors, files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nightlab.agents.edits import Read, apply_ideas, diff_text, folders_of
from nightlab.configs.code import idea_name, idea_parameter, is_idea, is_mutable
from nightlab.configs.study import Scalar, Study
from nightlab.errors import Fault, PatchError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Experiment, Idea, IdeaState
from nightlab.search.history import RankedFactor
from nightlab.worktrees.git import Git

__all__ = [
    "NO_CODE",
    "Code",
    "accepted",
    "code_faults",
    "code_files",
    "code_of",
    "factors_of",
    "forbidden_by",
    "ideas_in",
    "mutable_files",
    "reading",
    "study_of",
    "with_ideas",
]

FILE_MODES, FOLDER_MODE = ("100644", "100755"), "040000"


def accepted(ledger: Ledger) -> list[Idea]:
    """The ideas that are factors of the study, in the order they came."""
    return ledger.ideas(states=(IdeaState.ACCEPTED,))


def with_ideas(study: Study, ideas: Iterable[Idea]) -> Study:
    """The study with each idea as a parameter that is false in the baseline; giving one again changes nothing."""
    added = {idea_parameter(idea.name): False for idea in ideas}
    return study.model_copy(update={"parameters": {**study.parameters, **added}}) if added else study


def study_of(ledger: Ledger) -> Study:
    """The study as its results are to be read: as the ledger holds it, with the ideas."""
    return with_ideas(ledger.study_row().study, accepted(ledger))


def factors_of(ideas: Iterable[Idea]) -> tuple[RankedFactor, ...]:
    """The ideas as factors to try, in the order they came."""
    return tuple(
        RankedFactor(
            name=idea_parameter(idea.name),
            levels=(True,),
            ordered=False,
            requires={idea_parameter(name): True for name in idea.requires},
            reason=f"idea: {idea.title}",
        )
        for idea in ideas
    )


def forbidden_by(ideas: Iterable[Idea]) -> tuple[dict[str, Scalar], ...]:
    """The pairs of ideas that cannot both be applied."""
    return tuple(
        {idea_parameter(other): True, idea_parameter(idea.name): True} for idea in ideas for other in idea.conflicts
    )


def ideas_in(experiment: Experiment, ideas: Iterable[Idea]) -> list[Idea]:
    """Those of the accepted `ideas` that an experiment applies."""
    return [idea for idea in ideas if experiment.parameters.get(idea_parameter(idea.name)) is True]


@dataclass(frozen=True)
class Code:
    """What an experiment changes in the code."""

    ideas: Sequence[Idea] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """The changed files, path → text."""
    diff: str = ""
    """Unified, against the base commit."""

    @property
    def fence(self) -> str:
        """Backticks that no line of the diff closes."""
        return "`" * max(4, 1 + max((len(ticks) for ticks in re.findall("`+", self.diff)), default=0))


NO_CODE = Code()


def code_of(git: Git, experiment: Experiment, ideas: Sequence[Idea]) -> Code:
    """The code of an experiment, of the study's accepted `ideas`. Raises PatchError where they cannot be applied."""
    files = code_files(git, experiment, ideas)
    read = reading(git, experiment.base_commit)
    return Code(ideas_in(experiment, ideas), files, diff_text({path: read(path) for path in files}, files))


def code_files(git: Git, experiment: Experiment, ideas: Sequence[Idea]) -> dict[str, str]:
    """The files that an experiment's ideas change, by path, as they are on its branch. Raises PatchError."""
    applied = ideas_in(experiment, ideas)
    wanted = {idea_name(name) for name, value in experiment.parameters.items() if is_idea(name) and value is True}
    if missing := sorted(wanted - {idea.name for idea in applied}):
        raise PatchError(f"the ledger holds no idea {', '.join(missing)}", cause="patch")
    return apply_ideas(reading(git, experiment.base_commit), applied)


def mutable_files(study: Study, git: Git, commit: str) -> list[str]:
    """The files of `commit` that an idea may change."""
    listed = git.output("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    paths = [path.decode("utf-8", "replace") for path in listed.split(b"\0") if path]
    return [path for path in paths if is_mutable(study.code, study.frozen, path)]


def code_faults(study: Study, git: Git, commit: str, file: Path) -> list[Fault]:
    """What the study's `code` section names and `commit` does not hold."""
    code = study.code
    if not code.mutable:
        return []
    files, faults = mutable_files(study, git, commit), []
    if not files:
        mend = "correct the paths, or commit the files"
        faults.append(Fault("names no file of the last commit", key="code.mutable", value=code.mutable, mend=mend))
    if code.instructions and git.call("cat-file", "-e", f"{commit}:{code.instructions}")[0]:
        mend = "correct the path, or commit the file"
        message = f"{code.instructions} is not in the last commit"
        faults.append(Fault(message, key="code.instructions", value=code.instructions, mend=mend))
    for name in code.required_calls if files else ():
        if not any(re.search(rf"\b{name}\s*\(", git.show_file(commit, path)) for path in files):
            message = f"{name} is called in none of the mutable files"
            faults.append(
                Fault(message, key="code.required_calls", value=name, mend="correct the name, or take it out")
            )
    return [replace(fault, file=file) for fault in faults]


def reading(git: Git, commit: str) -> Read:
    """Reads the files of `commit`; neither a link nor anything beyond one is a file."""

    def entry(path: str) -> tuple[str, str] | None:
        row = git.line("--literal-pathspecs", "ls-tree", "--full-tree", commit, "--", path)
        mode, _, name = row.partition("\t")[0].split() if row else ("", "", "")
        return (mode, name) if row else None

    def read(path: str) -> str | None:
        row = entry(path)
        if row is None:
            for folder in folders_of(path):
                if (held := entry(folder)) is not None and held[0] != FOLDER_MODE:
                    raise PatchError(f"{path}: {folder} is no folder", cause="path")
            return None
        mode, blob = row
        if mode not in FILE_MODES:
            raise PatchError(f"{path}: is no plain file", cause="path")
        try:
            return git.output("cat-file", "blob", blob).decode("utf-8")
        except UnicodeDecodeError as error:
            raise PatchError(f"{path}: is no UTF-8 text", cause="path") from error

    return read
