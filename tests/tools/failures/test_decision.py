"""What follows from a failure is bounded and follows the signature's action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nightlab.knowledge.signatures import Action, load_signatures
from nightlab.tools.failures import MAX_RETRIES, FailureCause, NextStep, next_step

SIGNATURES = load_signatures()


def cause(signature_id: str) -> FailureCause:
    known = SIGNATURES.get(signature_id)
    return FailureCause(known.id, known.category, known.cause, known.remedy, known.action)


@pytest.mark.parametrize(
    ("signature", "step"),
    [
        ("cuda_oom", NextStep.RETRY_CHANGED),
        ("port_in_use", NextStep.RETRY_CHANGED),
        ("slurm_node_fail", NextStep.RETRY),
        ("slurm_preempt", NextStep.RETRY),
        ("http_429", NextStep.RETRY),
        ("segfault", NextStep.RETRY),
        ("nccl_timeout", NextStep.RETRY),
        ("ecc_xid", NextStep.RETRY),
        ("unknown_args", NextStep.GIVE_UP),
        ("json_invalid", NextStep.GIVE_UP),
        ("cuda_driver", NextStep.ASK),
        ("hf_gated", NextStep.ASK),
    ],
)
def test_the_action_decides(signature: str, step: NextStep) -> None:
    assert next_step(cause(signature), 1) is step


@pytest.mark.parametrize(("action", "step"), [("stop", NextStep.STOP), ("note", NextStep.GIVE_UP)])
def test_actions_of_ones_own_signatures(action: Action, step: NextStep) -> None:
    assert next_step(replace(cause("cuda_oom"), action=action), 1) is step


@pytest.mark.parametrize("signature", [entry.id for entry in SIGNATURES.entries])
def test_no_run_is_retried_more_than_twice(signature: str) -> None:
    retries = {NextStep.RETRY, NextStep.RETRY_CHANGED}
    assert MAX_RETRIES == 2
    assert next_step(cause(signature), 3, (signature, signature)) not in retries
    assert next_step(cause(signature), 99) not in retries
    assert next_step(cause(signature), 1, retries=0) not in retries


def test_a_change_that_did_not_help_is_made_again_only_where_it_can_go_further() -> None:
    assert next_step(cause("cuda_oom"), 2, ("cuda_oom",)) is NextStep.RETRY_CHANGED
    assert next_step(cause("port_in_use"), 2, ("port_in_use",)) is NextStep.RETRY_CHANGED
    assert next_step(cause("tracker_login"), 2, ("cuda_oom",)) is NextStep.RETRY_CHANGED
    assert next_step(cause("tracker_login"), 2, ("tracker_login",)) is NextStep.GIVE_UP


def test_an_unknown_failure_is_not_repeated() -> None:
    assert next_step(None, 1) is NextStep.GIVE_UP


def test_the_study_says_how_often() -> None:
    lost = cause("slurm_node_fail")
    assert next_step(lost, 1, retries=0) is NextStep.GIVE_UP
    assert next_step(lost, 4, retries=4) is NextStep.RETRY
    assert next_step(lost, 5, retries=4) is NextStep.GIVE_UP
