"""LLaMA-Factory: `llamafactory-cli train <yaml> output_dir=… seed=…`, and a second step that predicts.

Every run has an output folder of its own and says so; without that the framework silently resumes from whatever
checkpoints lie there.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.knowledge.catalog import Catalog
from nightlab.tools.launchers.arguments import bundled
from nightlab.tools.launchers.base import Launch
from nightlab.tools.launchers.framework import Document, FrameworkLauncher
from nightlab.tools.launchers.llamafactory_rules import problems_of
from nightlab.tools.launchers.ports import free_port

__all__ = ["LlamaFactoryLauncher"]

ADAPTERS = ("lora", "oft")
"""Kinds of fine-tuning whose result is an adapter, not a model."""

Override = bool | int | str

_PREDICT: dict[str, Any] = {
    "stage": "sft",
    "do_train": False,
    "do_eval": False,
    "do_predict": True,
    "predict_with_generate": True,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "early_stopping_steps": None,
    "compute_accuracy": False,
    "deepspeed": None,
}
"""What the second step has of its own; the rest, template and thinking above all, is as in training."""


class LlamaFactoryLauncher(FrameworkLauncher):
    """The launcher of kind `llamafactory` for one study."""

    own_keys = frozenset({"output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed"})

    def __init__(self, study: Study, catalog: Catalog | None = None) -> None:
        self.arguments = bundled("llamafactory")
        super().__init__(study, catalog)

    def _completed(self, document: Document) -> Document:
        document.setdefault("model_name_or_path", self.study.base_model)
        document.setdefault("stage", "sft")
        if not any(document.get(step) for step in ("do_train", "do_eval", "do_predict")):
            document["do_train"] = True
        document.setdefault("logging_steps", 10)
        document.setdefault("report_to", "none")
        document["plot_loss"] = False
        if document.get("do_train") and (document.get("eval_dataset") or document.get("val_size")):
            document.setdefault("do_eval", True)
            document.setdefault("eval_strategy", "epoch")
        # The framework samples answers by default: two runs of one model would not have the same score.
        document.setdefault("do_sample", False)
        return document

    def problems(self, document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        found = list(problems_of(document, processes=self.processes))
        if self.settings.predict:
            step = problems_of(self._predict_document(document), processes=self.processes)
            found += [one for one in step if one not in found]
        return found

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:
        """The command of one run; `tree` and `output` are absolute and appear in it as given. Raises LauncherError."""
        own: dict[str, Override] = {"output_dir": str(output), "overwrite_output_dir": True, "seed": seed}
        command = self._command(tree, own)
        document = self.document(parameters, tree)
        if self.settings.predict:
            step = {**own, "output_dir": str(output / "predict"), **_result_of(document, output)}
            # No shell of the user's: both commands are ours, word by word.
            predict = self._command(tree, step, self.settings.predict_written)
            command = ["sh", "-c", f"{shlex.join(command)} && exec {shlex.join(predict)}"]
        env = self._environment(document, output)
        if env and any(" " in text for text in (str(tree), str(output))):
            raise LauncherError(
                f"{tree}: LLaMA-Factory cannot start several processes where a path holds a space (move the repository)"
            )
        return self._launch(command, env, seed=seed, tree=tree, output=output)

    def export_command(self, parameters: Mapping[str, Scalar], *, tree: Path, weights: Path) -> str | None:
        """What merges an adapter into its model; None where a whole model was trained. Raises LauncherError."""
        document = self.document(parameters, tree)
        method = document.get("finetuning_type", "lora")
        if method not in ADAPTERS:
            return None
        given = {
            "model_name_or_path": document["model_name_or_path"],
            "adapter_name_or_path": ",".join([*_kept_adapters(document), str(weights)]),
            "template": document.get("template"),
            "finetuning_type": method,
            "trust_remote_code": document.get("trust_remote_code"),
            "export_dir": str(weights.parent / f"{weights.name}-merged"),
        }
        words = [f"--{key}={value}" for key, value in given.items() if value is not None]
        return shlex.join([*self._program(), "export", *words])

    def _command(self, tree: Path, overrides: Mapping[str, Override], file: str | None = None) -> list[str]:
        words = [f"{key}={_override(value)}" for key, value in overrides.items()]
        return [*self._program(), "train", str(tree / (file or self._written)), *words]

    def _environment(self, document: Mapping[str, Any], output: Path) -> dict[str, str]:
        """What makes the framework start several processes; DeepSpeed wants that for one as well."""
        if self.processes == 1 and not document.get("deepspeed") and self.settings.distributed is None:
            return {}
        env = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(self.processes)}
        if output.is_absolute():
            env["MASTER_PORT"] = str(free_port(str(output)))
        program = Path(self._program()[0])
        if program.is_absolute() or len(program.parts) > 1:
            # It calls `torchrun` by name, which stands beside it.
            env["PATH"] = f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return env

    def _files(self, document: Document) -> dict[str, Document]:
        step = self.settings.predict_written
        return {self._written: document} | ({step: self._predict_document(document)} if step else {})

    def _predict_document(self, document: Mapping[str, Any]) -> Document:
        """The training's configuration turned into one that lets its result answer `eval_dataset`."""
        step = {**document, **_PREDICT, **self.settings.predict_settings}
        # Training data are read even where nothing is trained; pairs, for one, are refused in this stage.
        return {**step, "dataset": None} if step.get("eval_dataset") else step


def _result_of(document: Mapping[str, Any], output: Path) -> dict[str, Override]:
    """What loads the model that a training has left in `output`."""
    if document.get("finetuning_type", "lora") in ADAPTERS:
        return {"adapter_name_or_path": ",".join([*_kept_adapters(document), str(output)])}
    return {"model_name_or_path": str(output)}


def _kept_adapters(document: Mapping[str, Any]) -> list[str]:
    """Adapters the training started from and that its result does not contain."""
    before = document.get("adapter_name_or_path") or []
    names = [part.strip() for part in before.split(",")] if isinstance(before, str) else [str(one) for one in before]
    return names if document.get("create_new_adapter") else names[:-1]


def _override(value: Override) -> str:
    """A value as OmegaConf reads it back from the command line: as YAML."""
    if isinstance(value, str):
        # `{output_dir}` stands for a path, in what is shown of a command.
        text = value.replace("{output_dir}", "output")
        try:
            plain = yaml.safe_load(text) == text
        except yaml.YAMLError:
            plain = False
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
