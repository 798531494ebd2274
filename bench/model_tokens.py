"""How many tokens a call to a language model takes after 0, 10, 50, 100 and 200 experiments.

    python -m bench.model_tokens [--output bench/results]

Real ledgers, real prompts, real calls to a stub that counts; no training. Writes `model_tokens.md`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ledgers import long_night
from bench.scripted_model import ScriptedModel
from nightlab.agents.analysis import gather_facts
from nightlab.agents.claims import shown_of
from nightlab.agents.context import Lab
from nightlab.agents.diagnosis import diagnose
from nightlab.agents.idea_prompt import IdeaAnswer, idea_prompt
from nightlab.agents.llm_brain import analysis_prompt
from nightlab.agents.prompts import Prompt, render
from nightlab.knowledge.records import IdeaState, Verdict
from tests.agents.lab import opened

__all__ = ["Sizes", "measured"]

EXPERIMENTS = (0, 10, 50, 100, 200)
IDEAS_EVERY = 4
"""One idea for so many experiments: more than any study accepts."""
ANSWER = {"title": "t", "slug": "s", "rationale": "r", "expected_effect": "e", "edits": [], "diff": ""}


@dataclass(frozen=True)
class Sizes:
    """Tokens of one call of each kind, as the stub counts them: four characters each, the schema not among them."""

    experiments: int
    ideas: int
    analysis: int
    idea: int
    review: int


def measured(folder: Path, experiments: int) -> Sizes:
    """The calls of a study after so many experiments, made in `folder`."""
    with ScriptedModel(lambda _: ANSWER) as model:
        brain = {"kind": "llm", "endpoints": [{"model": "scripted", "base_url": model.base_url}]}
        file = long_night(folder, experiments, brain=brain, code={"mutable": ["train.py"], "ideas": 64})
        with opened(file) as lab:
            ideas = _with_ideas(lab, experiments // IDEAS_EVERY)
            facts = gather_facts(lab)
            prompts = [analysis_prompt(lab, facts, diagnose(facts)), idea_prompt(lab)]
            if experiments:
                verdict: Verdict = lab.ledger.verdicts()[experiments]
                prompts.append(render("review", shown=shown_of(lab, lab.ledger.experiment(experiments), verdict)))
            tokens = [_tokens(lab, prompt) for prompt in prompts]
    return Sizes(experiments, ideas, tokens[0], tokens[1], tokens[2] if experiments else 0)


def _with_ideas(lab: Lab, count: int) -> int:
    for number in range(1, count + 1):
        idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
        told: dict[str, Any] = {
            "title": f"Warm the rate up over {number} steps",
            "name": f"warm-up-{number}",
            "asked": None,
        }
        state = {"state": IdeaState.REFUSED, "cause": "metric", "reason": "what tells the metric must stay as it is"}
        lab.ledger.update_idea(idea.number, **told, **state)
    return count


def _tokens(lab: Lab, prompt: Prompt) -> int:
    assert lab.models is not None
    key = f"{prompt.name}/bench"
    lab.models.proposer.structured(lab, IdeaAnswer, prompt, purpose=prompt.name, key=key)
    return next(call.input_tokens for call in lab.ledger.calls() if call.key == key)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bench/results"))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(Path(folder) / str(number), number) for number in EXPERIMENTS]
    lines = [
        f"| {row.experiments} | {row.ideas} | {row.analysis:,} | {row.idea:,} | {row.review or '–'} |" for row in rows
    ]
    text = f"""# Tokens of a call as the night grows

`make model-tokens`. Ledgers with so many ended experiments and ideas; the prompts as they are sent, counted by
a stub of a server as four characters a token. All are bounded by `brain.max_prompt_tokens` (12,000 here).

| experiments | ideas told of | analysis (once a night) | one idea | one review |
|---|---|---|---|---|
{chr(10).join(lines)}

The analysis is asked for once, an idea at most three times `code.ideas`, a review once a claim: none of them by the
number of experiments.
"""
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "model_tokens.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
