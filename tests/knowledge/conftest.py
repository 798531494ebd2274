from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Phase, Proposal, Run

Plan = Callable[..., Run]


@pytest.fixture
def study() -> Study:
    return Study.model_validate(
        {
            "study": "night",
            "scenario": "pydoc",
            "method": "pretrain",
            "base_model": "scratch",
            "objective": {
                "metric": "val_bpb",
                "direction": "minimize",
                "unit": "bits/byte",
                "plausible": [0.5, 9],
                "min_effect": 0.01,
            },
            "parameters": {"lr": 0.001, "width": 64},
            "space": {"lr": {"levels": [0.003, 0.01]}},
            "launcher": {"command": ["{python}", "train.py"]},
            "budget": {"runs": 40, "until": "07:30"},
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path, study: Study) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        opened.save_study(study, base_commit="c0ffee")
        yield opened


@pytest.fixture
def plan(ledger: Ledger) -> Plan:
    """Plan one run of the study `night`: `plan(lr, width=…, seed=…, phase=…, retry=…, branch_for=…)`."""

    def planned(lr: float = 0.001, *, width: int = 64, seed: int = 0, phase: Phase = Phase.SCREEN, **how: Any) -> Run:
        changed: dict[str, Scalar] = {} if lr == 0.001 else {"lr": lr}
        proposal = Proposal(
            parameters={"lr": lr, "width": width},
            changed=changed,
            variable=f"lr-{lr}".replace(".", "-") if changed else "baseline",
            phase=phase,
            seed=seed,
            reason="try it",
        )
        how = {"branch_for": lambda number, variable: f"experiment-{number:02d}-pydoc-pretrain-{variable}", **how}
        return ledger.plan(
            proposal, scenario="pydoc", method="pretrain", base_model="scratch", base_commit="c0ffee", **how
        )

    return planned
