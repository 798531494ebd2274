"""What happens when runs fail: signatures, retries with a changed configuration, the breaker."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nightlab.configs.section import Section

__all__ = ["Failures", "Remedies"]


class Remedies(Section):
    """Names of the parameters a remedy may turn, where they are not the usual ones."""

    per_device_batch: str | None = None
    """Parameter that holds the per-device batch: halved when memory runs out, with the effective batch kept."""
    accumulation: str | None = None
    """Parameter that holds the gradient accumulation steps."""
    total_batch: str | None = None
    """Parameter that holds the total batch, where the script derives accumulation from it."""


class Failures(Section):
    """What happens when runs fail."""

    file: str | None = None
    """A file of your own failure signatures, read on top of the built-in ones."""
    retries: Annotated[int, Field(ge=0, le=5)] = 2
    """Further attempts for a run whose failure's signature says that trying again may help."""
    breaker: Annotated[int, Field(ge=2)] = 3
    """Equal failures in a row, without a success between them, after which the lab stops trying that and asks."""
    remedies: Remedies = Remedies()
    """Names of the parameters a remedy may turn."""
