"""What turns a configuration into a command and files."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.launchers.base import Launch, Launcher
from nightlab.tools.launchers.without_ideas import WithoutIdeas

__all__ = ["Launch", "Launcher", "launcher_for"]


def launcher_for(study: Study, catalog: Catalog | None = None) -> Launcher:
    """The launcher that the study's `launcher.kind` names; `catalog` translates names, the built-in one by default."""
    match study.launcher.kind:
        case "script":
            from nightlab.tools.launchers.script import ScriptLauncher

            return WithoutIdeas(ScriptLauncher(study))
        case "llamafactory":
            from nightlab.tools.launchers.llamafactory import LlamaFactoryLauncher

            return LlamaFactoryLauncher(study, catalog)
        case "trl":
            from nightlab.tools.launchers.trl import TrlLauncher

            return TrlLauncher(study, catalog)
        case "roll":
            from nightlab.tools.launchers.roll import RollLauncher

            return RollLauncher(study, catalog)
