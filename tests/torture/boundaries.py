"""Every boundary between two effects of a lab: where it may be killed, and what must be found there.

One table, in the order an experiment meets them. A name stands for a function or method of the product (or of a library
that writes for it); `bootstrap` wraps it from outside, so a renamed function is a failing test, not a missing one.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BOUNDARIES", "PRUNING", "STRESS", "Boundary"]


class Boundary(NamedTuple):
    where: str
    """`module:function` or `module:Class.method`."""
    is_block: bool = False
    """A context manager, whose effect is made when the block ends: a transaction."""


BOUNDARIES: dict[str, Boundary] = {
    # the start: one lab a study, preflight, the study's first row
    "lab lock": Boundary("nightlab.graph.process:hold_study", is_block=True),
    "dry run": Boundary("nightlab.agents.preflight:dry_run"),
    "study row": Boundary("nightlab.knowledge.ledger:Ledger.save_study"),
    "study change": Boundary("nightlab.knowledge.ledger:Ledger.update_study"),
    "heal": Boundary("nightlab.worktrees.trees:Worktrees.heal"),
    # everything that is written anywhere
    "ledger write": Boundary("nightlab.knowledge.database:Database._write", is_block=True),
    "ledger transaction": Boundary("nightlab.knowledge.database:Database.transaction", is_block=True),
    "event": Boundary("nightlab.knowledge.ledger:Ledger.add_event"),
    "git command": Boundary("nightlab.worktrees.git:Git.call"),
    "sync to disk": Boundary("os:fsync"),
    "file replaced": Boundary("pathlib:Path.replace"),
    "checkpoint": Boundary("langgraph.checkpoint.sqlite:SqliteSaver.put"),
    "checkpoint writes": Boundary("langgraph.checkpoint.sqlite:SqliteSaver.put_writes"),
    "checkpoint pruning": Boundary("nightlab.graph.checkpoints:prune"),
    "ledger copy": Boundary("nightlab.knowledge.backup:back_up"),
    # an experiment is planned and prepared
    "plan": Boundary("nightlab.knowledge.ledger:Ledger.plan"),
    "reservation": Boundary("nightlab.knowledge.spend_book:SpendBook.reserve"),
    "branch and worktree": Boundary("nightlab.worktrees.trees:Worktrees.ensure_branch_tree"),
    "replica worktree": Boundary("nightlab.worktrees.trees:Worktrees.ensure_replica_tree"),
    "worktree add": Boundary("nightlab.worktrees.trees:Worktrees._add"),
    "commit": Boundary("nightlab.worktrees.commits:commit_files"),
    "experiment state": Boundary("nightlab.knowledge.ledger:Ledger.update_experiment"),
    # its job
    "job intent": Boundary("nightlab.knowledge.ledger:Ledger.intend_job"),
    "job record": Boundary("nightlab.tools.backends.local_runner:write_json"),
    "submit": Boundary("nightlab.tools.backends.local:LocalBackend.submit"),
    "submission recorded": Boundary("nightlab.knowledge.ledger:Ledger.adopt"),
    "observe": Boundary("nightlab.tools.backends.local:LocalBackend.poll"),
    "end recorded": Boundary("nightlab.agents.evaluation:record_end"),
    "settlement": Boundary("nightlab.knowledge.spend_book:SpendBook.settle"),
    "collect": Boundary("nightlab.agents.evaluation:measure"),
    "observation": Boundary("nightlab.knowledge.ledger:Ledger.record_observation"),
    "audit": Boundary("nightlab.agents.review:audit_run"),
    # what is believed of it
    "design": Boundary("nightlab.agents.analysis:write_analysis_report"),
    "verdict": Boundary("nightlab.knowledge.ledger:Ledger.record_verdict"),
    "lesson": Boundary("nightlab.knowledge.lessons:append"),
    "result card": Boundary("nightlab.agents.review:write_card"),
    "worktree remove": Boundary("nightlab.worktrees.trees:Worktrees.remove_experiment"),
    "folder remove": Boundary("nightlab.worktrees.registry:remove_folder"),
    "conclusion": Boundary("nightlab.agents.review:conclude_experiment"),
    # the morning
    "last clearing": Boundary("nightlab.worktrees.trees:Worktrees.remove_all"),
    "document": Boundary("nightlab.configs.files:write_atomically"),
    "report files": Boundary("nightlab.report.write:write_files"),
}

PRUNING: dict[str, Boundary] = {
    "prune": Boundary("nightlab.agents.pruning:prune_job"),
    "cancel": Boundary("nightlab.tools.backends.local:LocalBackend.cancel"),
    "pruned recorded": Boundary("nightlab.agents.pruning:record_pruned"),
    "curve kept": Boundary("nightlab.agents.pruning:keep_curve"),
}
"""Passed only in nights in which a run falls behind (tests/graph/test_pruning.py)."""

STRESS: dict[str, Boundary] = {
    "stress planned": Boundary("nightlab.agents.stress:plan_checks"),
    "stress submitted": Boundary("nightlab.agents.stress:_submit"),
    "stress recorded": Boundary("nightlab.agents.stress:_record_submission"),
    "stress collected": Boundary("nightlab.agents.stress:_collect"),
}
"""Passed only in nights whose winner goes through stress checks (tests/graph/test_stress.py)."""

HAPPENINGS: dict[str, Boundary] = {
    # a job that stands still
    "watchdog's end": Boundary("nightlab.agents.watchdog:_end"),
    "cancel": Boundary("nightlab.tools.backends.local:LocalBackend.cancel"),
    # equal failures, a soft limit: questions
    "breaker": Boundary("nightlab.graph.decisions:failure_question"),
    "question": Boundary("nightlab.graph.questions:raise_question"),
    "question recorded": Boundary("nightlab.knowledge.ledger:Ledger.ask"),
    "safe answers": Boundary("nightlab.knowledge.ledger:Ledger.settle_questions"),
    "interrupt": Boundary("nightlab.graph.nodes:ask"),
    "answer": Boundary("nightlab.knowledge.ledger:Ledger.answer"),
    # what people are told
    "notice": Boundary("nightlab.tools.notify.notifier:Notifier.send"),
    "notice delivered": Boundary("nightlab.tools.notify.channel:Channel._delivered"),
    "notice recorded": Boundary("nightlab.knowledge.ledger:Ledger.mark_told"),
}
"""Boundaries that only an eventful night passes (`nights.EVENTFUL`)."""
