"""A night in which a model proposes changes to the demo's code: good, bad, broken, repeated and cheating ones.

    python -m bench.model_night [--dir DIR] [--output bench/results]

The model is a stub of our own (`bench.scripted_model`) behind real HTTP; training, git and everything else are real.
It writes `model_night.md`: what was planted, and what became of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.planted import PLANTED, Planted, Proposer, Reviewer
from bench.scripted_model import ScriptedModel
from nightlab.agents.code_space import study_of
from nightlab.agents.opinions import questioned_ideas
from nightlab.configs.code import idea_parameter
from nightlab.configs.loading import load_study
from nightlab.demo import make_demo
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import CallState, Idea, IdeaState
from nightlab.night import run_night
from nightlab.report.load import load_report
from nightlab.report.model import StudyReport
from nightlab.worktrees.git import Git

__all__ = ["as_expected", "became", "changed_study", "main", "make_repository"]

STEPS = 800
TOKENS = 400_000
WIDTH = 200


def changed_study(steps: int, changes: Mapping[str, Any], study: dict[str, Any]) -> dict[str, Any]:
    """The demo's study made short, with `changes` of its sections."""
    study["parameters"]["steps"] = steps
    study["space"] = {name: study["space"][name] for name in ("learning_rate", "lr_schedule")}
    study["space"]["learning_rate"]["levels"] = [0.003]
    study["frozen"] = ["prepare.py"]
    # A shorter training is a noisier one.
    study["objective"]["min_effect"] = 0.05
    study["search"] |= {"baseline_replicates": 3, "confirm_seeds": 3, "confirm_seeds_most": 4}
    return study | dict(changes)


def make_repository(folder: Path, steps: int, **changes: Any) -> Path:
    """The demo's repository with a shorter training and `changes` of its study; returns the study file."""
    file = make_demo(folder)
    parameters = folder / "params.json"
    parameters.write_text(json.dumps(json.loads(parameters.read_text()) | {"steps": steps}, indent=2) + "\n")
    study = changed_study(steps, changes, yaml.safe_load(file.read_text(encoding="utf-8")))
    file.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    identity = ("-c", "user.name=nightlab", "-c", "user.email=nightlab@localhost", "-c", "commit.gpgsign=false")
    Git(folder).call(*identity, "commit", "--quiet", "--all", "-m", "A shorter training")
    return file


def sections(proposer: str, reviewer: str) -> dict[str, Any]:
    """What the night's study says beside the demo's."""
    return {
        "budget": {"runs": 64, "llm_tokens": TOKENS},
        "brain": {
            "kind": "llm",
            "review": "promising",
            "endpoints": [{"model": "proposer", "base_url": proposer, "max_output_tokens": 1024}],
            "reviewers": [{"model": "reviewer", "base_url": reviewer, "max_output_tokens": 1024}],
        },
        "code": {
            "mutable": ["train.py"],
            "required_calls": ["bits_per_byte"],
            "ideas": 8,
            "max_changed_lines": 30,
            "smoke": {"steps": 20},
        },
    }


def became(idea: Idea, ledger: Ledger, report: StudyReport) -> tuple[str, str]:
    """Outcome and reason of one idea, as the night's own records have them."""
    if idea.state is not IdeaState.ACCEPTED:
        return f"refused: {idea.cause}", idea.reason
    row = next(row for row in report.ideas if row.name == idea.name)
    questioned = idea_parameter(idea.name) in questioned_ideas(ledger)
    outcome = row.verdict
    if questioned:
        outcome = "questioned"
    elif row.effect is not None and row.effect.low is not None and row.effect.low > 0 and row.in_winner:
        outcome = "kept"
    elif row.gain:
        outcome = "less code"
    mended = "mended; " if idea.mended else ""
    told = _accusation(ledger, idea) if questioned else row.gain
    effect = row.effect
    measured = "" if effect is None else f"{effect.delta:+.3f}"
    if effect is not None and effect.low is not None and effect.high is not None:
        measured += f" ({effect.low:+.3f} … {effect.high:+.3f})"
    return mended + outcome, "; ".join(part for part in (told, measured) if part)


def _accusation(ledger: Ledger, idea: Idea) -> str:
    """What the reviewer said of the idea, the first time."""
    items = [item for review in ledger.reviews() for item in review.accusations]
    return next((f"{item.check}: {item.reason}" for item in items), idea.title)


def as_expected(planted: Planted, outcome: str) -> bool:
    """Whether what was planted came out as it should."""
    if planted.expected == "not kept":
        return not outcome.endswith("kept") and not outcome.startswith("refused")
    return any(word in outcome for word in planted.expected.split(" or "))


def _rows(ledger: Ledger, report: StudyReport) -> tuple[list[str], int]:
    ideas, lines, right = list(ledger.ideas()), [], 0
    for place, idea in enumerate(ideas):
        planted = PLANTED[place] if place < len(PLANTED) else None
        outcome, reason = became(idea, ledger, report)
        fits = as_expected(planted, outcome) if planted else outcome == "refused: near-duplicate"
        right += fits
        kind = planted.kind if planted else "the first one once more"
        cells = (idea.title, kind, outcome, _cell(reason), "yes" if fits else "NO")
        lines.append(f"| {' | '.join(cells)} |")
    return lines, right


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def page(ledger: Ledger, report: StudyReport, seconds: float) -> str:
    """The results page."""
    lines, right = _rows(ledger, report)
    calls = ledger.calls()
    used = sum(call.input_tokens + call.output_tokens for call in calls)
    held = sum(call.state is CallState.SETTLED for call in calls)
    runs = ledger.runs()
    winner = report.winner
    best = f"experiment {winner.number:02d}: {winner.title}" if winner else "nothing"
    return f"""# A night of code ideas from a scripted model

`make model-night`, on {platform.system()}, {os.cpu_count()} cores. The model is a stub: a Python function
behind real HTTP that proposes what was planted, and a second one that reviews. Training ({STEPS} steps of the demo's
byte-level model), git, checks, statistics and report are real.

- {len(lines)} ideas were asked for, {right} came out as they were planted.
- {len(runs)} runs in {len(ledger.experiments())} experiments, {seconds:.0f} s; kept: {best}.
- {len(calls)} calls ({held} settled), {used:,} of {TOKENS:,} tokens.

| idea | planted as | outcome | reason or effect (bits/byte, above 0 is better) | as planted |
|---|---|---|---|---|
{chr(10).join(lines)}

The scripted tests `tests/graph/test_code_night.py` play a quick form of it. "kept" also is what rides along in the
winner. The reviewer is a stub that knows one leak: it shows what follows from an accusation, not that a model finds it.
"""


def run(folder: Path, output: Path) -> int:
    """Play the night in `folder`, write the page to `output`; the number of ideas that did not come out as planted."""
    with ScriptedModel(Proposer(), model="proposer") as proposer, ScriptedModel(Reviewer(), model="reviewer") as other:
        file = make_repository(folder, STEPS, **sections(proposer.base_url, other.base_url))
        begun = time.monotonic()
        run_night(file, say=print)
    place = locate(load_study(file))
    with Ledger.open(place.paths.ledger) as ledger:
        report = load_report(ledger, study_of(ledger), place.paths)
        text = page(ledger, report, time.monotonic() - begun)
        _, right = _rows(ledger, report)
        missed = len(ledger.ideas()) - right
    output.mkdir(parents=True, exist_ok=True)
    (output / "model_night.md").write_text(text, encoding="utf-8")
    print(text)
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, help="the repository to make; by default a folder that is thrown away")
    parser.add_argument("--output", type=Path, default=Path("bench/results"))
    given = parser.parse_args(arguments)
    if given.dir:
        return run(given.dir, given.output)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder) / "night", given.output)


if __name__ == "__main__":
    sys.exit(main())
