"""No launcher knows of code ideas: they are in the code of the tree, not in what a run is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.code import settings_of
from nightlab.configs.study import Scalar
from nightlab.tools.launchers.base import Launch, Launcher

__all__ = ["WithoutIdeas"]


@dataclass(frozen=True)
class WithoutIdeas:
    """A launcher that takes the code ideas out of a configuration before another one sees it."""

    inner: Launcher

    def files(self, parameters: Mapping[str, Scalar], tree: Path) -> dict[str, str]:
        """What the inner launcher writes. Raises LauncherError."""
        return self.inner.files(settings_of(parameters), tree)

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:
        """The inner launcher's command. Raises LauncherError."""
        return self.inner.launch(settings_of(parameters), seed=seed, tree=tree, output=output)

    def read_back(self, tree: Path) -> dict[str, Scalar] | None:
        """What the inner launcher reads."""
        return self.inner.read_back(tree)
