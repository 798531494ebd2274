"""The losses of a baseline run: on training data and, where it logs them, on held-out data."""

from __future__ import annotations

import statistics

from nightlab.configs.study import Study
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.series import tails_of

__all__ = ["fit_symptoms", "held_out_losses"]

HELD_OUT = ("eval_loss", "val_loss", "valid_loss", "validation_loss", "dev_loss", "test_loss")

FEWEST = 3
RISE = 0.01
"""How far above its lowest point a held-out loss must end to count as rising."""
GAP = 0.5
"""How far the held-out loss must lie above the training loss, to it, to tell of memory."""
LITTLE_GAP, LITTLE_GAIN = 0.05, 0.1
TAIL = 0.1


def held_out_losses(study: Study, files: RunFiles) -> tuple[float, ...]:
    """The held-out loss as a run logged it, in order; empty where it logged it fewer than three times."""
    names = [study.objective.metric] if "loss" in study.objective.metric.lower() else []
    for name in dict.fromkeys([*names, *HELD_OUT]):
        for tail in tails_of(files, name, study.source_of(name)):
            tail.read()
            if len(tail.points) >= FEWEST:
                return tuple(value for _, value in tail.points)
    return ()


def fit_symptoms(losses: tuple[float, ...], held_out: tuple[float, ...]) -> tuple[str, tuple[str, ...]]:
    """What training and held-out loss say together, in words and catalog symptoms; nothing of too few points."""
    if len(held_out) < FEWEST or len(losses) < FEWEST:
        return "", ()
    width = max(1, round(len(losses) * TAIL))
    start, end = statistics.fmean(losses[:width]), statistics.fmean(losses[-width:])
    lowest, last = min(held_out), held_out[-1]
    text = f"Held-out loss {held_out[0]:.4g} → {last:.4g}"
    if last > lowest + RISE * abs(lowest) and end < start:
        place = held_out.index(lowest) + 1
        return f"{text}, lowest {lowest:.4g} at {place} of {len(held_out)}: it rises while training goes on.", (
            "overfit",
        )
    gap = (last - end) / abs(end) if end else 0.0
    if gap > GAP:
        return f"{text}, {100 * gap:.0f} % above the training loss.", ("overfit",)
    if abs(gap) < LITTLE_GAP and start - end < LITTLE_GAIN * abs(start):
        return f"{text}, next to the training loss, which has hardly fallen.", ("underfit",)
    return f"{text}, {100 * gap:+.0f} % against the training loss.", ()
