"""The libraries that scores come from, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nightlab.errors import MetricError

__all__ = ["library"]


def library(name: str) -> Any:
    """The module `name`. Raises MetricError that names the extra with which it is installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        raise MetricError(
            f'needs {missing}, which is not installed (pip install "nightlab[metrics]")', cause="metric-unreadable"
        ) from error
