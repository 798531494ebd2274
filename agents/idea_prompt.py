"""What a model is told when it is asked for an idea: bounded, however long the night and however large the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, Field

from nightlab.agents.code_space import accepted, ideas_in, mutable_files, reading
from nightlab.agents.context import Lab
from nightlab.agents.digest import digest_of
from nightlab.agents.edits import apply_ideas, diff_text
from nightlab.agents.llm_brain import BYTES_A_TOKEN
from nightlab.agents.prompts import Prompt, fenced, quoted, render
from nightlab.configs.code import idea_parameter, settings_of
from nightlab.errors import PatchError
from nightlab.knowledge.records import Edit, Experiment, Idea, IdeaState, VerdictKind

__all__ = ["EditAnswer", "IdeaAnswer", "idea_prompt", "outcome_of", "winning_ideas"]

SHARES = {"instructions": 0.1, "files": 0.5, "applied": 0.08, "digest": 0.12, "ideas": 0.08, "answer": 0.1}
"""Of the longest prompt."""
LONGEST_LINE = 240


class EditAnswer(BaseModel):
    """One search/replace block."""

    path: str = Field(description="the file, relative to the repository's top folder")
    search: str = Field(description="text that stands in the file exactly once; empty to make a new file")
    replace: str = Field(description="what takes its place")


class IdeaAnswer(BaseModel):
    """One idea, as a model gives it."""

    title: str
    slug: str
    rationale: str
    expected_effect: str
    edits: list[EditAnswer]
    diff: str = ""

    def as_edits(self) -> list[Edit]:
        """The search/replace blocks as records; a diff is another matter."""
        return [Edit(path=one.path, search=one.search, replace=one.replace) for one in self.edits]


def idea_prompt(lab: Lab, *, answer: IdeaAnswer | None = None, reasons: Sequence[str] = ()) -> Prompt:
    """The prompt that asks for one idea; with `answer` and `reasons` for a better one than that."""
    study, code = lab.study, lab.study.code
    room = {name: int(share * study.brain.max_prompt_tokens * BYTES_A_TOKEN) for name, share in SHARES.items()}
    files, left_out = _files(lab, room["files"])
    return render(
        "idea",
        metric=quoted(study.objective.metric, LONGEST_LINE),
        direction=study.objective.direction,
        min_effect=f"{study.objective.min_effect:g}",
        mutable=_names(code.mutable),
        frozen=_names(study.frozen) or "nothing",
        required=_names(code.required_calls) or "none",
        max_lines=code.max_changed_lines,
        parameters=_names(settings_of(study.parameters)),
        instructions=_instructions(lab, room["instructions"]),
        files=[(quoted(path, LONGEST_LINE), fenced(text)) for path, text in files],
        left_out=_names(left_out),
        applied=fenced(applied) if (applied := _cut(_applied(lab), room["applied"])) else "",
        digest=digest_of(lab, max(2000, room["digest"])),
        ideas=_lines(lab, room["ideas"]),
        answer=quoted(answer.model_dump_json(), room["answer"]) if answer else "",
        reasons=[quoted(reason, LONGEST_LINE * 4) for reason in reasons],
    )


def _names(names: Iterable[str]) -> str:
    """Names of the study or the repository, as one quoted text."""
    told = ", ".join(names)
    return quoted(told, LONGEST_LINE * 4) if told else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _instructions(lab: Lab, limit: int) -> str:
    path = lab.study.code.instructions
    text = _cut((reading(lab.git, lab.base_commit)(path) or "").strip(), limit) if path else ""
    return fenced(text) if text else ""


def _files(lab: Lab, limit: int) -> tuple[list[tuple[str, str]], list[str]]:
    """The mutable files whole, the smallest first, and the names of those for which there is no room."""
    read = reading(lab.git, lab.base_commit)
    texts: dict[str, str] = {}
    for path in mutable_files(lab.study, lab.git, lab.base_commit):
        try:
            texts[path] = read(path) or ""
        except PatchError:
            continue
    shown: list[tuple[str, str]] = []
    left_out: list[str] = []
    for path in sorted(texts, key=lambda one: (len(texts[one]), one)):
        limit -= len(texts[path].encode())
        # One file is shown in any case: without any there is nothing to propose.
        if limit >= 0 or not shown:
            shown.append((path, texts[path].rstrip("\n")))
        else:
            left_out.append(path)
    return sorted(shown), left_out


def winning_ideas(lab: Lab) -> list[Idea]:
    """The ideas in the best configuration so far: the kept one with the largest effect, else the most promising."""
    verdicts = lab.ledger.verdicts()
    good = [v for v in verdicts.values() if v.effect and (v.kind is VerdictKind.KEEP or v.label == "promising")]
    if not good:
        return []
    best = max(good, key=lambda v: (v.kind is VerdictKind.KEEP, v.effect.delta if v.effect else 0.0))
    return ideas_in(lab.ledger.experiment(best.number), accepted(lab.ledger))


def _applied(lab: Lab) -> str:
    read, winners = reading(lab.git, lab.base_commit), winning_ideas(lab)
    try:
        after = apply_ideas(read, winners)
    except PatchError:
        return ""
    return diff_text({path: read(path) for path in after}, after).rstrip()


def _lines(lab: Lab, limit: int) -> list[str]:
    """One line an idea, the latest first, as many as there is room for."""
    lines: list[str] = []
    experiments = lab.ledger.experiments()
    for idea in reversed(lab.ledger.ideas(states=(IdeaState.ACCEPTED, IdeaState.REFUSED))):
        text = f"{idea.name or 'unnamed'}: {idea.title}. {outcome_of(lab, idea, experiments)}"
        line = quoted(" ".join(text.split()), LONGEST_LINE)
        limit -= len(line.encode())
        if limit < 0:
            break
        lines.append(line)
    return lines


def outcome_of(lab: Lab, idea: Idea, experiments: Sequence[Experiment]) -> str:
    """What became of an idea, in a few words."""
    if idea.state is IdeaState.REFUSED:
        return f"Refused ({idea.cause}): {idea.reason}"
    changed = {idea_parameter(idea.name): True, **{idea_parameter(name): True for name in idea.requires}}
    tried = [one for one in experiments if one.parameters.get(idea_parameter(idea.name)) is True]
    alone = next((one for one in tried if one.changed == changed), None)
    if verdict := lab.ledger.verdict(alone.number) if alone else None:
        return f"Tried alone: {verdict.label}, {verdict.reason}"
    return "Tried together with other changes" if tried else "Accepted, not tried yet"
