"""Every kind of event against what other records tell of it, where the story is lost."""

from __future__ import annotations

import ast
from collections import Counter
from datetime import timedelta
from pathlib import Path

import nightlab
from nightlab.agents.context import Lab
from nightlab.agents.idea_words import told_idea
from nightlab.agents.llm import FALLBACK
from nightlab.agents.model_calls import settle_calls_of_the_dead
from nightlab.agents.reviewer import unanswered
from nightlab.agents.run_findings import keep_findings
from nightlab.agents.stress import cancel_stresses, plan_checks
from nightlab.configs.approvals import Approval
from nightlab.configs.paths import JobPaths
from nightlab.graph.answering import record_answer
from nightlab.graph.questions import raise_question, settle_overdue
from nightlab.graph.retelling import NOT_RETOLD, RETOLD, missing_events
from nightlab.knowledge.records import Event, IdeaState, Phase, Review, utc_now
from nightlab.knowledge.restoring import Remains
from nightlab.tools.metrics.findings import NamedFinding
from tests.agents.lab import executed, new_lab, planned

ROOMS = ("agents", "cli", "configs", "graph", "knowledge", "report", "search", "tools", "worktrees")
CHECK = {"name": "serving", "command": "true", "metrics": {"p99_ms": {}}, "limits": {"p99_ms": {"max": 9}}}


def kinds_in(path: Path) -> set[str]:
    """What the calls of `add_event` in a module name as the event's kind."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_event":
            kind = node.args[0]
            constants = [one.value for one in ast.walk(kind) if isinstance(one, ast.Constant)]
            found |= {FALLBACK} if isinstance(kind, ast.Name) else {one for one in constants if isinstance(one, str)}
    return found


def test_of_every_kind_it_is_said_whether_it_can_be_told_again() -> None:
    package = Path(nightlab.__file__).parent
    files = [*package.glob("*.py"), *(file for room in ROOMS for file in (package / room).rglob("*.py"))]
    told = {kind for file in files for kind in kinds_in(file)} | {"recovered"}
    assert told == RETOLD | NOT_RETOLD.keys() and not RETOLD & NOT_RETOLD.keys()


def story(lab: Lab) -> Counter[tuple[str, int | None, str]]:
    return Counter((event.kind, event.number, event.text) for event in lab.ledger.events() if event.kind in RETOLD)


def retold(lab: Lab) -> list[Event]:
    """The story from the other records alone."""
    ledger = lab.ledger
    remains = Remains(
        questions=ledger.questions(),
        calls=ledger.calls(),
        ideas=ledger.ideas(),
        reviews=ledger.reviews(),
        stresses=ledger.stresses(),
    )
    experiments = {one.number: one for one in ledger.experiments()}
    entries = [(run, ledger.job(run.key), ledger.observation(run.key)) for run in ledger.runs()]
    return missing_events([], ledger.study_row(), experiments, entries, ledger.verdicts().values(), remains)


def test_what_happened_beside_the_runs_is_told_again_word_for_word(tmp_path: Path) -> None:
    finding = NamedFinding("high-loss", "the loss is excellent, the score is poor", "switch thinking off", ())
    with new_lab(tmp_path, stress=[CHECK]) as lab:
        (baseline,) = executed(lab, planned(lab, {}))
        (run,) = executed(lab, planned(lab, {"lr": 0.01}))
        with lab.ledger.transaction():
            for one in (baseline, run):
                lab.ledger.add_event("planned", one.reason, one.number)
            keep_findings(JobPaths(lab.paths.job(1, 0, 1).directory), [finding], lab.redactor)
            lab.ledger.add_event("finding", f"seed 0: {finding}", 1)
        plan_checks(lab, 1, lab.study.stress)
        cancel_stresses(lab, "the wall-clock budget ran out")
        review = lab.ledger.begin_review(Review(key="review/1", number=1, basis=Phase.CONFIRM, asked={}))
        unanswered(lab, review, "nobody is there")
        idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
        refused = lab.ledger.update_idea(
            idea.number, state=IdeaState.REFUSED, name="x", cause="size", reason="too\nlong", asked=None
        )
        lab.ledger.add_event("idea", told_idea(refused))
        asked = {"purpose": "idea", "model": "m", "prompt_hash": "ab"}
        lab.ledger.reserve_call("tiny/idea/1", **asked, input_tokens=9, output_tokens=1, cost_usd=0.0)
        settle_calls_of_the_dead(lab)
        ways = {
            "ask": Approval(policy="ask"),
            "auto": Approval(policy="auto"),
            "late": Approval(policy="ask-with-default"),
        }
        for name, approval in ways.items():
            raise_question(lab, approval, "spend", name, f"{name}?", options=["no", "yes"], default="no")
        record_answer(lab.ledger, lab.git, "ask", "yes", by="ada")
        lab.now = lambda: utc_now() + timedelta(days=30)
        settle_overdue(lab)
        told, again = story(lab), retold(lab)
    assert Counter((event.kind, event.number, event.text) for event in again) == told
    kinds = {"finding", "stress", "review", "idea", "call", "question", "answered", "measured", "submitted"}
    assert kinds <= {kind for kind, _, _ in told}
