"""TRL's command line: `trl sft --config <yaml> --output_dir … --seed …`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.launchers.arguments import Argument, Arguments, bundled
from nightlab.tools.launchers.base import Launch
from nightlab.tools.launchers.framework import Document, FrameworkLauncher
from nightlab.tools.launchers.ports import free_port

__all__ = ["TrlLauncher"]

BESIDE = {
    "env": Argument(),
    "accelerate_config": Argument(type="str"),
    "config_file": Argument(type="str"),
    "num_processes": Argument(type="int"),
    "num_machines": Argument(type="int"),
    "machine_rank": Argument(type="int"),
    "main_process_ip": Argument(type="str"),
    "main_process_port": Argument(type="int"),
    "mixed_precision": Argument(choices=("no", "fp16", "bf16", "fp8")),
}
"""What a configuration may hold besides the trainer's arguments: the command line and accelerate read them."""


class TrlLauncher(FrameworkLauncher):
    """The launcher of kind `trl` for one study."""

    own_keys = frozenset({"output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed"})

    def __init__(self, study: Study, catalog: Catalog | None = None) -> None:
        self.arguments = bundled("trl", study.launcher.task)
        super().__init__(study, catalog)

    def argument(self, arguments: Arguments, key: str) -> Argument | None:
        """What is known of an argument; None where there is none of that name."""
        return super().argument(arguments, key) or BESIDE.get(key)

    def _completed(self, document: Document) -> Document:
        document.setdefault("model_name_or_path", self.study.base_model)
        document.setdefault("report_to", "none")
        document.setdefault("logging_steps", 10)
        return document

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:  # noqa: ARG002
        """The command of one run; `tree` and `output` are absolute and appear in it as given. Raises LauncherError."""
        task = self.settings.task
        assert task is not None
        own = ["--config", str(tree / self._written), "--output_dir", str(output), "--seed", str(seed)]
        command = [*self._program(), task, *own, *self._distributed(tree, output)]
        return self._launch(command, {}, seed=seed, tree=tree, output=output)

    def _distributed(self, tree: Path, output: Path) -> list[str]:
        """What the command line hands on to accelerate, which starts the processes."""
        distributed = self.settings.distributed
        if distributed is None and self.processes == 1:
            return []
        words = ["--num_processes", str(self.processes)]
        if output.is_absolute():
            words += ["--main_process_port", str(free_port(str(output)))]
        if distributed and distributed.config:
            words += ["--accelerate_config", str(tree / distributed.config)]
        return words
