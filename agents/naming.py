"""What the study calls the parameters of the catalog."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.tools.launchers.names import catalog_keys

__all__ = ["own_name"]


def own_name(study: Study, parameter: str) -> str:
    """What the study calls a parameter of the catalog: by its own map, the catalog's name or its framework's."""
    named = study.catalog.parameters.get(parameter)
    if named or parameter in study.parameters or not study.launcher.is_framework:
        return named or parameter
    key = catalog_keys(study.launcher.kind).get(parameter, parameter)
    return key if key in study.parameters else parameter
