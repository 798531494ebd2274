"""Whether a run that ended well has trained at all: its loss as it was logged, judged for divergence.

Reinforcement learning is judged for values that are not finite only: its loss is near zero or below by construction,
and what counts there is the reward.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.curve import all_losses
from nightlab.tools.metrics.files import json_objects, load_json
from nightlab.tools.metrics.records import records
from nightlab.tools.metrics.steps import number_of
from nightlab.tools.metrics.trainer import LOG, newest_state, trainer_folder

__all__ = ["DIVERGED", "NOT_FINITE", "Course", "Sickness", "read_course", "sickness"]

NOT_FINITE, DIVERGED = "loss-not-finite", "diverged"

MOST_POINTS = 4000
LAST = 3
FEWEST_POINTS, FEWEST_PLAIN_POINTS = 3, 10
SMALLEST_RISE = 1.0
"""A loss that is close to nothing may grow by any factor; in nats a rise of less than this is not yet a divergence."""
HOPELESS_LOSS = HOPELESS_GRADIENT = 1000.0
"""Nats a token: a model that knows nothing has the logarithm of its vocabulary, 12 for the largest."""
COLLAPSED_LOSS = 6.0
"""Nats a token: a guess among 400; no model that knew more when it began may end there."""
FEWEST_COLLAPSED_POINTS, FELL = 5, 0.9
STILL = 1e-4
"""Share by which the losses of different batches differ at most where the model no longer looks at them."""


@dataclass
class Course:
    """The losses of a run in the order they were logged; of very many every second one."""

    from_trainer: bool = False
    """Whether a trainer's own records say so; else any line that states a loss counts."""
    losses: list[float] = field(default_factory=list)
    eval_losses: list[float] = field(default_factory=list)
    last: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=LAST))
    """The last losses, each with its gradient norm."""
    is_rewarded: bool = False
    """Whether it is reinforcement learning."""

    def add(self, entry: Mapping[str, object]) -> None:
        """One record of a trainer."""
        self.is_rewarded = self.is_rewarded or any(
            key in ("reward", "reward_std") or (key.startswith("rewards/") and key.endswith("/mean")) for key in entry
        )
        loss = number_of(entry.get("loss"))
        if loss is not None:
            self.add_loss(loss, number_of(entry.get("grad_norm")))
        evaluated = "eval_loss" if "eval_loss" in entry else _first_eval_loss(entry)
        if evaluated and (value := number_of(entry[evaluated])) is not None:
            _append(self.eval_losses, value)

    def add_loss(self, loss: float, gradient: float | None = None) -> None:
        self.last.append((loss, gradient))
        _append(self.losses, loss)


@dataclass(frozen=True)
class Sickness:
    """Why a run says nothing of its configuration but that it does not train."""

    cause: str
    """`loss-not-finite` or `diverged`, as the watchdog calls them."""
    detail: str
    signature: str
    """The failure signature that knows the remedy."""


def _first_eval_loss(entry: Mapping[str, object]) -> str | None:
    return next((key for key in entry if key.startswith("eval_") and key.endswith("_loss")), None)


def _append(values: list[float], value: float) -> None:
    values.append(value)
    if len(values) > MOST_POINTS:
        values[:] = [*values[:-1:2], values[-1]]


def read_course(files: RunFiles, source: MetricSource) -> Course:
    """What a run logged of its loss: a trainer's files, else its dict lines, else any line that states a loss.

    `source` names the trainer's folder where it is of kind `trainer`. Raises OSError.
    """
    for entries in _trainers(files, source if source.kind == "trainer" else MetricSource(kind="trainer")):
        course = Course(from_trainer=True)
        for entry in entries:
            course.add(entry)
        if course.losses:
            return course
    course = Course()
    for log in (files.stdout, files.stderr):
        for loss in all_losses(log) if not course.losses else ():
            course.add_loss(loss)
    return course


def _trainers(files: RunFiles, source: MetricSource) -> Iterator[Iterator[Mapping[str, object]]]:
    try:
        folder = trainer_folder(files, source)
    except MetricError:
        folder = files.output
    state, log = newest_state(folder), folder / LOG
    # A checkpoint's state may end before the run did.
    if state is not None and state.parent == folder and files.wrote(state):
        yield _history(state)
    if log.exists() and files.wrote(log):
        yield json_objects(log, "loss")
    for stream in (files.stdout, files.stderr):
        if stream.exists():
            yield _spoken(stream)
    if state is not None and files.wrote(state):
        yield _history(state)


def _history(state: Path) -> Iterator[Mapping[str, object]]:
    try:
        document = load_json(state)
    except MetricError:
        return
    history = document.get("log_history") if isinstance(document, dict) else None
    yield from (entry for entry in history if isinstance(entry, dict)) if isinstance(history, list) else ()


def _spoken(stream: Path) -> Iterator[Mapping[str, object]]:
    """The dict lines of rank 0, or of the process that speaks first."""
    speaker = None
    for record in records(stream, "loss"):
        speaker = record.source if speaker is None or record.source == "rank 0" else speaker
        if record.source == speaker:
            yield record.values


def sickness(
    course: Course, *, factor: float | None, non_finite: bool = True, is_language_model: bool = False
) -> Sickness | None:
    """Why the run is a failure whatever it reports; None where it trained, well or not.

    It has diverged when its loss ends at `factor` times where it began and above its whole first fifth, by more than
    `SMALLEST_RISE`, while no evaluation says otherwise. A language model's has also where it never fell and levels out
    above `COLLAPSED_LOSS`, or stands still with gradients of 0. None for `factor` or False for `non_finite`: not looked
    at.
    """
    if not course.losses:
        return None
    if non_finite and (found := _not_finite(course)):
        return found
    if factor is None or course.is_rewarded:
        return None
    if is_language_model and (found := _hopeless(course) or _dead(course) or _collapsed(course)):
        return found
    return _diverged(course, factor)


def _not_finite(course: Course) -> Sickness | None:
    last = [*course.last]
    enough = last[-1:] if course.from_trainer else last
    full = course.from_trainer or len(last) == LAST
    if full and not any(math.isfinite(loss) for loss, _ in enough):
        return Sickness(NOT_FINITE, f"the loss was {enough[-1][0]} at the end", "nan_loss")
    lost = [loss == 0 and gradient is not None and not math.isfinite(gradient) for loss, gradient in last]
    if all(lost):
        return Sickness(NOT_FINITE, "the loss was 0 and the norm of its gradients nan at the end", "nan_loss")
    return None


def _hopeless(course: Course) -> Sickness | None:
    loss, gradient = course.last[-1]
    if gradient is None or min(loss, gradient) < HOPELESS_LOSS or loss < course.losses[0]:
        return None
    text = f"the loss ended at {loss:.4g} and its gradients at {gradient:.4g}; a model that knows nothing has about 12"
    return Sickness(DIVERGED, text, "loss_diverge")


def _dead(course: Course) -> Sickness | None:
    """Of a trainer's language model: the same loss for every batch, and no gradient that could change it."""
    losses = [loss for loss, gradient in course.last if gradient == 0]
    if not course.from_trainer or len(losses) < LAST or not all(map(math.isfinite, losses)):
        return None
    if min(losses) < SMALLEST_RISE or max(losses) - min(losses) > STILL * max(losses):
        return None
    text = (
        f"the loss stood still at {losses[-1]:.4g} with gradients of 0: nothing is learnt any more, whatever the batch"
    )
    return Sickness(DIVERGED, text, "loss_diverge")


def _collapsed(course: Course) -> Sickness | None:
    """Of a trainer's language model: its loss never fell, rose, and stays where next to nothing is known."""
    finite = [loss for loss in course.losses if math.isfinite(loss)]
    if not course.from_trainer or len(finite) < FEWEST_COLLAPSED_POINTS or _has_learned(course):
        return None
    first, end = finite[0], _end_of(finite)
    fell = min(finite) < FELL * first or end < FELL * statistics.median(finite[len(finite) // 5 :])
    if fell or end < COLLAPSED_LOSS or end - first < SMALLEST_RISE:
        return None
    text = f"the loss began at {first:.4g}, never fell and ended at {end:.4g}; a model that knows nothing has about 12"
    return Sickness(DIVERGED, text, "loss_diverge")


def _end_of(finite: list[float]) -> float:
    return statistics.median(finite[-max(LAST, len(finite) // 10) :])


def _has_learned(course: Course) -> bool:
    return len(course.eval_losses) > 1 and course.eval_losses[-1] < course.eval_losses[0]


def _diverged(course: Course, factor: float) -> Sickness | None:
    finite = [loss for loss in course.losses if math.isfinite(loss)]
    if len(finite) < (FEWEST_POINTS if course.from_trainer else FEWEST_PLAIN_POINTS) or min(finite) <= 0:
        return None
    first = finite[0]
    opening = max(finite[: max(1, len(finite) // 5)])
    end = _end_of(finite)
    if _has_learned(course) or end < factor * first or end < opening or end - first < SMALLEST_RISE:
        return None
    return Sickness(DIVERGED, f"the loss began at {first:.4g} and ended at {end:.4g}", "loss_diverge")
