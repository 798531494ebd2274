"""Which of a run's checkpoints stay on the disk."""

from __future__ import annotations

from typing import Literal

from nightlab.configs.section import Section
from nightlab.configs.units import Flag

__all__ = ["CheckpointSettings"]


class CheckpointSettings(Section):
    """Which of a run's checkpoints stay on the disk once its experiment is judged."""

    keep: Literal["all", "best", "last", "none"] = "all"
    """Folders `checkpoint-<step>` in the run's own output folder: all, only the best by what the trainer logged, only
    the last, or none. Of a winner and of the baseline the best one stays in any case."""
    final_weights: Flag = True
    """Whether the weights at the end of a run that did not win stay as well."""
