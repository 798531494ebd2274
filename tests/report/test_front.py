"""The Pareto front in the report: by believed runs, without broken guardrails, in words and drawn."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Phase, RunState
from nightlab.report.html import render_html
from nightlab.report.markdown import render_markdown
from tests.report.night import Night, make_study

TITLE = "What no other experiment beats in everything"
WIDTHS = {0: (2.9, 31.0), 1: (2.8, 40.0), 2: (2.7, 60.0), 3: (2.95, 35.0), 4: (2.5, 10.0), 5: (2.4, 500.0)}
"""Experiment → objective and latency."""


def night(**changes: object) -> Night:
    """3 is beaten by the baseline, 4 was refused by review, 5 is too slow."""
    rail = {"metric": "latency_ms", "max": 100}
    one = Night(make_study(**{"guardrails": [rail], "pareto": {"latency_ms": "minimize"}} | changes))
    for number, (value, latency) in WIDTHS.items():
        changed: dict[str, Scalar] = {"width": 100 + number} if number else {}
        one.experiment(changed, Phase.SCREEN if number else Phase.BASELINE, f"width-{number}" if number else "baseline")
        for seed in range(2):
            state = RunState.REJECTED if number == 4 else None
            one.run(number, seed, Phase.SCREEN, value + 0.01 * seed, latency_ms=latency + seed, state=state)
    return one


def test_the_front_holds_what_no_believed_experiment_beats() -> None:
    front = night().report().front
    assert front is not None
    assert [row.number for row in front.rows] == [2, 1, 0]
    assert front.metrics == ("val_bpb", "latency_ms")
    assert front.ways == ("lower is better",) * 2
    assert front.rows[0].means == pytest.approx((2.705, 60.5)) and front.rows[0].runs == 2
    assert front.rows[0].cells[0].startswith("2.7") and "…" in front.rows[0].cells[0]


def test_it_is_shown_and_drawn() -> None:
    report = night().report()
    page, text = render_html(report), render_markdown(report)
    assert TITLE in page and TITLE in text
    assert "Pareto front of val_bpb, latency_ms" in page
    assert "| 02 | width = 102 |" in text


def test_where_none_is_asked_for_there_is_none() -> None:
    report = night(pareto={}).report()
    assert report.front is None
    assert TITLE not in render_html(report) + render_markdown(report)


def test_a_direction_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="pareto"):
        make_study(pareto={"latency_ms": "down"})
