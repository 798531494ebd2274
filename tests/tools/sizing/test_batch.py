"""The effective batch by every framework's names, and the learning rate that goes with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.configs.study import Scalar
from nightlab.tools.sizing.batch import EffectiveBatch, effective_batch
from nightlab.tools.sizing.configuration import Configuration


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8}, (2, 4, 8)),
        ({"actor_train.training_args.per_device_train_batch_size": 1}, (2, 1, 1)),
        ({"train_micro_batch_size_per_gpu": 2, "train_batch_size": 64}, (2, 2, 16)),
        ({"batch_size": 16, "accumulate_grad_batches": 2}, (2, 16, 2)),
        ({"device_batch_size": 16, "total_batch_size": 100}, (2, 16, 4)),
        ({"micro_batch": 4, "grad_accum": 3, "nproc_per_node": 8}, (8, 4, 3)),
        ({"train.batch-size": 4}, (2, 4, 1)),
    ],
)
def test_the_usual_names(values: dict[str, Scalar], expected: tuple[int, int, int]) -> None:
    assert effective_batch(Configuration(values, processes=2)) == EffectiveBatch(*expected)


@pytest.mark.parametrize(
    "values", [{}, {"lr": 0.1}, {"batch_size": "auto"}, {"batch_size": 0}, {"batch_size": True}, {"batch_size": 2.5}]
)
def test_no_batch_is_no_guess(values: dict[str, Scalar]) -> None:
    assert effective_batch(Configuration(values)) is None


def test_own_names_by_the_catalogs() -> None:
    own = {"per_device_train_batch_size": "rows", "gradient_accumulation_steps": "rounds"}
    batch = effective_batch(Configuration({"rows": 4, "rounds": 2}, own=own))
    assert str(batch) == "8 = 1 × 4 × 2"


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 64))
def test_a_smaller_batch_keeps_the_size_down_to_one(world: int, per_device: int, accumulation: int) -> None:
    batch: EffectiveBatch | None = EffectiveBatch(world, per_device, accumulation)
    size = batch.size if batch else 0
    while batch is not None:
        assert batch.size == size
        last, batch = batch, batch.smaller()
    assert last.per_device == 1
