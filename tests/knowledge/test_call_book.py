"""The ledger's pages about calls of language models: nothing is forgotten, nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.study import Study
from nightlab.errors import LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import CallState, ModelCall


def reserve(ledger: Ledger, **changes: Any) -> ModelCall:
    call: dict[str, Any] = {
        "purpose": "analysis",
        "model": "big",
        "prompt_hash": "ab" * 32,
        "input_tokens": 1000,
        "output_tokens": 200,
        "cost_usd": 0.5,
    }
    return ledger.reserve_call("night/analysis/1", **(call | changes))


def settle(ledger: Ledger, call: ModelCall, **changes: Any) -> ModelCall:
    taken: dict[str, Any] = {
        "input_tokens": 900,
        "cached_tokens": 300,
        "output_tokens": 50,
        "cost_usd": 0.25,
        "seconds": 3.5,
    }
    return ledger.settle_call(call.id, **(taken | changes))


def test_a_reservation_counts_until_what_was_used_takes_its_place(ledger: Ledger) -> None:
    call = reserve(ledger)
    totals = ledger.call_totals()
    assert (totals.tokens, totals.reserved_tokens, totals.cost_usd, totals.reserved_cost_usd) == (0, 1200, 0, 0.5)
    settled = settle(ledger, call)
    assert ledger.calls() == [settled] and settled.tokens == 950 and settled.seconds == 3.5
    assert (settled.purpose, settled.model, settled.cached_tokens) == ("analysis", "big", 300)
    totals = ledger.call_totals()
    assert (totals.tokens, totals.reserved_tokens, totals.cost_usd, totals.reserved_cost_usd) == (950, 0, 0.25, 0)


def test_what_is_settled_is_closed(ledger: Ledger) -> None:
    call = settle(ledger, reserve(ledger))
    assert settle(ledger, call, output_tokens=9999) == call
    assert ledger.release_call(call.id, "never sent") == ledger.lose_call(call.id, "timeout") == call


def test_a_call_never_sent_costs_nothing(ledger: Ledger) -> None:
    call = ledger.release_call(reserve(ledger).id, "no connection")
    assert (call.state, call.outcome, call.tokens) == (CallState.RELEASED, "no connection", 0)
    assert ledger.call_totals().tokens == ledger.call_totals().reserved_tokens == 0


def test_what_a_dead_lab_left_open_is_spent_at_its_worst_case_until_somebody_knows_better(
    path: Path, ledger: Ledger
) -> None:
    open_call, closed = reserve(ledger), settle(ledger, reserve(ledger))
    with Ledger.open(path) as next_lab:
        (lost,) = next_lab.lose_open_calls("its lab died")
        assert next_lab.lose_open_calls("its lab died") == []
    assert (lost.id, lost.state, lost.tokens, lost.cost_usd) == (open_call.id, CallState.LOST, 1200, 0.5)
    assert ledger.call_totals().tokens == 1200 + closed.tokens
    # The answer came after all, e.g. in a process that was only thought dead.
    assert settle(ledger, open_call).state is CallState.SETTLED
    assert ledger.call_totals().tokens == 950 + closed.tokens and ledger.call_totals().cost_usd == 0.5


def test_the_same_call_made_again_is_a_record_of_its_own(ledger: Ledger) -> None:
    first, second = reserve(ledger), reserve(ledger)
    assert first.key == second.key and first.id != second.id
    assert ledger.calls(states=[CallState.RESERVED]) == [first, second]


def test_an_unknown_call_and_impossible_amounts_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="holds no model call 7"):
        ledger.release_call(7, "no such call")
    call = reserve(ledger)
    with pytest.raises(LedgerError, match="input_tokens"):
        settle(ledger, call, input_tokens=-1)
    assert settle(ledger, call, cached_tokens=5000).cached_tokens == 900, "no more cached than there were"


def test_secrets_stay_out_of_what_went_wrong(tmp_path: Path, study: Study) -> None:
    hide: Callable[[Any], Any] = lambda data: data.replace("hunter2", "…") if isinstance(data, str) else data  # noqa: E731
    with Ledger.open(tmp_path / "other.sqlite", redact=hide) as ledger:
        ledger.save_study(study, base_commit="c")
        assert settle(ledger, reserve(ledger), outcome="401 for hunter2").outcome == "401 for …"


def test_what_worked_and_what_was_answered_is_found_again(ledger: Ledger) -> None:
    where = {"endpoint": "localhost:8000/v1", "prompt": "analysis@3"}
    refused = reserve(ledger, method="json_schema", **where)
    ledger.release_call(refused.id, "400 no such type")
    poor = settle(ledger, reserve(ledger, method="json_mode", **where), outcome="the answer holds no JSON object")
    assert ledger.method_that_worked("localhost:8000/v1", "big") is None
    assert ledger.answered_call("night/analysis/1", poor.prompt_hash) is None
    good = settle(ledger, reserve(ledger, method="function_calling", **where), answer='{"a": 1}')
    assert ledger.method_that_worked("localhost:8000/v1", "big") == "function_calling"
    assert ledger.method_that_worked("localhost:8000/v1", "other") is None
    assert ledger.answered_call("night/analysis/1", good.prompt_hash) == good
    assert ledger.answered_call("night/analysis/2", good.prompt_hash) is None
    assert ledger.answered_call("night/analysis/1", "cd" * 32) is None
    reserve(ledger)
    ledger.lose_call(reserve(ledger, purpose="explain").id, "timed out")
    explain, analysis = sorted(ledger.calls_by_purpose(), key=lambda one: one.calls)
    assert (analysis.calls, analysis.answers, analysis.refused, analysis.unanswered) == (3, 1, 1, 1)
    assert (analysis.tokens, analysis.cost_usd, analysis.last_answer_at) == (1900, 0.5, good.ended_at)
    assert (explain.purpose, explain.calls, explain.unanswered, explain.last_answer_at) == ("explain", 1, 1, None)
