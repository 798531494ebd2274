"""Whether an idea is taken: applied in memory, looked at, compared with earlier ones, and run for a moment."""

from __future__ import annotations

import ast
import difflib
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nightlab.agents.code_checks import Change, Refusal, check_change, check_syntax
from nightlab.agents.code_space import accepted, reading
from nightlab.agents.context import Lab
from nightlab.agents.edits import Read, apply_ideas, changed_lines, changed_rows, edited
from nightlab.agents.preflight import Site, dry_run
from nightlab.agents.python_code import parsed, tokens_of
from nightlab.configs.study import Study
from nightlab.errors import ConfigError, GitError, PatchError
from nightlab.knowledge.records import Edit, Idea
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for

__all__ = ["Checked", "check_edits", "checked", "smoke_fault"]

_SHORT_RUN = threading.Lock()
"""All short runs of a lab have one tree: an idea and a repair may be looked at side by side."""
ALIKE = 0.9
"""Share of equal tokens from which two changes are the same idea, where their numbers are the same too."""


@dataclass(frozen=True)
class Checked:
    """What the checks found: refusals, or what is written of the idea."""

    refusals: tuple[Refusal, ...] = ()
    after: Mapping[str, str] | None = None
    """The changed files, with what the idea builds on."""
    lines: tuple[int, int] = (0, 0)
    """Added, removed."""
    fingerprint: str = ""
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def check_edits(lab: Lab, edits: Sequence[Edit], *, beside: Sequence[Idea] = ()) -> list[Refusal]:
    """Every reason not to take `edits`, applied to the base commit with the ideas `beside`; nothing is run.

    Of reasons that make further checks meaningless only the first. Near-duplicates are not looked for.
    """
    change = _change(lab, edits, beside)
    return [change] if isinstance(change, Refusal) else check_change(change)


def checked(lab: Lab, edits: Sequence[Edit], *, winners: Sequence[Idea] = ()) -> Checked:
    """`check_edits`, near-duplicates and the short run; edits that need what `winners` change are taken on it."""
    earlier = accepted(lab.ledger)
    beside: Sequence[Idea] = ()
    change = _change(lab, edits, beside)
    if isinstance(change, Refusal) and winners:
        beside = winners
        change = _change(lab, edits, beside)
    if isinstance(change, Refusal):
        return Checked((change,))
    if refusals := check_change(change):
        return Checked(tuple(refusals))
    tokens = _tokens(change)
    if refusal := _duplicate(lab, tokens, earlier):
        return Checked((refusal,))
    # What it builds on comes along.
    files = {**apply_ideas(reading(lab.git, lab.base_commit), beside), **change.after}
    if refusal := smoke_fault(lab, files):
        return Checked((refusal,))
    return Checked(
        after=files,
        lines=changed_lines(change.before, change.after),
        fingerprint=hashlib.sha256("\n".join(tokens).encode()).hexdigest(),
        requires=tuple(idea.name for idea in beside),
        conflicts=tuple(_conflicts(lab, edits, beside, earlier)),
    )


def _change(lab: Lab, edits: Sequence[Edit], beside: Sequence[Idea]) -> Change | Refusal:
    try:
        read = _on_top(reading(lab.git, lab.base_commit), beside)
        after = edited(read, edits)
        return Change(lab.study, {path: read(path) for path in after}, after)
    except PatchError as error:
        return Refusal(error.cause, str(error))


def _on_top(read: Read, ideas: Sequence[Idea]) -> Read:
    """Reads files as they are with `ideas` applied."""
    texts = apply_ideas(read, ideas)
    return lambda path: texts[path] if path in texts else read(path)


def _tokens(change: Change) -> list[str]:
    """What changes, as tokens: for each file its name, what goes and what comes."""
    found: list[str] = []
    for path in sorted(change.after):
        rows = [row for row in changed_rows(change.before.get(path) or "", change.after[path]) if row[1:].strip()]
        known = frozenset(_names(change.before.get(path) or "")) if path.endswith(".py") else frozenset()
        for sign in ("-", "+"):
            found += [path, sign, *tokens_of((row[1:] for row in rows if row[0] == sign), known)]
    return found


def _names(text: str) -> Iterable[str]:
    for node in ast.walk(parsed(text)):
        for field in ("id", "attr", "name", "arg", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def _duplicate(lab: Lab, tokens: list[str], earlier: Sequence[Idea]) -> Refusal | None:
    by_name = {idea.name: idea for idea in earlier}
    for idea in earlier:
        change = _change(lab, idea.edits, [by_name[name] for name in idea.requires if name in by_name])
        if not isinstance(change, Refusal) and _alike(tokens, _tokens(change)):
            return Refusal("near-duplicate", f"is the same as the earlier idea {idea.name} ({idea.title})")
    return None


def _alike(one: list[str], other: list[str]) -> bool:
    """Whether two changes are the same but for little; other numbers make another idea."""
    numbers = [sorted(float(token) for token in tokens if _is_number(token)) for tokens in (one, other)]
    if numbers[0] != numbers[1]:
        return False
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() >= ALIKE


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return token[0].isdigit() or token[0] == "."


def _conflicts(lab: Lab, edits: Sequence[Edit], beside: Sequence[Idea], earlier: Sequence[Idea]) -> Iterable[str]:
    """The earlier ideas beside which the edits cannot be applied, or are no code any more."""
    by_name = {idea.name: idea for idea in earlier}
    for idea in earlier:
        needed = {one.number: one for one in (*beside, idea, *(by_name[n] for n in idea.requires if n in by_name))}
        both = _change(lab, edits, list(needed.values()))
        if isinstance(both, Refusal) or check_syntax(both):
            yield idea.name


def smoke_fault(lab: Lab, files: Mapping[str, str]) -> Refusal | None:
    """What is wrong with a short run of the baseline with `files` in the place of its own; None where it ends well.

    In a tree and a job of its own, bounded in time; may be called in any thread. None as well where the study wants
    no short runs.
    """
    if not lab.study.code.short_run:
        return None
    study = _short(lab.study)
    site = Site(
        study=study,
        file=lab.study_file,
        paths=lab.paths,
        git=lab.git,
        backend=LocalBackend(study.backend),
        launcher=launcher_for(study, lab.catalog),
        catalog=lab.catalog,
    )
    try:
        with _SHORT_RUN:
            dry_run(site, lab.base_commit, files)
    except ConfigError as error:
        told = "; ".join(fault.message for fault in error.faults).replace("the dry run", "the short run")
        return Refusal("smoke", lab.redactor.redact(told))
    except GitError as error:
        return Refusal("path", lab.redactor.redact(str(error)))
    return None


def _short(study: Study) -> Study:
    code, launcher = study.code, study.launcher
    short = {
        "dry_run": code.smoke or launcher.dry_run,
        "dry_run_timeout_seconds": code.smoke_timeout_seconds or launcher.dry_run_timeout_seconds,
    }
    return study.model_copy(update={"launcher": launcher.model_copy(update=short)})
