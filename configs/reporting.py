"""What is written at the end of a night beside the report."""

from __future__ import annotations

from nightlab.configs.section import Section
from nightlab.configs.units import Flag

__all__ = ["ReportSettings"]


class ReportSettings(Section):
    """What is written beside report and table."""

    tsv: Flag = False
    """Write `results.tsv` too: one line an experiment in the five columns of autoresearch (commit, metric, memory_gb,
    status, description), separated by tabs."""
