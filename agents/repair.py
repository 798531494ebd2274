"""Repair: one fix of a failed code idea, proposed by a model, within the limits of an idea and narrower.

The idea stays one idea, with other edits; whatever would change what is measured, or on how much, is refused. Asking
is one thing, done in any thread; `amend` is another, done by the supervisor in one transaction.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from nightlab.agents.code_checks import Change, Refusal, check_change
from nightlab.agents.code_space import accepted, reading
from nightlab.agents.context import Lab
from nightlab.agents.edits import Read, apply_ideas, changed_lines, diff_text, edited, edits_of_diff
from nightlab.agents.gaming import locked_loops
from nightlab.agents.idea_checks import smoke_fault
from nightlab.agents.idea_prompt import EditAnswer
from nightlab.agents.llm_brain import BYTES_A_TOKEN
from nightlab.agents.prompts import Prompt, fenced, quoted, render
from nightlab.agents.python_code import Module, call_name
from nightlab.agents.repairable import idea_to_mend, users_of
from nightlab.agents.said import visible
from nightlab.configs.study import Study
from nightlab.errors import BudgetError, ModelError, PatchError
from nightlab.knowledge.records import Edit, Idea, Run, RunState
from nightlab.tools.failures import NextStep

__all__ = ["Fix", "RepairSaid", "amend", "propose_fix", "repairs_due"]

LOG_BYTES = 6000
FILES_SHARE = 0.6
"""Of the longest prompt."""
READERS = ("open", "load", "read", "loadtxt", "genfromtxt", "load_dataset", "from_pretrained", "memmap", "fromfile")
LONGEST_TOLD = 300


class RepairSaid(BaseModel):
    """The answer."""

    explanation: str = Field(description="one sentence on what was wrong")
    edits: list[EditAnswer]
    diff: str = ""


@dataclass(frozen=True)
class Fix:
    """What came of asking: new edits of the idea, or why there are none."""

    edits: tuple[Edit, ...] = ()
    lines: tuple[int, int] = (0, 0)
    fingerprint: str = ""
    explanation: str = ""
    model: str = ""
    refused: str = ""
    """Why the idea stays as it is; empty where it is amended."""


@dataclass(frozen=True)
class _Site:
    """The files that an idea changes, before it and with it; the others as they are below it."""

    before: dict[str, str | None]
    with_idea: dict[str, str]
    read: Read = field(repr=False)


def repairs_due(lab: Lab) -> list[Run]:
    """Failed runs for which a fix is to be asked for, each the last attempt at its seed."""
    failed = [run for run in lab.ledger.runs(states=(RunState.FAILED,)) if run.next_step == NextStep.REPAIR]
    return [run for run in failed if _is_last(lab, run)]


def _is_last(lab: Lab, run: Run) -> bool:
    return run.attempt == max(one.attempt for one in lab.ledger.runs(run.number) if one.seed == run.seed)


def propose_fix(lab: Lab, run: Run) -> Fix:
    """Ask for a fix and check it, a short run included; nothing is written but the call. For any thread."""
    idea = idea_to_mend(lab, run, run.cause or "")
    if lab.models is None or idea is None:
        return Fix(refused="other runs with the idea have begun meanwhile")
    try:
        site = _site(lab, idea)
        prompt = _prompt(lab, run, site)
        key = f"repair/{run.number:02d}/{run.attempt}/{run.seed}"
        answer = lab.models.proposer.structured(lab, RepairSaid, prompt, purpose="repair", key=key)
        return _checked(lab, idea, site, answer.value, answer.model)
    except (BudgetError, ModelError, PatchError) as error:
        return Fix(refused=str(error))


def _site(lab: Lab, idea: Idea) -> _Site:
    below = [one for one in accepted(lab.ledger) if one.name in idea.requires]
    base = reading(lab.git, lab.base_commit)
    held = apply_ideas(base, below)

    def read(path: str) -> str | None:
        return held[path] if path in held else base(path)

    with_idea = edited(read, idea.edits)
    return _Site({path: read(path) for path in with_idea}, with_idea, read)


def _prompt(lab: Lab, run: Run, site: _Site) -> Prompt:
    study, code = lab.study, lab.study.code
    limit = int(FILES_SHARE * study.brain.max_prompt_tokens * BYTES_A_TOKEN)
    diff = diff_text(site.before, site.with_idea)
    return render(
        "repair",
        cause=quoted(f"{run.cause}: {run.detail}", LONGEST_TOLD * 2),
        log=quoted(_log_end(lab, run), LOG_BYTES),
        diff=fenced(diff[: limit // 3]),
        mutable=quoted(", ".join(code.mutable), LONGEST_TOLD * 2),
        frozen=quoted(", ".join(study.frozen) or "nothing", LONGEST_TOLD * 2),
        required=quoted(", ".join(code.required_calls) or "none", LONGEST_TOLD * 2),
        max_lines=code.max_changed_lines,
        files=[
            (quoted(path, LONGEST_TOLD), fenced(text[:limit].rstrip("\n")))
            for path, text in sorted(site.with_idea.items())
        ],
    )


def _log_end(lab: Lab, run: Run) -> str:
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    for log in (paths.stderr, paths.stdout):
        if log.exists() and (text := log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace").strip()):
            # A worktree's own place says nothing, and differs from lab to lab.
            return lab.redactor.redact(text)
    return ""


def _checked(lab: Lab, idea: Idea, site: _Site, said: RepairSaid, model: str) -> Fix:
    told = visible(said.explanation, LONGEST_TOLD)
    fix = [Edit(path=one.path, search=one.search, replace=one.replace) for one in said.edits]
    fix = fix or edits_of_diff(said.diff)
    edits = (*idea.edits, *fix)
    after = edited(site.read, edits)
    if refusals := refusals_of(lab.study, site.before, site.with_idea, after, site.read):
        return Fix(model=model, explanation=told, refused="; ".join(f"{one.cause}: {one.reason}" for one in refusals))
    below = [one for one in accepted(lab.ledger) if one.name in idea.requires]
    files = {**apply_ideas(reading(lab.git, lab.base_commit), below), **after}
    if fault := smoke_fault(lab, files):
        return Fix(model=model, explanation=told, refused=fault.reason)
    digest = hashlib.sha256("\n".join(f"{path}\n{text}" for path, text in sorted(after.items())).encode()).hexdigest()
    lines = changed_lines({path: site.read(path) for path in after}, after)
    return Fix(edits, lines, digest, told, model)


def refusals_of(
    study: Study, before: dict[str, str | None], with_idea: dict[str, str], after: dict[str, str], read: Read
) -> list[Refusal]:
    """Why a fix is not taken: as an idea with it, as a change of its own, and for what only a fix may not touch."""
    whole = Change(study, {path: before[path] if path in before else read(path) for path in after}, after)
    own = {path: with_idea[path] if path in with_idea else read(path) for path in after}
    alone = Change(study, own, after)
    if refusals := [*check_change(whole), *check_change(alone)]:
        return refusals
    return [
        Refusal("measured", f"{path}: a fix may not change {what}")
        for path, (one, other) in alone.python.items()
        for what in _touched(study, one, other)
    ]


def _touched(study: Study, before: Module, after: Module) -> Iterator[str]:
    for name in study.locked:
        if Counter(locked_loops(before, name)) != Counter(locked_loops(after, name)):
            yield f"how often is looped over {name}"
    if _reads(before) != _reads(after):
        yield "which data are read"


def _reads(tree: Module) -> Counter[str]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return Counter(ast.unparse(one) for one in calls if call_name(one) in READERS or call_name(one).startswith("read_"))


def amend(lab: Lab, run: Run, fix: Fix) -> bool:
    """Carry out a fix, or give the run up; True where it, and what failed alike, is to be tried again. One transaction.

    The experiment's code is committed anew before its next attempt (`training.prepare`).
    """
    idea = idea_to_mend(lab, run, run.cause or "")
    refused = fix.refused or ("" if idea else "other runs with the idea have begun meanwhile")
    # One fix mends every run that failed by this idea.
    alike = [one for one in repairs_due(lab) if idea is not None and idea_to_mend(lab, one, one.cause or "") == idea]
    with lab.ledger.transaction():
        if refused or idea is None:
            lab.ledger.update_run(run.key, next_step=NextStep.GIVE_UP)
            lab.ledger.add_event("repair", f"seed {run.seed}: no repair, {visible(refused, LONGEST_TOLD)}", run.number)
            return False
        added, removed = fix.lines
        lab.ledger.amend_idea(
            idea.number,
            mended=run.cause or "unknown",
            edits=list(fix.edits),
            lines_added=added,
            lines_removed=removed,
            fingerprint=fix.fingerprint,
        )
        for user in users_of(lab, idea):
            lab.ledger.update_experiment(user.number, commit=None)
        for one in alike:
            lab.ledger.update_run(one.key, next_step=NextStep.RETRY)
        lab.ledger.add_event("repair", f"idea {idea.name} amended by {fix.model}: {fix.explanation}", run.number)
    return True
