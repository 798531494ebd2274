"""The code ideas in the report: what each changes, what it did, why others were not taken, and what became simpler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nightlab.configs.code import idea_name, idea_parameter, is_idea
from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Effect, Idea, IdeaState
from nightlab.report.model import ExperimentRow, FactorEffectLike, IdeaRow
from nightlab.report.numbers import count

__all__ = ["code_lines", "idea_rows", "size_of", "told_of"]


def code_lines(ideas: Iterable[Idea], parameters: Mapping[str, Scalar]) -> int:
    """By how many lines a configuration's ideas make the code grow."""
    return sum(idea.lines for idea in ideas if parameters.get(idea_parameter(idea.name)) is True)


def size_of(idea: Idea) -> str:
    return f"+{idea.lines_added} −{idea.lines_removed}"


def idea_rows(
    ideas: Sequence[Idea],
    effects: Iterable[FactorEffectLike],
    experiments: Sequence[ExperimentRow],
    winner: ExperimentRow | None,
    min_effect: float,
) -> tuple[IdeaRow, ...]:
    """One row an idea, in the order they were asked for."""
    overall = {idea_name(e.factor): e for e in effects if e.level is None and is_idea(e.factor)}
    return tuple(_row(idea, overall.get(idea.name), experiments, winner, min_effect) for idea in ideas)


def _row(
    idea: Idea,
    found: FactorEffectLike | None,
    experiments: Sequence[ExperimentRow],
    winner: ExperimentRow | None,
    min_effect: float,
) -> IdeaRow:
    if idea.state is not IdeaState.ACCEPTED:
        verdict = idea.cause if idea.state is IdeaState.REFUSED else "being thought about"
        return IdeaRow(idea.name, idea.title, idea.state, "", verdict, None, idea.reason, (), False, "")
    parameter = idea_parameter(idea.name)
    label = found.label if found else "not tried"
    return IdeaRow(
        name=idea.name,
        title=idea.title,
        state=idea.state,
        size=size_of(idea),
        verdict=label,
        effect=found.effect if found else None,
        reason=f"expected: {idea.expected}" if idea.expected else "",
        experiments=tuple(row.number for row in experiments if row.parameters.get(parameter) is True),
        in_winner=winner is not None and winner.parameters.get(parameter) is True,
        gain=_gain(idea, found.effect if found else None, min_effect),
    )


def _gain(idea: Idea, effect: Effect | None, min_effect: float) -> str:
    """Less code at the same result, or a better one, by the whole interval."""
    if idea.lines >= 0 or effect is None or effect.low is None or effect.high is None or effect.low <= -min_effect:
        return ""
    if effect.low > 0:
        result = "a better result"
    elif effect.high < min_effect:
        result = "the same result"
    else:
        result = "no worse a result"
    return f"{result} with {count(-idea.lines, 'line')} less"


def told_of(rows: Iterable[IdeaRow]) -> tuple[str, ...]:
    """What the report says of all ideas, a sentence each."""
    found = list(rows)
    taken = [row for row in found if row.state is IdeaState.ACCEPTED]
    refused = sum(row.state is IdeaState.REFUSED for row in found)
    if not found:
        return ()
    lines = [f"{count(len(found), 'idea')} came from a language model: {len(taken)} accepted, {refused} refused."]
    lines += [f"Idea {row.name} is a win in itself: {row.gain}." for row in taken if row.gain]
    return tuple(lines)
