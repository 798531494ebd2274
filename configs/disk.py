"""What of the disk a study leaves alone."""

from __future__ import annotations

from pydantic import Field

from nightlab.configs.section import Section
from nightlab.configs.units import Size

__all__ = ["DiskSettings"]


class DiskSettings(Section):
    """How much of the disk the lab leaves alone."""

    min_free_bytes: Size = Field(default=1_000_000_000, alias="min_free")
    """No new job is started while less is free on the disk of `.nightlab/`, e.g. `20GB`; running ones go on, and the
    study continues by itself once there is room. Set it above what the jobs of all slots write. 0 switches it off."""
