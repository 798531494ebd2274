"""The gate before a call of a language model: reserved, settled, refused where it does not fit, safe against kills."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.agents.model_calls import give_up_call, release_call, reserve_call, settle_call, settle_calls_of_the_dead
from nightlab.errors import BudgetError, LedgerError
from nightlab.graph.budget import runs_left
from nightlab.knowledge.records import CallState, ModelCall, StudyStatus, utc_now
from nightlab.night import run_night
from nightlab.report.load import load_report
from nightlab.search.spending import BudgetLine
from nightlab.status import snapshot_of
from tests.agents.lab import new_lab, opened, planned
from tests.graph.test_night import ledger_of, quiet
from tests.task import make_repository

PRICES: dict[str, Any] = {
    "models": {"big": {"input_million_usd": 10, "cached_million_usd": 1, "output_million_usd": 50}, "own": {}},
}

PROMPT_HASH = hashlib.sha256(b"Why?").hexdigest()


def reserve(lab: Lab, model: str = "big", prompt_tokens: int = 10_000, answer_tokens: int = 2_000) -> ModelCall:
    return reserve_call(
        lab,
        "night/analysis/1",
        purpose="analysis",
        model=model,
        prompt_hash=PROMPT_HASH,
        prompt_tokens=prompt_tokens,
        max_output_tokens=answer_tokens,
    )


def lines(lab: Lab) -> dict[str, BudgetLine]:
    return {line.resource: line for line in snapshot_of(lab.ledger, lab.study, utc_now()).budget}


def test_a_call_is_reserved_at_its_worst_case_and_settled_by_what_it_took(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 100_000, "cost_usd": 5.0}, prices=PRICES) as lab:
        call = reserve(lab)
        assert call.reserved_cost_usd == pytest.approx(0.2)
        assert call.prompt_hash == PROMPT_HASH
        tokens, money = lines(lab)["llm_tokens"], lines(lab)["cost_usd"]
        assert (tokens.used, tokens.reserved, tokens.limit) == (0, 12_000, 100_000)
        assert (money.used, money.limit) == (0, 5.0) and money.reserved == pytest.approx(0.2)
        call = settle_call(lab, call, input_tokens=9_000, cached_tokens=8_000, output_tokens=500, seconds=4.0)
        # 1,000 fresh at 10, 8,000 from the cache at 1, 500 out at 50 dollars a million.
        assert call.cost_usd == pytest.approx(0.01 + 0.008 + 0.025)
        tokens, money = lines(lab)["llm_tokens"], lines(lab)["cost_usd"]
        assert (tokens.used, tokens.reserved) == (9_500, 0) and tokens.share == pytest.approx(0.095)
        assert money.used == pytest.approx(0.043) and money.reserved == 0


def test_what_does_not_fit_is_not_called_and_leaves_no_trace(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 30_000}) as lab:
        reserve(lab)
        settle_call(lab, reserve(lab), input_tokens=10_000, output_tokens=2_000, seconds=1.0)
        with pytest.raises(BudgetError, match=r"may take 12,000 tokens, 6,000 of 30,000 are left \(raise budget\.llm"):
            reserve(lab)
        assert len(lab.ledger.calls()) == 2
        assert reserve(lab, prompt_tokens=4_000).reserved_output_tokens == 2_000, "to the last token"
        with pytest.raises(BudgetError, match=", 0 of 30,000 are left"):
            reserve(lab, prompt_tokens=1, answer_tokens=0)


def test_money_is_shared_with_the_runs_in_flight_and_a_model_without_a_price_is_not_called(tmp_path: Path) -> None:
    prices = PRICES | {"run_usd": 0.6}
    with new_lab(tmp_path, budget={"runs": 9, "cost_usd": 1.5}, prices=prices) as lab:
        with pytest.raises(BudgetError, match=r"a call of unheard-of has no price.*prices\.models"):
            reserve(lab, "unheard-of")
        assert reserve(lab, "own").reserved_cost_usd == 0
        planned(lab, {}, 0)
        planned(lab, {}, 1)
        reserve(lab)
        with pytest.raises(BudgetError, match=r"may cost \$0\.2, \$0\.1 of \$1\.5 are left"):
            reserve(lab)
    with new_lab(tmp_path / "free", budget={"runs": 9}) as lab:
        assert reserve(lab, "unheard-of").reserved_cost_usd == 0, "where money is not limited, no price is needed"


def test_what_calls_cost_is_not_there_for_runs(tmp_path: Path) -> None:
    prices = PRICES | {"run_usd": 1.0}
    with new_lab(tmp_path, budget={"cost_usd": 3.0}, prices=prices, backend={"slots": 2, "timeout": "1h"}) as lab:
        assert runs_left(lab) == 2, "as many as there are slots"
        call = reserve(lab, prompt_tokens=100_000, answer_tokens=10_000)
        assert runs_left(lab) == 1
        release_call(lab, call, "no connection")
        assert runs_left(lab) == 2


def test_of_many_that_ask_at_once_only_those_that_fit_are_called(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 60_000}) as lab:

        def ask(_: int) -> bool:
            try:
                reserve(lab)
            except BudgetError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(16))) == 5
        assert lab.ledger.call_totals().reserved_tokens == 60_000


def test_a_call_without_an_answer_is_spent_at_its_most(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 30_000}) as lab:
        lost = give_up_call(lab, reserve(lab), "no answer within 60 s")
        assert (lost.state, lost.tokens, lost.outcome) == (CallState.LOST, 12_000, "no answer within 60 s")
        assert lines(lab)["llm_tokens"].used == 12_000


DYING = """
import os, signal, sys
from pathlib import Path
from tests.agents.lab import opened
from tests.agents.test_model_calls import reserve

with opened(Path(sys.argv[1])) as lab:
    reserve(lab)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_lab_had_reserved_is_spent_when_the_next_one_starts(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", budget={"runs": 10, "llm_tokens": 30_000})
    with opened(file):
        pass
    died = subprocess.run([sys.executable, "-c", DYING, str(file)], check=False, cwd=Path(__file__).parents[2])
    assert died.returncode == -signal.SIGKILL
    with ledger_of(file) as ledger:
        assert [call.state for call in ledger.calls()] == [CallState.RESERVED]
    assert run_night(file, say=quiet).status is StudyStatus.FINISHED
    with opened(file) as lab:
        (call,) = lab.ledger.calls()
        assert (call.state, call.tokens) == (CallState.LOST, 12_000)
        assert [event.text for event in lab.ledger.events() if event.kind == "call"] == [
            "analysis by big: the lab died while it waited for the answer; counted at its most, 12,000 tokens"
        ]
        line = lines(lab)["llm_tokens"]
        assert (line.used, line.reserved, line.forecast) == (12_000, 0, 12_000)
        spend = {line.name: line for line in load_report(lab.ledger, lab.study, lab.paths).spend}
        assert (spend["LLM tokens"].used, spend["LLM tokens"].allowed) == ("12,000", "30,000")
        assert "| LLM tokens | 12,000 " in lab.paths.final_report_md.read_text()


def test_cut_off_in_the_middle_a_lost_call_is_told_by_the_next_lab(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 100_000}) as lab:
        reserve(lab)
        # As a kill between the two writes.
        with closing(sqlite3.connect(lab.paths.ledger)) as raw:
            raw.execute("CREATE TRIGGER cut BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'cut off'); END")
            with pytest.raises(LedgerError, match="cut off"):
                settle_calls_of_the_dead(lab)
            raw.execute("DROP TRIGGER cut")
        assert [call.outcome for call in settle_calls_of_the_dead(lab)] == [
            "the lab died while it waited for the answer"
        ]
        assert sum(event.kind == "call" for event in lab.ledger.events()) == 1
