"""ROLL: `python examples/start_<pipeline>_pipeline.py --config_path … --config_name …`.

Its configuration has no overrides on the command line, so seed and folders of a run come through the environment, by
OmegaConf's `oc.env`. Hydra finds the YAML relative to the start script and refuses absolute paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.launchers.arguments import Argument, Arguments
from nightlab.tools.launchers.base import Launch
from nightlab.tools.launchers.framework import Document, FrameworkLauncher
from nightlab.tools.launchers.names import ROLL_TRAINED
from nightlab.tools.launchers.roll_outline import RollOutline

__all__ = ["RollLauncher"]

SEED = "${oc.decode:${oc.env:NIGHTLAB_SEED}}"
OUTPUT = "${oc.env:NIGHTLAB_OUTPUT_DIR}"
"""OmegaConf reads both where the run is, so the file is the same for every seed."""


class RollLauncher(FrameworkLauncher):
    """The launcher of kind `roll` for one study."""

    drops_unknown = True
    own_keys = frozenset({"output_dir", "logging_dir", "resume_from_checkpoint", "seed"})

    def __init__(self, study: Study, catalog: Catalog | None = None) -> None:
        task = study.launcher.task or "rlvr"
        self._outline = RollOutline(task)
        known = {name: Argument() for name in self._outline.names()}
        self.arguments = Arguments(version=self._outline.version, arguments=known)
        worker = f"{ROLL_TRAINED.get(task, 'actor_train')}.training_args"
        self.batch_keys = (f"{worker}.per_device_train_batch_size", f"{worker}.gradient_accumulation_steps")
        super().__init__(study, catalog)

    def argument(self, arguments: Arguments, key: str) -> Argument | None:  # noqa: ARG002
        """What is known of a dotted key; None where the outline has no such place."""
        return self._outline.argument(key)

    def leaves(self, document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        """Every value that stands at the end of nested keys; lists are values."""
        for key, value in document.items():
            if isinstance(value, dict) and value:
                yield from ((f"{key}.{inner}", one) for inner, one in self.leaves(value))
            elif isinstance(value, list):
                yield key, [_checked(one) for one in value]
            else:
                yield key, _checked(value)

    def _completed(self, document: Document) -> Document:
        document["seed"] = SEED
        document["output_dir"] = OUTPUT
        document["logging_dir"] = f"{OUTPUT}/logs"
        document["resume_from_checkpoint"] = False
        checkpoints = document.get("checkpoint_config")
        if isinstance(checkpoints, dict) and "output_dir" in checkpoints:
            checkpoints["output_dir"] = f"{OUTPUT}/checkpoints"
        document.setdefault("track_with", "stdout")
        document.setdefault("pretrain", self.study.base_model)
        return document

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:  # noqa: ARG002
        """The command of one run; the lab's own paths in it are relative to the start script. Raises LauncherError."""
        script = self._script(tree)
        written = tree / self._written
        folder = os.path.relpath(written.parent, script.parent)
        name = ["--config_path", folder, "--config_name", written.stem]
        env = {"ROLL_LOG_DIR": str(output / "logs")}
        return self._launch([*self._program(), str(script), *name], env, seed=seed, tree=tree, output=output)

    def _script(self, tree: Path) -> Path:
        """The pipeline's start script: in `examples/` of the folder the command runs in."""
        script = self._cwd(tree) / "examples" / f"start_{self.settings.task}_pipeline.py"
        if not script.is_file():
            raise LauncherError(
                f"launcher.cwd: {self.settings.cwd} holds no examples/{script.name} (name the folder ROLL is in)"
            )
        return script


def _checked(value: object) -> object:
    """A value to check; None for an interpolation, of which only the name can be checked."""
    return None if isinstance(value, str) and "${" in value else value
