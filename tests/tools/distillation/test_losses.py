"""The student's loss from a cache against the one computed with the teacher's whole distribution."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nightlab.errors import ConfigError  # noqa: E402
from nightlab.tools.distillation.dumping import rows_of  # noqa: E402
from nightlab.tools.distillation.losses import Direction, Distillation, divergence, tail_at  # noqa: E402
from tests.tools.distillation.pair import VOCABULARY, header  # noqa: E402

pytestmark = pytest.mark.train

DIRECTIONS: tuple[Direction, ...] = ("forward", "reverse")
TEMPERATURES = (1.0, 2.0, 4.0)


def logits(seed: int, rows: int = 20) -> Any:
    return 2 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def exact(student: Any, teacher: Any, loss: Distillation) -> Any:
    """The divergence as it is computed with the teacher in memory."""
    ours, theirs = (torch.log_softmax(one / loss.temperature, dim=-1) for one in (student, teacher))
    first, second = (theirs, ours) if loss.direction == "forward" else (ours, theirs)
    return torch.nn.functional.kl_div(second, first, log_target=True, reduction="none").sum(dim=-1)


def cached(student: Any, teacher: Any, loss: Distillation, k: int, precision: str = "float32") -> Any:
    of = header(k, precision=precision, temperatures=TEMPERATURES)
    rows = rows_of(teacher, of)
    kinds = of.row_types
    ids, logs, tail = (
        torch.from_numpy(part.astype(kinds[name][0]).astype("f4"))
        for name, part in (("ids.bin", rows.ids), ("logs.bin", rows.logs), ("tail.bin", rows.tail))
    )
    return divergence(student, ids, logs, tail, temperatures=of.temperatures, loss=loss)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_with_the_whole_vocabulary_loss_and_gradient_are_those_of_on_line_distillation(
    direction: Direction, temperature: float
) -> None:
    loss, teacher = Distillation(temperature=temperature, direction=direction), logits(1)
    one, other = logits(2).requires_grad_(), logits(2).requires_grad_()
    ours, wanted = cached(one, teacher, loss, VOCABULARY), exact(other, teacher, loss)
    torch.testing.assert_close(ours, wanted, rtol=2e-5, atol=2e-6)
    ours.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(one.grad, other.grad, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_fewer_tokens_give_less_and_never_more_than_the_whole(direction: Direction, temperature: float) -> None:
    loss, student, teacher = Distillation(temperature=temperature, direction=direction), logits(2), logits(1)
    found = torch.stack([cached(student, teacher, loss, k) for k in (1, 2, 5, 20, 50, 99)])
    assert (found.diff(dim=0) >= -1e-5).all()
    assert (found[-1] <= exact(student, teacher, loss) + 1e-5).all()
    assert (found >= 0).all()
    assert found[0].mean() < 0.9 * found[-1].mean()
    torch.testing.assert_close(found[-1], exact(student, teacher, loss), rtol=0, atol=1e-4)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_student_that_is_the_teacher_has_nothing_to_learn(direction: Direction) -> None:
    student = logits(1).requires_grad_()
    loss = cached(student, logits(1), Distillation(temperature=2.0, direction=direction), 8)
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.zeros(20), rtol=0, atol=1e-5)
    torch.testing.assert_close(student.grad, torch.zeros(20, VOCABULARY), rtol=0, atol=1e-5)


def test_half_precision_moves_the_loss_by_less_than_a_hundredth() -> None:
    loss, student, teacher = Distillation(temperature=2.0), logits(2), logits(1)
    whole, half = (cached(student, teacher, loss, 16, precision) for precision in ("float32", "float16"))
    assert 0 < (whole - half).abs().max() < 0.01 * whole.mean()


def test_between_cached_temperatures_the_tail_is_a_little_overrated() -> None:
    all_logs = torch.log_softmax(logits(1), dim=-1)
    others = all_logs.sort(dim=-1, descending=True).values[:, 8:]
    known = torch.stack([(others / t).logsumexp(dim=-1) for t in TEMPERATURES], dim=-1)
    for temperature in (1.0, 1.5, 3.0, 4.0, 7.0):
        true = (others / temperature).logsumexp(dim=-1)
        over = tail_at(known, TEMPERATURES, temperature, VOCABULARY - 8) - true
        assert (over >= -1e-5).all()
        assert over.max() < 0.25
    torch.testing.assert_close(
        tail_at(known, TEMPERATURES, 1e9, 92), torch.full((20,), math.log(92)), rtol=1e-5, atol=0
    )


def test_a_temperature_below_the_cached_ones_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"below 1, the cache's lowest \(dump the logits with --temperature 0\.5\)"):
        cached(logits(2), logits(1), Distillation(temperature=0.5), 8)


def test_tokens_ruled_out_by_the_teacher_do_no_harm() -> None:
    teacher = logits(1)
    teacher[:, 10:] = -1e9
    for direction in DIRECTIONS:
        student = logits(2).requires_grad_()
        loss = cached(student, teacher, Distillation(direction=direction), 20, "float16")
        loss.sum().backward()
        assert torch.isfinite(loss).all() and torch.isfinite(student.grad).all()


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"alpha": -1.0}, "alpha"), ({"temperature": 0.0}, "temperature"), ({"direction": "both"}, "direction")],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Distillation(**changes)
